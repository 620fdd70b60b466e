"""The offsets that a checked loop carries, as two scalars each: the least one, and their span.

Written while the loop is: the start before it, a phi at its head, a sum at its end.
"""

from __future__ import annotations

from dataclasses import replace

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.control_flow import forwarded_operands
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, Phi
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.probes.corners import reach_before
from tkdebug.compiler.targets.nvptx.lowering.probes.reaches import (
    CarriedReach,
    carried_offsets,
    step_bytes,
)


class CarriedReaches:
    """Those of one `scf.for`; nothing in a kernel without probes.

    Args:
        ctx: the kernel, before the loop.
        loop: the loop.
    """

    def __init__(self, ctx: Lowering, loop: Operation) -> None:
        self._ctx = ctx
        self._loop = loop
        self._starts: dict[int, CarriedReach] = {}
        self._steps = {} if ctx.probes is None else dict(carried_offsets(loop))
        self._lows: dict[int, Phi] = {}
        for index in self._steps:
            start = reach_before(ctx, forwarded_operands(loop)[index])
            if start is not None:
                self._starts[index] = start

    def begin(self, before: str) -> None:
        """At the loop's head, which control enters from block `before`."""
        if not self._starts:
            return
        ctx = self._ctx
        assert ctx.probes is not None
        arguments = self._loop.regions[0].block.arguments[1:]
        for index, start in self._starts.items():
            phi = self._lows[index] = ctx.emit.phi("i64")
            phi.add_incoming(start.low, before)
            ctx.probes.carried[arguments[index]] = replace(start, low=phi.value)

    def end(self) -> None:
        """At the end of the loop's body."""
        emit = self._ctx.emit
        arguments = self._loop.regions[0].block.arguments[1:]
        for index, phi in self._lows.items():
            low: LLVMValue = phi.value
            for step in self._steps[index]:
                low = emit.add(low, step_bytes(self._ctx, arguments[index], step))
            phi.add_incoming(low, emit.block)
