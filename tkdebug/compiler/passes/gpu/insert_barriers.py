"""`InsertBarriers`: a `gpu.barrier` where a hazard between warps asks for one, and nowhere else.

A hazard is a read after a write, a write after a read or a write after a write of overlapping
bytes with no barrier in between on some path, loops included. The barrier goes right before the
later of the two. An op with scratch memory writes it, has a barrier of its own, and reads it.
The bytes are those of shared memory, and of global memory where `analysis/global_memory.py` says
so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tkdebug.compiler.analysis.aliasing import BufferAliases, Region, buffer_aliases
from tkdebug.compiler.analysis.global_memory import Tile, contended_tiles
from tkdebug.compiler.analysis.shared_hazards import (
    QUEUE_OPS,
    Accesses,
    HazardState,
    ScratchBytes,
    accesses,
    scratch_region,
)
from tkdebug.compiler.dialects import gpu, scf
from tkdebug.compiler.dialects.interfaces import ProgramBarrier
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.core import Block, Module, Operation
from tkdebug.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class InsertBarriers:
    """Puts barriers between conflicting accesses to shared and to global memory.

    Attributes:
        scratch_bytes: gives the shared memory that the lowering of an op needs for itself.
    """

    scratch_bytes: ScratchBytes
    name: ClassVar[str] = "insert-barriers"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Find the ops that need a barrier before them, then insert."""
        for op in barriers_needed(module.function, self.scratch_bytes):
            barrier = rewriter.build_before(op, gpu.Barrier, (), (), location=op.location)
            rewriter.record_change(barrier, "hazard")


def barriers_needed(function: Operation, scratch_bytes: ScratchBytes) -> list[Operation]:
    """The ops of a `tt.func` before which all warps must wait for each other, in program order."""
    plan = _Plan(buffer_aliases(function), contended_tiles(function), scratch_bytes)
    body = function.regions[0].block
    search = _Search(plan, ())
    search.block(body, HazardState())
    needed = search.needed
    # A barrier found early may be made superfluous by one that later iterations asked for.
    for op in list(needed):
        if len(needed) > 1:
            others = [other for other in needed if other is not op]
            without = _Search(plan, others)
            without.block(body, HazardState())
            if len(without.needed) == len(others):
                del needed[op]
    return [op for op in function.walk() if op in needed]


@dataclass(frozen=True, slots=True)
class _Step:
    """An op that hazards depend on: by its accesses, barriers or waits, or by the ops inside it.

    Attributes:
        done: the op's accesses.
        scratch: the op's scratch memory.
    """

    op: Operation
    done: Accesses
    scratch: Region | None

    @property
    def first(self) -> Accesses:
        """The accesses of the op before the barrier that an op with scratch memory has."""
        if self.scratch is None:
            return self.done
        return Accesses(self.done.reads, self.done.writes | {self.scratch})


class _Plan:
    """The steps of every block."""

    def __init__(
        self,
        aliases: BufferAliases,
        tiles: Mapping[Operation, Tile],
        scratch_bytes: ScratchBytes,
    ) -> None:
        self.aliases = aliases
        self.tiles = tiles
        self.scratch_bytes = scratch_bytes
        self._steps: dict[Block, list[_Step]] = {}

    def steps(self, block: Block) -> list[_Step]:
        """The steps of `block`: those of its ops that hazards depend on."""
        steps = self._steps.get(block)
        if steps is None:
            found = (self._step(op) for op in block.operations)
            steps = self._steps[block] = [step for step in found if step is not None]
        return steps

    def _step(self, op: Operation) -> _Step | None:
        if op.name in CONTROL_FLOW:
            matters = any(self.steps(region.block) for region in op.regions)
            return _Step(op, Accesses(), None) if matters else None
        done, scratch = self._accesses(op), self._scratch(op)
        if ProgramBarrier.matches(op) or op.name in QUEUE_OPS or scratch or done != Accesses():
            return _Step(op, done, scratch)
        return None

    def _accesses(self, op: Operation) -> Accesses:
        done, tile = accesses(op, self.aliases), self.tiles.get(op)
        if tile is None:
            return done
        if tile.kind == "load":
            return replace(done, reads=done.reads | {tile})
        return replace(done, writes=done.writes | {tile})

    def _scratch(self, op: Operation) -> Region | None:
        if "scratch_offset" not in op.attributes:
            return None
        return scratch_region(op, self.scratch_bytes(op))


class _Search:
    """Walks a function with the barriers found so far, and adds those that are missing.

    Attributes:
        needed: the ops that need a barrier before them, in the order in which they were found.
    """

    def __init__(self, plan: _Plan, known: Sequence[Operation]) -> None:
        self.plan = plan
        self.needed: dict[Operation, None] = dict.fromkeys(known)

    def block(self, block: Block, state: HazardState) -> HazardState:
        """The state after a block that is entered in `state`."""
        for step in self.plan.steps(block):
            if step.op.name in CONTROL_FLOW:
                state = self._control(step.op, state)
            elif ProgramBarrier.matches(step.op):
                state = state.synchronised()
            else:
                state = self._access(step, state)
        return state

    def _control(self, op: Operation, state: HazardState) -> HazardState:
        blocks = [region.block for region in op.regions]
        if scf.If.matches(op):
            states = [self.block(block, state) for block in blocks]
            return states[0].join(states[1])
        if scf.For.matches(op):
            # The loop may run no iteration: the state at its head holds after it, too.
            return self._at_head(op, state, lambda s: self.block(blocks[0], s)).outside(op)
        before, after = blocks
        head = self._at_head(op, state, lambda s: self.block(after, self.block(before, s)))
        return self.block(before, head).outside(op)

    def _at_head(
        self, loop: Operation, state: HazardState, body: Callable[[HazardState], HazardState]
    ) -> HazardState:
        """The state at the head of a loop, on the first and on every later iteration."""
        entered = state = state.inside(loop)
        while True:
            count = len(self.needed)
            left = body(entered).next_iteration(loop)
            if len(self.needed) > count:
                # With the new barrier, fewer accesses may reach the head.
                entered = state
                continue
            joined = entered.join(left)
            if joined == entered:
                return entered
            entered = joined

    def _access(self, step: _Step, state: HazardState) -> HazardState:
        if step.op in self.needed:
            state = state.synchronised()
        elif state.conflicts(step.first):
            self.needed[step.op] = None
            state = state.synchronised()
        if step.scratch is not None:
            state = replace(state.synchronised(), reads=frozenset([step.scratch]))
        return state.after(step.op, step.done)
