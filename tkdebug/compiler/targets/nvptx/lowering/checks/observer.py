"""The observer of checked kernels: which ops get which check, and when.

Tests of tiles are made together before the first access of a kernel. A test at each access waits
for the branch condition of the access before it, in code that is spread over the handling of bad
elements; launches of few microseconds feel both. In a straight line of accesses one predicate says
whether all of their tiles lie inside, and each access uses it. There is one predicate for tiles
whose place depends on the program, and one for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tkdebug.compiler.analysis.data_flow import backward
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, forwarded_operands
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, TensorType, element_of
from tkdebug.compiler.sites.live_memory import MARKS
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, Phi, integer
from tkdebug.compiler.targets.nvptx.lowering.checks.access import (
    TestedAccess,
    either_way,
    tested_access,
    tile_of,
)
from tkdebug.compiler.targets.nvptx.lowering.checks.corners import (
    CarriedReach,
    carried_offsets,
    reach_before,
    step_bytes,
)
from tkdebug.compiler.targets.nvptx.lowering.checks.guarded_access import (
    guarded_copy,
    guarded_load,
    guarded_store,
)
from tkdebug.compiler.targets.nvptx.lowering.checks.kernel_checks import KernelChecks
from tkdebug.compiler.targets.nvptx.lowering.checks.reports import report_elements
from tkdebug.compiler.targets.nvptx.lowering.checks.symptoms import symptoms_of
from tkdebug.compiler.targets.nvptx.lowering.checks.tile_tests import tiles_are_inside
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.observers import LoweringObserver
from tkdebug.compiler.targets.nvptx.lowering.types import Good, Modifiers, Registers, Vector

# Ops that place tiles: cheap, and with one result wherever they are computed.
_PLACING = names_of(
    tt.GetProgramId,
    tt.GetNumPrograms,
    tt.AddPtr,
    arith.Constant,
    arith.ExtSI,
    arith.AddI,
    arith.SubI,
    arith.MulI,
)

_POINTER_TILES = names_of(tt.Splat, tt.AddPtr)
_MOST_REGISTERS = 16

# Ops whose results differ between programs.
_BY_PROGRAM = names_of(tt.GetProgramId, tt.Load, tt.Atomic)


class CheckObserver(LoweringObserver):
    """Writes the checks of one kernel.

    Args:
        ctx: the kernel on its way to LLVM IR.
        parameters: the table, its copy for the host, then the bounds of each tensor.
    """

    def __init__(self, ctx: Lowering, parameters: Registers) -> None:
        self._ctx = ctx
        self._function = tt.Func(ctx.module.function)
        self._checks = KernelChecks(self._function.op, ctx, parameters)
        self._symptoms = symptoms_of(self._function.op, self._checks)
        self._loops: dict[Operation, _CarriedTiles] = {}
        ops = self._function.body.operations[:-1]
        tested = (at for at, op in enumerate(ops) if self._checks.tested(op) is not None)
        # From the first tested access on, the ops before the first loop or branch.
        self._line = _straight_line(ops[next(tested, len(ops)) :])

    def before(self, op: Operation) -> None:
        """Test the tiles of a straight line of accesses before the first of them."""
        if self._line and op is self._line[0]:
            # The result of a test before a loop stays in a register while it runs.
            line, self._line = self._line, ()
            for one in line:
                if _is_placing(self._ctx, one):
                    self._ctx.lower_early(one)
            _test_together(self._checks, line)

    def after(self, op: Operation) -> None:
        """Write the checks of an op's results: marks, loaded pointers, symptoms."""
        if tt.Load.matches(op):
            self._look_at_loaded(tt.Load(op))
        self._checks.pointers.look_at(op)
        if self._symptoms is not None:
            self._symptoms.look_at(op)

    def _look_at_loaded(self, load: tt.Load) -> None:
        """Report loaded elements from unwritten memory, which holds a mark.

        Elements that are masked off hold no mark: they are `other` or 0.
        """
        site = self._checks.value_site_of(load.op)
        if site is None:
            return
        ctx, element = self._ctx, element_of(load.op.result.type)
        assert isinstance(element, ScalarType)
        bits = [ctx.to_bits(value) for value in ctx.values[load.op.result]]
        marks = [ctx.emit.icmp("eq", one, integer(one.type, MARKS[element.name])) for one in bits]
        at = ctx.values[load.pointer]
        report_elements(self._checks, load.op, load.pointer, marks, site=site, at=at)

    def guard(
        self, op: Operation, pointers: Registers, mask: Registers | None, group: int
    ) -> _Guard | None:
        """Return the test of an access, or None if it is not tested."""
        access = tested_access(self._checks, op, pointers, mask, group)
        return None if access is None else _Guard(access)

    def fails(self, op: Operation, condition: Value, failures: Registers) -> bool:
        """Report failures of an op that is a site; return whether it is one."""
        return report_elements(self._checks, op, condition, failures)

    def loop_begins(self, loop: Operation) -> None:
        """Find the tiles that an `scf.for` carries."""
        if scf.For.matches(loop):
            self._loops[loop] = _CarriedTiles(self._checks, loop)

    def loop_head(self, loop: Operation, before: str) -> None:
        """Emit the phis of the tiles' least offsets."""
        if loop in self._loops:
            self._loops[loop].begin(before)

    def loop_round_ends(self, loop: Operation) -> None:
        """Count the iteration, and move the tiles that the loop carries."""
        self._checks.tick(loop)
        if loop in self._loops:
            self._loops.pop(loop).end()

    def body_ends(self) -> None:
        """Declare local memory of the checks, and note how the sites are tested."""
        self._checks.finish()
        self._function.check_tests = self._checks.tests

    def ends(self) -> None:
        """Report symptoms."""
        if self._symptoms is not None:
            self._symptoms.finish()


