"""What values would be in fp64, computed beside the kernel's own where those are not finite.

This tells an Inf that is what the kernel computes, as exp(100) in fp32 or 1 / 0, from one that is
owed to the order of its ops or to a narrow type, as log(1 + exp(100)).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import FloatOp, Moving
from tkdebug.compiler.dialects.libdevice import FUNCTIONS
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import forwarded
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.shadow_flow import computable
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.libdevice import MEANINGS
from tkdebug.interpreter.tile_ops.reductions import combiner_of
from tkdebug.interpreter.tiles.values import TileValue

# Their rules compute in the type of the tensors that they are given.
_OF_ANY_TYPE = names_of(FloatOp, Moving, arith.Select)
_COMBINERS = ("add", "mul", "maxnum", "minnum", "maximum", "minimum")


class WideValues:
    """The values of one batch that an observer follows, in fp64.

    What is not known here counts as what the kernel computed.
    """

    def __init__(self, ev: Evaluator) -> None:
        self._ev = ev
        self._values: dict[Value, Tensor] = {}

    def of(self, value: Value, tile: TileValue | None = None) -> Tensor:
        """A value of floats, (P or 1, then the tile's axes, extent 1 for all positions).

        Args:
            value: which.
            tile: what the kernel has for it; None for what it has now.
        """
        known = self._values.get(value)
        if known is not None:
            return known
        tile = self._ev.values[value] if tile is None else tile
        return computable(self._ev.dense(tile, value.type)).double()

    def drop(self, values: Sequence[Value]) -> None:
        """These are what the kernel has."""
        for value in values if self._values else ():
            self._values.pop(value, None)

    def replace(self, value: Value, where: Tensor, number: float) -> None:
        """Take `number` for the elements of a value that are in `where`."""
        known = self._values.get(value)
        if known is not None:
            self._values[value] = torch.where(where, number, known)

    def follow(self, op: Operation, operands: Sequence[TileValue]) -> None:
        """`op` has run, and what it gave is followed."""
        results = self._results(op, operands)
        if results is None:
            self.drop(op.results)
        else:
            self._values |= zip(op.results, results, strict=True)

    def forward(self, op: Operation, *, is_entered: bool) -> None:
        """Control goes on from `op`, which is control flow that is entered, or ends a region."""
        given: dict[Value, Tensor | None] = {}
        for source, target in forwarded(op) if self._values else ():
            if is_entered or self._ev.active is None:
                given[target] = self._values.get(source)
            elif source in self._values or target in self._values:
                given[target] = self._blended(source, target, self._ev.active)
        for target, wide in given.items():
            if wide is None:
                self._values.pop(target, None)
            else:
                self._values[target] = wide

    def _blended(self, source: Value, target: Value, active: Tensor) -> Tensor:
        """What is forwarded by the active programs, and what the others had."""
        new = self.of(source)
        is_known = target in self._values or target in self._ev.values
        old = self.of(target) if is_known else torch.full_like(new[:1], nan)
        return torch.where(active.reshape(-1, *(1,) * (new.dim() - 1)), new, old)

    def _results(self, op: Operation, operands: Sequence[TileValue]) -> Sequence[Tensor] | None:
        if arith.FloatCast.matches(op):
            (source,) = op.operands
            return [self.of(source, *operands)]
        dot = tt.Dot.cast(op)
        if dot is not None:
            a, b, total = map(self._full, (dot.a, dot.b, dot.accumulator), operands)
            return [a @ b + total]
        if tt.ExternElementwise.matches(op):
            view = tt.ExternElementwise(op)
            if view.function not in MEANINGS or not FUNCTIONS[view.function].is_real:
                return None
            given = map(self.of, op.operands, operands)
            return [MEANINGS[view.function](torch, view.unsigned, *given)]
        if not (op.name in _OF_ANY_TYPE or _is_combination(op)):
            return None
        results = self._ev.plan.run_alone(self._ev, op, self._given(op, operands))
        types = [value.type for value in op.results]
        return [self._ev.dense(x, type_) for x, type_ in zip(results, types, strict=True)]

    def _full(self, value: Value, tile: TileValue) -> Tensor:
        wide = self.of(value, tile)
        return wide.expand(wide.shape[0], *ir.shape_of(value.type))

    def _given(self, op: Operation, operands: Sequence[TileValue]) -> list[TileValue]:
        """Operands of an op; floats in fp64."""
        return [
            self.of(value, tile) if self._ev.dtype_of(value.type).is_floating_point else tile
            for value, tile in zip(op.operands, operands, strict=True)
        ]


def _is_combination(op: Operation) -> bool:
    """Whether a reduction or a scan combines in a way that is known."""
    if len(op.operands) != 1:
        return False
    if tt.Scan.matches(op):
        return combiner_of(tt.Scan(op)) in ("add", "mul")
    return tt.Reduce.matches(op) and combiner_of(tt.Reduce(op)) in _COMBINERS
