"""Flow of padding through ops, elements that replace it where it is left out, and what ends it.

A shadow of padding is true in elements that are computed from masked-off loads alone. `tl.where`
with a mask ends it where it takes the other operand, and so does a factor 0 or an addend -inf that
depends on positions: the author has taken care of these elements.

Such an element is no padding any more. In a row that is padding as a whole, such as the row of a
query past the end, it is no data either: the rest of the row is padding, and a reduction of it
takes nothing into any data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Moving
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.checks.padding.combinations import neutral_of
from tkdebug.interpreter.checks.padding.facts import Axes
from tkdebug.interpreter.checks.shadow_values import (
    ANNIHILATED_BY_ZERO,
    Shadows,
    computable,
    is_elementwise,
    moved_shadows,
    selected_shadows,
    united,
)
from tkdebug.interpreter.memory.checked_access import mask_of
from tkdebug.interpreter.memory.descriptors import descriptor_access
from tkdebug.interpreter.numerics.scans import all_along, any_along, any_true
from tkdebug.interpreter.tiles.values import BoxTile, DescriptorTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

_ADDENDS = (arith.AddF.name, arith.SubF.name)
# Ops that padding may end at.
DOES_AWAY = frozenset((*ANNIHILATED_BY_ZERO, *_ADDENDS, arith.OrI.name, arith.Select.name))
# Scores are masked by adding -inf, or -1e4 where that overflows.
_DROWNING = 1e4


def padding_of_results(
    ev: Evaluator,
    op: Operation,
    operands: Sequence[TileValue],
    shadows: Shadows,
    data: Sequence[Axes],
    whole: Shadows | None = None,
) -> Sequence[Tensor | None]:
    """The results' shadows of an op that neither loads nor reduces.

    Args:
        ev: the evaluator that is about to run `op`.
        op: no control flow, no reduction.
        operands: its operands' values.
        shadows: the shadows of the operands, at least one of which is not None.
        data: axes along which the operands have data.
        whole: the shadows together with the elements that were cared for, which are no data; None
            if there are no such elements.
    """
    if Moving.matches(op):
        return moved_shadows(ev, op, shadows)
    if arith.Select.matches(op):
        return [selected_shadows(ev, op, operands, shadows)]
    if not is_elementwise(op):
        return [None] * len(op.results)
    shadow = combined(shadows, data, whole)
    if shadow is not None and len(op.operands) == 2:
        shadow = _without_neutralised(ev, op, operands, shadow, data)
    return [shadow] * len(op.results)


def combined(shadows: Shadows, data: Sequence[Axes], whole: Shadows | None = None) -> Tensor | None:
    """Return the result's padding: elements to which no operand contributes real data.

    Operands with data along the same axes have to be padding together; operands with data along
    different axes do not affect each other, as in an outer product; an operand whose axes are a
    proper subset of another's does not count. Elements that were cared for in one operand do not
    turn the padding of another into data.
    """
    if not any(data):
        total = None
        for shadow in shadows:
            total = united(total, shadow)
        return total
    groups: dict[Axes, list[tuple[Tensor | None, Tensor | None]]] = {}
    for shadow, axes, with_rest in zip(shadows, data, whole or shadows, strict=True):
        if axes and not any(axes < other for other in data):
            groups.setdefault(axes, []).append((shadow, with_rest))
    total = None
    for group in groups.values():
        known = [with_rest for _, with_rest in group if with_rest is not None]
        padding = None
        for shadow, _ in group:
            padding = united(padding, shadow)
        if len(known) == len(group) and padding is not None:
            common = known[0]
            for shadow in known[1:]:
                common = common & shadow
            total = united(total, common if whole is None else common & padding)
    return total


def _without_neutralised(
    ev: Evaluator,
    op: Operation,
    operands: Sequence[TileValue],
    shadow: Tensor,
    data: Sequence[Axes],
) -> Tensor:
    """Return `shadow` without elements that an operand without data neutralises."""
    does_away: Callable[[Tensor], Tensor]
    if op.name in ANNIHILATED_BY_ZERO or (arith.OrI.matches(op) and _is_bool(op)):
        absorbing = 1 if arith.OrI.matches(op) else 0

        def does_away(values: Tensor) -> Tensor:
            return values == absorbing

    elif op.name in _ADDENDS:

        def does_away(values: Tensor) -> Tensor:
            return values.abs() >= _DROWNING

    else:
        return shadow
    for value, tile, axes in zip(op.operands, operands, data, strict=True):
        if not axes:
            gone = does_away(computable(ev.dense(tile, value.type)))
            if any_true(gone):  # else a shadow of one row for all programs stays one
                shadow = shadow & ~gone
    return shadow


def _is_bool(op: Operation) -> bool:
    return ir.element_of(op.result.type).bits == 1


def padding_of_product(ev: Evaluator, op: Operation, shadows: Shadows) -> Tensor | None:
    """Return a matrix product's padding: its rows and columns that are padding as a whole."""
    dot = tt.Dot(op)
    total = None
    for shadow, value, dim in ((shadows[0], dot.a, -1), (shadows[1], dot.b, -2)):
        if shadow is not None:
            whole = ev.full(shadow, value.type)
            total = united(total, all_along(whole, dim, keepdim=True))
    return total