@dataclass(frozen=True, slots=True)
class _Guard:
    """The test of one access (an `AccessGuard`)."""

    access: TestedAccess

    @property
    def is_short(self) -> bool:
        return self.access.is_short

    def either_way(
        self, usual: Callable[[], Registers], narrowed: Callable[[Good], Registers]
    ) -> Registers:
        return either_way(self.access, usual, narrowed)

    def load(self, modifiers: Modifiers, vector: Vector, fills: Sequence[Registers]) -> Registers:
        return guarded_load(self.access, modifiers, vector, fills)

    def store(
        self,
        modifiers: Modifiers,
        vector: Vector,
        packed: Sequence[Registers],
        owner: LLVMValue | None,
    ) -> None:
        guarded_store(self.access, modifiers, vector, packed, owner)

    def copy(
        self,
        instruction: str,
        addresses: Sequence[LLVMValue],
        size_bytes: int,
        owner: LLVMValue | None,
    ) -> None:
        guarded_copy(self.access, instruction, addresses, size_bytes, owner)


class _CarriedTiles:
    """The tiles that one `scf.for` carries, as two scalars each: the least offset, and their span.

    They are written along with the loop: the start before it, a phi at its head, a sum at its end.

    Args:
        checks: the checks of the kernel, before the loop.
        loop: the loop.
    """

    def __init__(self, checks: KernelChecks, loop: Operation) -> None:
        self._checks = checks
        self._arguments = loop.regions[0].block.arguments[1:]
        self._starts: dict[int, CarriedReach] = {}
        self._steps = dict(carried_offsets(loop))
        self._lows: dict[int, Phi] = {}
        for index in self._steps:
            start = reach_before(checks.ctx, checks.carried, forwarded_operands(loop)[index])
            if start is not None:
                self._starts[index] = start

    def begin(self, before: str) -> None:
        """Emit the phis at the loop's head, which control enters from block `before`."""
        for index, start in self._starts.items():
            phi = self._lows[index] = self._checks.ctx.emit.phi("i64")
            phi.add_incoming(start.low, before)
            self._checks.carried[self._arguments[index]] = replace(start, low=phi.value)

    def end(self) -> None:
        """Complete the phis at the end of the loop's body."""
        ctx = self._checks.ctx
        for index, phi in self._lows.items():
            low: LLVMValue = phi.value
            for step in self._steps[index]:
                low = ctx.emit.add(low, step_bytes(ctx, self._arguments[index], step))
            phi.add_incoming(low, ctx.emit.block)


def _straight_line(ops: Sequence[Operation]) -> Sequence[Operation]:
    """The ops before the first loop or branch."""
    end = next((place for place, op in enumerate(ops) if op.name in CONTROL_FLOW), len(ops))
    return ops[:end]


def _is_placing(ctx: Lowering, op: Operation) -> bool:
    """Whether an op is to be lowered before the first access; its operands have to be lowered.

    A tile's addresses are, too, unless they take many registers: after the branch of an access,
    ptxas would load the kernel's pointer there, and the access would wait for it.
    """
    if not all(operand in ctx.values for operand in op.operands):
        return False
    if op.name in _POINTER_TILES and isinstance(op.result.type, TensorType):
        return ctx.register_count(op.result) <= _MOST_REGISTERS
    return op.name in _PLACING and not isinstance(op.result.type, TensorType)


def _test_together(checks: KernelChecks, line: Sequence[Operation]) -> None:
    """Test the tiles of accesses whose places are known here, similar ones together.

    Tiles that are the same in all programs are a group of their own. One example is a weight with
    fewer elements than the block: no program has all of its tile inside.
    """
    sites = ((op, checks.tested(op)) for op in line)
    # Where a loaded pointer leads is known only once it is loaded.
    tiles = [tile_of(checks, op, site) for op, site in sites if site is not None and site.tensor]
    for moves in (True, False):
        group = [tile for tile in tiles if _is_moved(tile.pointer) == moves]
        if len(group) > 1:
            tested, inside = tiles_are_inside(checks, group)
            if inside is not None:
                checks.tested_early |= dict.fromkeys(tested, inside)


def _is_moved(pointer: Value) -> bool:
    """Whether a tile's place depends on the program."""
    made = (value.defining_op for value in backward([pointer], _operands))
    return any(op is not None and op.name in _BY_PROGRAM for op in made)


def _operands(value: Value) -> Sequence[Value]:
    return () if value.defining_op is None else value.defining_op.operands
