"""`InsertBarriers`: a `gpu.barrier` where a hazard between warps asks for one, and nowhere else.

A hazard is a read after a write, a write after a read or a write after a write of overlapping
bytes with no barrier in between on some path, loops included. The barrier goes right before the
later of the two. An op with scratch memory writes it, has a barrier of its own, and reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.aliasing import BufferAliases, Region, buffer_aliases
from tkdebug.compiler.analysis.shared_hazards import (
    BARRIERS,
    Accesses,
    HazardState,
    accesses,
    scratch_region,
)
from tkdebug.compiler.ir.core import Block, Module, Operation
from tkdebug.compiler.ir.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class InsertBarriers:
    """Puts barriers between conflicting accesses to shared memory."""

    name: ClassVar[str] = "insert-barriers"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Find the ops that need a barrier before them, then insert."""
        for op in barriers_needed(module.function):
            barrier = rewriter.build_before(op, "gpu.barrier", (), (), location=op.location)
            rewriter.record_change(barrier, "hazard")


def barriers_needed(function: Operation) -> list[Operation]:
    """The ops of a `tt.func` before which all warps must wait for each other, in program order."""
    aliases = buffer_aliases(function)
    body = function.regions[0].block
    search = _Search(aliases, ())
    search.block(body, HazardState())
    needed = search.needed
    # A barrier found early may be made superfluous by one that later iterations asked for.
    for op in list(needed):
        if len(needed) > 1:
            others = [other for other in needed if other is not op]
            without = _Search(aliases, others)
            without.block(body, HazardState())
            if len(without.needed) == len(others):
                del needed[op]
    return [op for op in function.walk() if op in needed]


class _Search:
    """Walks a function under the barriers found so far.

    Attributes:
        needed: the ops with a barrier before them, in the order in which they were found.
    """

    def __init__(self, aliases: BufferAliases, known: Sequence[Operation]) -> None:
        self.aliases = aliases
        self.needed: dict[Operation, None] = dict.fromkeys(known)

    def block(self, block: Block, state: HazardState) -> HazardState:
        """The state after a block that is entered in `state`."""
        for op in block.operations:
            state = self.operation(op, state)
        return state

    def operation(self, op: Operation, state: HazardState) -> HazardState:
        match op.name:
            case "scf.if":
                states = [self.block(region.block, state) for region in op.regions]
                return states[0].join(states[1])
            case "scf.for":
                body = op.regions[0].block
                entered = self._fixed_point(op, state, lambda s: self.block(body, s))
                # The loop may run no iteration.
                return entered.outside(op)
            case "scf.while":
                before, after = (region.block for region in op.regions)
                entered = self._fixed_point(
                    op, state, lambda s: self.block(after, self.block(before, s))
                )
                return self.block(before, entered).outside(op)
        if op.name in BARRIERS:
            return state.synchronised()
        return self._access(op, state)

    def _fixed_point(
        self, loop: Operation, state: HazardState, body: Callable[[HazardState], HazardState]
    ) -> HazardState:
        """The state at the head of a loop, on the first and on every later iteration."""
        entered = state = state.inside(loop)
        while True:
            count = len(self.needed)
            left = body(entered).next_iteration(loop)
            if len(self.needed) > count:
                # What was taken to reach the head may not, with the new barrier.
                entered = state
                continue
            joined = entered.join(left)
            if joined == entered:
                return entered
            entered = joined

    def _access(self, op: Operation, state: HazardState) -> HazardState:
        done = accesses(op, self.aliases)
        scratch = self._scratch(op)
        first = done if scratch is None else Accesses(done.reads, done.writes | {scratch})
        if op in self.needed:
            state = state.synchronised()
        elif state.conflicts(first):
            self.needed[op] = None
            state = state.synchronised()
        if scratch is not None:
            return HazardState(
                frozenset([scratch]), frozenset(), state.started, state.copies, state.dots
            )
        return state.after(op, done)

    def _scratch(self, op: Operation) -> Region | None:
        if "scratch_offset" not in op.attributes:
            return None
        from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes

        return scratch_region(op, scratch_bytes(op))