def mask_given(ev: Evaluator, op: Operation, operands: Sequence[TileValue]) -> TileValue:
    """Return the mask of a load that has one, or that its descriptor makes."""
    if tt.DescriptorLoad.matches(op):
        descriptor, *offsets = operands
        assert isinstance(descriptor, DescriptorTile)
        return descriptor_access(ev, descriptor, ir.shape_of(op.result.type), offsets)[1]
    mask = mask_of(op)
    return operands[next(at for at, value in enumerate(op.operands) if value is mask)]


def is_filled(tile: TileValue, shadow: Tensor, value: float) -> bool:
    """Whether shadowed elements are certainly `value`: a box's fill, and outside of the box."""
    if not isinstance(tile, BoxTile) or any_true(numbers(tile.fill) != value):
        return False
    for axis, (low, high) in enumerate(tile.box, 1):
        if shadow.dim() > axis and shadow.shape[axis] > 1:
            shadow = shadow.narrow(axis, low, high - low)
    return not any_true(shadow)


def is_neutral(
    ev: Evaluator, op: Operation, tile: TileValue, left_out: Tensor, combiner: str
) -> bool:
    """Whether the elements to leave out are all neutral to a reduction or scan."""
    axis = tt.Combining(op).axis + 1
    if isinstance(tile, BoxTile):
        if is_filled(tile, left_out, neutral_of(combiner, tile.fill.dtype)):
            return True
    values = ev.full(tile, tt.Combining(op).sources[0].type)
    neutral = neutral_of(combiner, values.dtype)
    if left_out.numel() == left_out.shape[axis]:
        places = left_out.reshape(-1).nonzero().reshape(-1)
        return not any_true(values.index_select(axis, places) != neutral)
    return not any_true(left_out & (values != neutral))


def numbers(values: Tensor) -> Tensor:
    """Return values that torch can compare: fp8 as fp32, others unchanged."""
    return values.float() if values.element_size() == 1 and values.is_floating_point() else values


class CaredFor:
    """Padding of one batch that the kernel made harmless (by `where`, * 0, - inf), by value."""

    def __init__(self, ev: Evaluator) -> None:
        self._ev = ev
        self._of: dict[Value, Tensor] = {}
        # The shadow that was last reduced along an axis, and the result of that.
        self._last: tuple[Tensor, int, tuple[Tensor, Tensor, Tensor, bool]] | None = None

    def with_padding(self, value: Value, pad: Tensor | None) -> Tensor | None:
        """Return a value's padding, together with what the kernel made harmless."""
        return united(pad, self._of.get(value)) if self._of else pad

    def whole(self, values: Sequence[Value], pads: Shadows) -> Shadows | None:
        """Return the values' padding, with what was made harmless; None if nothing was."""
        if not self._of or self._of.keys().isdisjoint(values):
            return None
        return [self.with_padding(value, pad) for value, pad in zip(values, pads, strict=True)]

    def along(
        self, value: Value, pad: Tensor, axis: int, extent: int
    ) -> tuple[Tensor, Tensor, Tensor, bool]:
        """Split a value's padding into lines along an axis that are all padding, and the rest.

        Returns:
            The padding; the lines that are padding from end to end; padding beside data; whether
            there is any beside data.

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
        """Forget values that die."""
        for value in values if self._of else ():
            self._of.pop(value, None)

    def clear(self) -> None:
        """Forget all padding that was made harmless."""
        self._of.clear()

    def note(
        self,
        op: Operation,
        operands: Sequence[TileValue],
        pads: Shadows,
        results: Shadows,
        data: Sequence[Axes],
    ) -> None:
        """Set the harmless padding of the results of `op`, which is about to run.

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
        """Find the elements that replace padding, such as the -inf of a `tl.where`."""
        chooser, first, second = shadows
        if not data[1]:
            first = second
        elif not data[2]:
            second = first
        return selected_shadows(self._ev, op, operands, [chooser, first, second])
