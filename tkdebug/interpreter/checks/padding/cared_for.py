"""Padding that a kernel has done away with: by a `tl.where`, a factor 0, or an addend -inf.

Such an element is none of padding any more. In a row that is padding as a whole, such as that of a
query past the end, it is no data either: what is left of the row is padding among itself, and a
reduction of it takes nothing into any data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Moving
from tkdebug.compiler.ir import Operation, Value
from tkdebug.interpreter.checks.padding.facts import Axes
from tkdebug.interpreter.checks.padding.flow import DOES_AWAY, combined
from tkdebug.interpreter.checks.shadow_flow import (
    Shadows,
    is_elementwise,
    moved_shadows,
    selected_shadows,
    united,
)
from tkdebug.interpreter.numerics.bool_scan import all_along, any_along, any_true
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


class CaredFor:
    """These elements of the values of one batch, within one round of a loop."""

    def __init__(self, ev: Evaluator) -> None:
        self._ev = ev
        self._of: dict[Value, Tensor] = {}
        # The shadow that was last reduced along an axis, and the result of that.
        self._last: tuple[Tensor, int, tuple[Tensor, Tensor, Tensor, bool]] | None = None

    def with_padding(self, value: Value, pad: Tensor | None) -> Tensor | None:
        """The padding of a value, and what was padding before it was cared for."""
        return united(pad, self._of.get(value)) if self._of else pad

    def whole(self, values: Sequence[Value], pads: Shadows) -> Shadows | None:
        """The padding of some values, with what was cared for; None where that is nothing."""
        if not self._of or self._of.keys().isdisjoint(values):
            return None
        return [self.with_padding(value, pad) for value, pad in zip(values, pads, strict=True)]

    def along(
        self, value: Value, pad: Tensor, axis: int, extent: int
    ) -> tuple[Tensor, Tensor, Tensor, bool]:
        """A value's padding along an axis: itself, where it is whole, where not, whether anywhere.

        A softmax reduces along the same shadows twice; an online one, once for each of two sums.
        """
        cared_for = self._of.get(value)
        known = self._last
        if cared_for is None and known is not None and known[0] is pad and known[1] == axis:
            return known[2]
        wide = pad
        if pad.shape[axis] != extent:
            wide = pad.expand(*pad.shape[:axis], extent, *pad.shape[axis + 1 :])
        if cared_for is None:
            whole = all_along(wide, axis, keepdim=True)
        else:
            whole = all_along(wide | cared_for, axis, True) & any_along(wide, axis, True)
        left_out = wide & ~whole
        found = wide, whole, left_out, any_true(left_out)
        self._last = None if cared_for is not None else (pad, axis, found)
        return found

    def forget(self, values: Iterable[Value]) -> None:
        """Values die."""
        for value in values if self._of else ():
            self._of.pop(value, None)

    def clear(self) -> None:
        """There is no padding."""
        self._of.clear()

    def note(
        self,
        op: Operation,
        operands: Sequence[TileValue],
        pads: Shadows,
        results: Shadows,
        data: Sequence[Axes],
    ) -> None:
        """Set those of the results of `op`, which is about to run.

        Args:
            op: no control flow.
            operands: its operands' values.
            pads: the padding of the operands.
            results: the padding of the results.
            data: axes along which the operands have data.
        """
        self.forget(op.results)
        is_known = bool(self._of) and any(value in self._of for value in op.operands)
        if not is_known and op.name not in DOES_AWAY:
            return
        whole = [self.with_padding(v, pad) for v, pad in zip(op.operands, pads, strict=True)]
        if all(shadow is None for shadow in whole):
            return
        found = self._through(op, operands, whole, data)
        for value, shadow, pad in zip(op.results, found, results, strict=True):
            if shadow is None or shadow is pad:
                continue
            rest = shadow if pad is None else shadow & ~pad
            if any_true(rest):
                self._of[value] = rest

    def _through(
        self,
        op: Operation,
        operands: Sequence[TileValue],
        shadows: Shadows,
        data: Sequence[Axes],
    ) -> Shadows:
        if Moving.matches(op):
            return moved_shadows(self._ev, op, shadows)
        if arith.Select.matches(op):
            return [self._selected(op, operands, shadows, data)]
        if tt.Reduce.matches(op):
            pad = shadows[0]
            assert pad is not None
            full = self._ev.full(pad, tt.Combining(op).sources[0].type)
            return [all_along(full, tt.Combining(op).axis + 1)] * len(op.results)
        if not is_elementwise(op) or tt.Scan.matches(op):
            return [None] * len(op.results)
        return [combined(shadows, data)] * len(op.results)

    def _selected(
        self,
        op: Operation,
        operands: Sequence[TileValue],
        shadows: Shadows,
        data: Sequence[Axes],
    ) -> Tensor | None:
        """What stands in for padding, such as the -inf of a `tl.where`, is cared for."""
        chooser, first, second = shadows
        if not data[1]:
            first = second
        elif not data[2]:
            second = first
        return selected_shadows(self._ev, op, operands, [chooser, first, second])
