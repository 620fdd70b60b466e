"""Machine instructions of a launch: how often each line's run, on which pipe, and for what.

`InstructionRuns` is the path of a warp through machine code: its instructions in order, loops with
their iterations. LLVM and ptxas unroll loops, peel iterations off and leave loops for the
remainder; every copy of an instruction keeps its op. The number of copies follows from ops that
become one instruction a register: most ops do, so the most frequent ratio of an innermost loop's
ops is taken. Iterations are given to the loops with most copies first, as in the code.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tkdebug.advice.facts import AccessFacts, LineCode, WaitFacts
from tkdebug.advice.machines import Machine
from tkdebug.advice.model import latency_s
from tkdebug.compiler.dialects import arith, math, scf, tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, TensorType, element_of, encoding_of
from tkdebug.compiler.layouts import REGISTER
from tkdebug.errors import Frame
from tkdebug.linemap.code_flow import CodeLoop, Nest, indices_of, nest_of
from tkdebug.linemap.line_table import Instruction, LineTable
from tkdebug.linemap.warp_waits import Cause, Rounds, Step, Way, executed, waits
from tkdebug.runtime.advising.executions import Executions, loops_around
from tkdebug.runtime.advising.loops import RepeatedWork

# The reduction of large arguments is most of their code, and seldom runs.
_ORDINARY_SHARE = 0.35
_MOST_CALLS = 3
# Slow paths for numbers that the code in place does not handle: division of 64 bits for numbers of
# more than 32, and floating point for numbers that are as good as infinite or 0.
_SELDOM, _SELDOM_SHARE = re.compile(r"slowpath|(div|rem)_[su]64"), 0.05
# Share of a copy of a loop's body; a smaller share is code that was moved out of the loop.
_SOME = 0.5
# Causes of instructions for which a rule may know a shorter form.
INTEGER_DIVISION, FP64, SLOW_FUNCTION = "integer-division", "fp64", "slow-function"
INT64, REPEATED, REDUCTION = "int64-arithmetic", "repeated-work", "reduction-in-loop"
_PRECISE = names_of(tt.PreciseDivF, tt.PreciseSqrt, arith.RemF)
# Functions that no special-function unit computes and no shorter form replaces at their precision.
_ONE_FORM = frozenset(("erf", "erfc"))
_LOCAL = ("local-load", "local-store")


class InstructionRuns:
    """The path of an average warp through one kernel's code.

    Args:
        gpu: the module that was lowered.
        table: the kernel's instructions.
        executions: the executions of its ops.

    Attributes:
        way: the instructions that the warp executes.
    """

    def __init__(self, gpu: Module, table: LineTable, executions: Executions) -> None:
        self._code = table.instructions
        self._executions = executions
        self._factors = _unroll_factors(gpu, table)
        self._loops = [self._loop_of(i.op_id) for i in self._code]
        self._functions = {f.start: f for f in table.local_functions}
        self._address = {i.address: at for at, i in enumerate(self._code)}
        nest = nest_of(self._code)
        self._spread = _Spread(nest, self._loops, self._factors, self._rounds)
        self.way: Way = tuple(self._way(nest, None, 1.0, 0))

    def of(self, index: int) -> float:
        """Executions of an instruction by one warp."""
        return self._counts.get(index, 0.0)

    def copies(self, op_id: int | None) -> float:
        """Return how many copies of an op's instructions unrolling made."""
        loop = self._loop_of(op_id)
        return 1.0 if loop is None else self._factors.get(loop.id, 1.0)

    @cached_property
    def _counts(self) -> Mapping[int, float]:
        counts: dict[int, float] = defaultdict(float)
        for index, times in executed(self.way):
            counts[index] += times
        return counts

    def _loop_of(self, op_id: int | None) -> Operation | None:
        """Return the innermost loop that an op is in, or is, or None."""
        op = self._executions.gpu_op(op_id) if op_id is not None else None
        while op is not None and not scf.Loop.matches(op):
            op = op.block.parent_op if op.block is not None else None
        return op

    def _rounds(self, loop: Operation) -> float:
        """Trip count of a loop, on average."""
        return self._executions.of_gpu(loop.id) / max(1, self._executions.entered(loop))

    def _way(
        self, nest: Nest, around: Operation | None, share: float, calls: int
    ) -> Iterator[Step | Rounds]:
        for item in nest:
            if isinstance(item, CodeLoop):
                loop, times = self._spread.of(item)
                if loop is None or loop is around:
                    yield Rounds(1.0, tuple(self._way(item.body, around, share, calls)))
                elif times:
                    yield Rounds(times, tuple(self._way(item.body, loop, share, calls)))
                continue
            of_step = share * self._share(item, around)
            yield Step(item, of_step)
            callee = self._functions.get(self._code[item].target or -1)
            if callee is not None and calls < _MOST_CALLS:
                body = nest_of(self._code, self._address[callee.start])
                seldom = _SELDOM_SHARE if _SELDOM.search(callee.name) else 1.0
                yield from self._way(body, around, of_step * seldom, calls + 1)

    def _share(self, index: int, around: Operation | None) -> float:
        """Return how often an instruction runs each time that a warp reaches its place."""
        op_id = self._code[index].op_id
        if op_id is None:
            return 1.0
        loop, runs = self._loops[index], self._executions.of_gpu(op_id)
        rounds = self._executions.of_gpu(None if loop is None else loop.id)
        share = runs / rounds if rounds else 0.0
        if loop is not None and loop is not around:
            share *= self._spread.beside(index, loop)
        op = self._executions.gpu_op(op_id)
        function = math.FloatFunction.cast(op)
        is_reduced = function is not None and function.reduces_range
        return share * _ORDINARY_SHARE if is_reduced else share


