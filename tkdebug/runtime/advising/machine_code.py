"""Machine instructions of a launch: how often each line's run, on which pipe, and for what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tkdebug.advice.facts import LineCode
from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, element_of, encoding_of
from tkdebug.compiler.layouts import REGISTER
from tkdebug.errors import Frame
from tkdebug.linemap.line_table import Instruction, LineTable
from tkdebug.runtime.advising.executions import Executions

INTEGER_DIVISION, FP64, SLOW_FUNCTION = "integer-division", "fp64", "slow-function"
_DIVISIONS = names_of(arith.DivSI, arith.DivUI, arith.RemSI, arith.RemUI)
# The reduction of large arguments is most of their code, and seldom runs.
_REDUCED, _ORDINARY_SHARE = names_of(math.Sin, math.Cos), 0.35
_LOCAL = ("local-load", "local-store")


def line_code(table: LineTable, executions: Executions, warps: int) -> tuple[LineCode, ...]:
    """Instructions of warps by line, in the whole launch."""
    by_pipe: dict[Frame, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    by_cause: dict[Frame, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    ops: dict[tuple[Frame, str], set[int]] = defaultdict(set)
    static: dict[tuple[Frame, str], float] = defaultdict(float)
    for instruction, runs in _with_runs(table, executions):
        frame = instruction.frames[-1]
        count = runs * warps
        by_pipe[frame]["issue"] += count
        by_pipe[frame][instruction.pipe] += count
        cause = _cause(executions, instruction)
        if cause:
            by_cause[frame][cause] += count
            static[frame, cause] += 1 / executions.copies(instruction.op_id)
            if instruction.op_id is not None:
                ops[frame, cause].add(instruction.op_id)
    per_element: dict[Frame, dict[str, float]] = defaultdict(dict)
    for (frame, cause), number in static.items():
        held = sum(_held(executions.gpu_op(op_id)) for op_id in ops[frame, cause])
        per_element[frame][cause] = number / max(1, held)
    return tuple(
        LineCode(frame, dict(pipes), dict(by_cause[frame]), per_element[frame])
        for frame, pipes in by_pipe.items()
    )


def _held(op: Operation | None) -> int:
    """Elements that a thread computes of an op."""
    layout = encoding_of(op.results[0].type) if op is not None and op.results else None
    return 1 if layout is None else layout.in_size(REGISTER)


def local_accesses(table: LineTable, executions: Executions, warps: int) -> Mapping[Frame, float]:
    """Accesses to local memory by line, in instructions of warps."""
    found: dict[Frame, float] = defaultdict(float)
    for instruction, runs in _with_runs(table, executions):
        if instruction.kind in _LOCAL:
            found[instruction.frames[-1]] += runs * warps
    return dict(found)


def _with_runs(table: LineTable, executions: Executions) -> Iterator[tuple[Instruction, float]]:
    """The instructions that have a line, each with how often it runs."""
    by_frame: dict[Frame, float] = {}
    unknown = []
    for instruction in table.instructions:
        if not instruction.mapped:
            continue
        if instruction.op_id is None:
            unknown.append(instruction)
            continue
        runs = executions.of_instruction(instruction.op_id) * _taken(executions, instruction)
        frame = instruction.frames[-1]
        by_frame[frame] = max(by_frame.get(frame, 0.0), runs)
        yield instruction, runs
    # Functions that ptxas put in have the line of their calls.
    for instruction in unknown:
        yield instruction, by_frame.get(instruction.frames[-1], executions.of_gpu(None))


def _taken(executions: Executions, instruction: Instruction) -> float:
    """Share of an op's instructions that ordinary arguments take."""
    op = executions.gpu_op(instruction.op_id) if instruction.op_id is not None else None
    return _ORDINARY_SHARE if op is not None and op.name in _REDUCED else 1.0


def _cause(executions: Executions, instruction: Instruction) -> str:
    if instruction.pipe == "fp64":
        return FP64
    op = executions.gpu_op(instruction.op_id) if instruction.op_id is not None else None
    if op is None:
        return ""
    if op.name in _DIVISIONS:
        return INTEGER_DIVISION
    if _is_double(op):
        return FP64
    return SLOW_FUNCTION if _is_function(op) else ""


def _is_double(op: Operation) -> bool:
    values = (*op.results, *op.operands)
    kinds = [element_of(value.type) for value in values]
    arithmetic = op.name.startswith(("arith.", "math."))
    return arithmetic and any(isinstance(k, ScalarType) and k.name == "f64" for k in kinds)


def _is_function(op: Operation) -> bool:
    return tt.ExternElementwise.matches(op) or op.name.startswith("math.")
