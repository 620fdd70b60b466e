"""Machine instructions of a launch: how often each line's run, on which pipe, and for what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tkdebug.advice.facts import AccessFacts, LineCode, WaitFacts
from tkdebug.advice.machines import Machine
from tkdebug.advice.model import latency_s
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, TensorType, element_of, encoding_of
from tkdebug.compiler.layouts import REGISTER
from tkdebug.errors import Frame
from tkdebug.linemap.line_table import Instruction, LineTable
from tkdebug.linemap.warp_waits import Cause, waits
from tkdebug.runtime.advising.executions import Executions
from tkdebug.runtime.advising.instruction_runs import InstructionRuns
from tkdebug.runtime.advising.loops import RepeatedWork

# Causes of instructions for which a rule may know a shorter form.
INTEGER_DIVISION, FP64, SLOW_FUNCTION = "integer-division", "fp64", "slow-function"
INT64, REPEATED, REDUCTION = "int64-arithmetic", "repeated-work", "reduction-in-loop"
_PRECISE = names_of(tt.PreciseDivF, tt.PreciseSqrt, arith.RemF)
_LOCAL = ("local-load", "local-store")


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The instructions of one launch, with the facts of their ops.

    Attributes:
        table: the instructions.
        executions: the executions of ops.
        runs: the number of runs of each instruction.
        repeated: the ops that compute the same again.
        accumulated: reductions whose result is only added up in a loop, with its rounds.
    """

    table: LineTable
    executions: Executions
    runs: InstructionRuns
    repeated: RepeatedWork
    accumulated: Mapping[int, float]

    def lines(self, warps: int) -> tuple[LineCode, ...]:
        """Instructions of warps by line, in the whole launch."""
        by_pipe: dict[Frame, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        by_cause: dict[tuple[Frame, str], dict[str, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        ops: dict[tuple[Frame, str], set[int]] = defaultdict(set)
        static: dict[tuple[Frame, str], float] = defaultdict(float)
        for instruction, count in self._counted(warps):
            frame = instruction.frames[-1]
            by_pipe[frame]["issue"] += count
            by_pipe[frame][instruction.pipe] += count
            for cause, share in self._causes(instruction).items():
                by_cause[frame, cause]["issue"] += count * share
                by_cause[frame, cause][instruction.pipe] += count * share
                static[frame, cause] += 1 / self.runs.copies(instruction.op_id)
                if instruction.op_id is not None:
                    ops[frame, cause].add(instruction.op_id)
        per_element: dict[Frame, dict[str, float]] = defaultdict(dict)
        for (frame, cause), number in static.items():
            held = sum(_held(self.executions.gpu_op(op_id)) for op_id in ops[frame, cause])
            per_element[frame][cause] = number / max(1, held)
        causes: dict[Frame, dict[str, Mapping[str, float]]] = defaultdict(dict)
        for (frame, cause), pipes in by_cause.items():
            causes[frame][cause] = dict(pipes)
        return tuple(
            LineCode(frame, dict(pipes), causes[frame], per_element[frame])
            for frame, pipes in by_pipe.items()
        )

    def local_accesses(self, warps: int) -> Mapping[Frame, float]:
        """Accesses to local memory by line, in instructions of warps."""
        found: dict[Frame, float] = defaultdict(float)
        for instruction, count in self._counted(warps):
            if instruction.kind in _LOCAL:
                found[instruction.frames[-1]] += count
        return dict(found)

    def fullest(self) -> Frame | None:
        """Return the line where most registers are in use, or None if unknown."""
        known = [i for i in self.table.instructions if i.mapped and i.live_registers]
        most = max(known, key=lambda i: i.live_registers or 0, default=None)
        return None if most is None else most.frames[-1]

    def waits(self, accesses: tuple[AccessFacts, ...], machine: Machine) -> tuple[WaitFacts, ...]:
        """Return the waits of a warp, by op."""
        # What masks leave nothing of is not asked for.
        latency = {a.op_id: a.reached * latency_s(a, machine) * machine.clock_hz for a in accesses}
        usual = machine.l2_latency_s * machine.clock_hz

        def memory_cycles(instruction: Instruction) -> float:
            return latency.get(self._tile_id(instruction) or -1, usual)

        found: dict[tuple[Cause, Frame, int | None], float] = defaultdict(float)
        removed: dict[tuple[Cause, Frame, int | None], dict[str, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        for wait in waits(self.table.instructions, self.runs.way, memory_cycles):
            made_by = self.table.instructions[wait.made_by]
            if not made_by.mapped:
                continue
            key = wait.cause, made_by.frames[-1], self._tile_id(made_by)
            found[key] += wait.cycles
            for cause, share in self._causes(made_by).items():
                removed[key][cause] += wait.cycles * share
        return tuple(
            WaitFacts(*key, cycles, {k: part / cycles for k, part in removed[key].items()})
            for key, cycles in found.items()
            if cycles
        )

    def _counted(self, warps: int) -> Iterator[tuple[Instruction, float]]:
        """Return the instructions that have a line, with the number of warps that execute each."""
        programs = self.executions.of_gpu(None)
        for at, instruction in enumerate(self.table.instructions):
            if instruction.mapped:
                yield instruction, self.runs.of(at) * programs * warps

    def _tile_op(self, instruction: Instruction) -> Operation | None:
        op_id = instruction.op_id
        return None if op_id is None else self.executions.tile_op(op_id)

    def _tile_id(self, instruction: Instruction) -> int | None:
        tile = self._tile_op(instruction)
        return None if tile is None else tile.id

    def _causes(self, instruction: Instruction) -> Mapping[str, float]:
        """Return the causes of an instruction, each with the share that its removal would save."""
        found: dict[str, float] = {}
        tile = self._tile_op(instruction)
        rounds = self.repeated.rounds(tile)
        if rounds > 1:
            found[REPEATED] = 1 - 1 / rounds
        if tile is not None and tile.id in self.accumulated and tt.Reduce.matches(tile):
            found[REDUCTION] = 1 - 1 / max(1.0, self.accumulated[tile.id])
        op = self.executions.gpu_op(instruction.op_id) if instruction.op_id is not None else None
        slow = FP64 if instruction.pipe == "fp64" else "" if op is None else _slow(op)
        return {**found, slow: 1.0} if slow else found


def _held(op: Operation | None) -> int:
    """Return the number of elements of an op that a thread computes."""
    layout = encoding_of(op.results[0].type) if op is not None and op.results else None
    return 1 if layout is None else layout.in_size(REGISTER)


def _slow(op: Operation) -> str:
    """Return the slow kind of an op; "" for none."""
    if arith.IntegerDivision.matches(op):
        return INTEGER_DIVISION
    if _is_double(op):
        return FP64
    if _is_function(op):
        return SLOW_FUNCTION
    return INT64 if _is_wide_index(op) else ""


def _is_double(op: Operation) -> bool:
    values = (*op.results, *op.operands)
    kinds = [element_of(value.type) for value in values]
    arithmetic = op.name.startswith(("arith.", "math."))
    return arithmetic and any(isinstance(k, ScalarType) and k.name == "f64" for k in kinds)


def _is_function(op: Operation) -> bool:
    return tt.ExternElementwise.matches(op) or op.name.startswith("math.") or op.name in _PRECISE


def _is_wide_index(op: Operation) -> bool:
    """Whether it computes a tile of 64-bit integers."""
    return op.name.startswith("arith.") and any(
        isinstance(value.type, TensorType) and str(element_of(value.type)) == "i64"
        for value in (*op.results, *op.operands)
    )