class _Spread:
    """The iterations of GPU IR's loops, spread over the loops of the code and the code beside them.

    Args:
        nest: the kernel's code.
        loops: by instruction, the loop of GPU IR that contains it.
        factors: by a loop's id, the number of copies of its body.
        rounds: the iterations of a loop of GPU IR, each time it is entered.
    """

    def __init__(
        self,
        nest: Nest,
        loops: Sequence[Operation | None],
        factors: Mapping[int, float],
        rounds: Callable[[Operation], float],
    ) -> None:
        self._loops, self._factors, self._rounds = loops, factors, rounds
        self._found: dict[CodeLoop, tuple[Operation | None, float]] = {}
        self._left: dict[int, float] = {}
        self._inside: dict[int, set[int]] = defaultdict(set)
        self._total = Counter(loop.id for loop in loops if loop is not None)
        self._divide(nest, None)

    def of(self, loop: CodeLoop) -> tuple[Operation | None, float]:
        """Return the loop of GPU IR, or None, that a loop of the code is, and its iterations."""
        return self._found[loop]

    def beside(self, index: int, loop: Operation) -> float:
        """Return how often an instruction of a loop runs outside of the loop's copies in code."""
        left = self._left.get(loop.id)
        if left is None:  # unrolled as a whole
            return self._rounds(loop) / max(1.0, self._factors.get(loop.id, 1.0))
        copies = self._copies(loop.id, self._total[loop.id] - len(self._inside[loop.id]))
        return min(1.0, left / copies) if copies >= _SOME else 1.0

    def _copies(self, loop_id: int, instructions: int) -> float:
        """Return how many copies of a loop's body `instructions` of its instructions make up."""
        factor = self._factors.get(loop_id, 1.0)
        return factor * instructions / max(1, self._total[loop_id])

    def _divide(self, nest: Nest, around: Operation | None) -> None:
        inner = [item for item in nest if isinstance(item, CodeLoop)]
        alike: dict[int, list[tuple[float, CodeLoop, Operation]]] = {}
        for one in inner:
            loop = self._unrolled_around(one, self._loop_of(one), around)
            if loop is None or loop is around:
                self._found[one] = None, 1.0
                continue
            own = {at for at in indices_of(one.body) if self._loops[at] is loop}
            self._inside[loop.id] |= own
            copies = max(1.0, round(self._copies(loop.id, len(own))))
            alike.setdefault(loop.id, []).append((copies, one, loop))
        for found in alike.values():
            self._share_out(found, around)
        for one in inner:
            self._divide(one.body, self._found[one][0] or around)

    def _unrolled_around(
        self, one: CodeLoop, loop: Operation | None, around: Operation | None
    ) -> Operation | None:
        """Return the innermost loop that loop `one` of the code iterates, or None.

        Loops inside of it are unrolled: the code has all their iterations one after the other.
        """
        while loop is not None:
            own = sum(self._loops[at] is loop for at in indices_of(one.body))
            outer = loop.block.parent_op if loop.block is not None else None
            if outer is None or outer is around or not scf.Loop.matches(outer):
                return loop
            if self._rounds(loop) > self._copies(loop.id, own) + _SOME:
                return loop
            loop = outer
        return None

    def _share_out(
        self, found: list[tuple[float, CodeLoop, Operation]], around: Operation | None
    ) -> None:
        """Give the iterations of a loop to its loops in the code, most copies first."""
        found.sort(key=lambda item: -item[0])
        loop = found[0][2]
        # The loop around it was unrolled: each has all of the rounds.
        are_apart = around is not None and self._factors.get(around.id, 1.0) >= 2
        left = self._rounds(loop)
        for place, (copies, one, _) in enumerate(found):
            if are_apart:
                left = self._rounds(loop)
            is_last = are_apart or place == len(found) - 1
            rest = self._copies(loop.id, self._total[loop.id] - len(self._inside[loop.id]))
            whole = not is_last or rest >= _SOME
            times = float(int(left / copies)) if whole else left / copies
            self._found[one] = loop, times
            left -= times * copies
        self._left[loop.id] = max(0.0, left)

    def _loop_of(self, loop: CodeLoop) -> Operation | None:
        known = [found for at in loop.own() if (found := self._loops[at]) is not None]
        counted = Counter(found.id for found in known)
        if not counted:
            return None
        most = counted.most_common(1)[0][0]
        return next(found for found in known if found.id == most)


def _unroll_factors(gpu: Module, table: LineTable) -> dict[int, float]:
    """Return, by loop of GPU IR (its id), the number of copies of its body."""
    llvm = Counter(table.llvm_ops.values())
    ptx = Counter(table.ptx_ops.values())
    copies = Counter(i.ptx_line for i in table.instructions if i.ptx_line is not None)
    lines: dict[int, list[int]] = {}
    for line, op_id in table.ptx_ops.items():
        lines.setdefault(op_id, []).append(line)
    found = {}
    for loop in gpu.walk():
        if not scf.Loop.matches(loop):
            continue
        own = [op.id for region in loop.regions for op in _own(region.block.operations)]
        by_llvm = _mode(ptx[o] / llvm[o] for o in own if llvm[o] and ptx[o])
        by_ptxas = _mode(float(copies[line]) for o in own for line in lines.get(o, ()))
        found[loop.id] = by_llvm * by_ptxas
    return found


def _own(operations: Iterable[Operation]) -> Iterable[Operation]:
    """Yield the ops of a loop's body, with those in branches, and without those in inner loops."""
    for op in operations:
        yield op
        if scf.If.matches(op):
            for region in op.regions:
                yield from _own(region.block.operations)


def _mode(ratios: Iterable[float]) -> float:
    """The most frequent ratio of at least one; 1 if there is none."""
    counted = Counter(round(ratio) for ratio in ratios if ratio >= 0.9)
    if not counted:
        return 1.0
    most = max(counted.values())
    return float(min(ratio for ratio, count in counted.items() if count == most))


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
        # An access that a mask leaves nothing of waits for nothing.
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
        """Yield each instruction that has a line, with its executions by all of the warps."""
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
        return INTEGER_DIVISION if _is_repeated(op) else ""
    if _is_double(op):
        return FP64
    if _is_function(op):
        return SLOW_FUNCTION
    return INT64 if _is_wide_index(op) else ""


def _is_repeated(op: Operation) -> bool:
    """Whether an op is done more than once in a program: on a tile, or in a loop."""
    is_tile = any(isinstance(value.type, TensorType) for value in op.results)
    return is_tile or bool(loops_around(op))


def _is_double(op: Operation) -> bool:
    values = (*op.results, *op.operands)
    kinds = [element_of(value.type) for value in values]
    arithmetic = op.name.startswith(("arith.", "math."))
    return arithmetic and any(isinstance(k, ScalarType) and k.name == "f64" for k in kinds)


def _is_function(op: Operation) -> bool:
    """Whether it computes a function that may have a cheaper form."""
    extern = tt.ExternElementwise.cast(op)
    if math.Erf.matches(op) or (extern is not None and extern.function in _ONE_FORM):
        return False
    return extern is not None or op.name.startswith("math.") or op.name in _PRECISE


def _is_wide_index(op: Operation) -> bool:
    """Whether it computes a tile of 64-bit integers."""
    return op.name.startswith("arith.") and any(
        isinstance(value.type, TensorType) and str(element_of(value.type)) == "i64"
        for value in (*op.results, *op.operands)
    )
