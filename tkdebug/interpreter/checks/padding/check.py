"""Finds reductions whose result changes when masked-off elements are left out.

Elements that a load masks off are followed while they are padding. Where a reduction takes some in
that are not neutral, it is done again without them, and the values that follow from the other
result are computed beside the real values up to each store: only a difference there is a fault. So
the maximum of a softmax may be too large, and rows that are masked off at the store may hold
anything.

A mask or other data may make the elements part of the meaning (a halo, a dropout, a lookup); these
are no padding. Results that a kernel corrects afterwards, by a count of the elements, are left
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, forwarded
from tkdebug.interpreter.checks.padding.combinations import (
    combination,
    neutral_of,
)
from tkdebug.interpreter.checks.padding.facts import Axes, PaddingFacts, leaves
from tkdebug.interpreter.checks.padding.flow import (
    CaredFor,
    is_filled,
    is_neutral,
    mask_given,
    numbers,
    padding_of_product,
    padding_of_results,
)
from tkdebug.interpreter.checks.padding.worlds import Worlds
from tkdebug.interpreter.checks.shadow_values import (
    Origin,
    ShadowValues,
    stored_value,
    united,
    updated_by,
)
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.numerics.scans import all_along, any_along, any_true
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import TileValue


class PaddingTracker(ShadowValues[Origin]):
    """The padding of one batch of programs."""

    def __init__(self, ev: Evaluator, faults: FaultLog, facts: PaddingFacts) -> None:
        super().__init__(ev)
        self._facts = facts
        self._worlds = Worlds(ev, faults, facts)
        # Values that are computed from no data yet, such as what a loop begins its sum with.
        self._blank: set[Value] = set()
        self._cared_for = CaredFor(ev)
        # The padding of each operand of the op that is about to run, also where it is neutral.
        self._padding_of_op: dict[int, Tensor] = {}

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Follow the padding of `op`'s operands, before it runs."""
        if self._worlds.is_apart:
            return
        if op.name in CONTROL_FLOW or leaves(op):
            self._branch(op)
        elif op in self._facts.loads:
            self._load(op, operands)
            self._attend()
        else:
            self._follow(op, operands)  # where that was the last of it, `forget` says so

    def forget(self, run: Evaluator, values: Iterable[Value]) -> None:
        """Forget values that die; blocks set their arguments' padding again themselves."""
        values = tuple(values)
        self._cared_for.forget(values)
        for value in values:
            if value.defining_op is not None:
                self.shadows.pop(value, None)
                self._worlds.forget(value)
        self._attend()

    def _attend(self) -> None:
        is_attentive = bool(self.shadows) or self._worlds.are_followed
        if not is_attentive:
            self._blank.clear()  # what loops do unseen would not be noted
            self._cared_for.clear()
        self._ev.attend(self, is_attentive)

    def _branch(self, op: Operation) -> None:
        for source, target in forwarded(op):
            if self._is_blank(source):
                self._blank.add(target)
            else:
                self._blank.discard(target)
        self._worlds.forward(op)
        if op.name in CONTROL_FLOW:
            self.enter(op)
        else:
            self.leave(op)

    def _is_blank(self, value: Value) -> bool:
        return value in self._blank or not self._facts.data(value)

    def _data(self, value: Value) -> Axes:
        return frozenset() if value in self._blank else self._facts.data(value)

    # Padding

    def _load(self, op: Operation, operands: Sequence[TileValue]) -> None:
        ev = self._ev
        self._worlds.forget_results(op)
        mask = mask_given(self._ev, op, operands)
        pad: Tensor | None = None
        if not (isinstance(mask, int) and mask):
            type_ = ir.tile(ir.shape_of(op.result.type), ir.I1)
            pad = self.of_active(~ev.dense(mask, type_).bool())
        if pad is not None and any_true(pad):
            self.shadows[op.result] = {op: (Origin(op, pad, ()), pad)}
        else:
            self.shadows.pop(op.result, None)

    def _follow(self, op: Operation, operands: Sequence[TileValue]) -> None:
        if op in self._facts.stores:
            self._about_to_store(op)
            return
        if not op.results:
            return
        self._worlds.forget_counts(op)
        source = self._source(op.operands)
        each = [self._pad(value) for value in op.operands] if source is not None else []
        results: Sequence[Tensor | None] = [None] * len(op.results)
        cleaned: dict[int, Tensor] = {}
        self._padding_of_op = {}
        if source is not None:
            results, cleaned = self._padding(op, operands, each)
            data = [self._data(value) for value in op.operands]
            self._cared_for.note(op, operands, each, results, data)
        self._worlds.step(op, operands, cleaned, self._padding_of_op, source)
        for value, shadow in zip(op.results, results, strict=True):
            # A shadow that is forwarded as it is has elements, as all that are kept.
            is_kept = any(shadow is given for given in each)
            if shadow is not None and source is not None and (is_kept or any_true(shadow)):
                self.shadows[value] = {source: (Origin(source, shadow, ()), shadow)}
            else:
                self.shadows.pop(value, None)
        if self._blank:
            self._note_blank(op)

    def _note_blank(self, op: Operation) -> None:
        """Note that results of blank operands are blank, and all other results are not."""
        if not OPS[op.name].effects and all(map(self._is_blank, op.operands)):
            self._blank.update(op.results)
        else:
            self._blank.difference_update(op.results)

    def _pad(self, value: Value) -> Tensor | None:
        known = self.shadows.get(value)
        if known is None:
            return None
        total = None
        for _, shadow in known.values():
            total = united(total, shadow)
        return total

    def _source(self, values: Sequence[Value]) -> Operation | None:
        """Return the load whose padding is in the first of the values that has any, or None."""
        for value in values:
            if value in self.shadows:
                return next(iter(self.shadows[value]))
        return None

    def _padding(
        self, op: Operation, operands: Sequence[TileValue], each: Sequence[Tensor | None]
    ) -> tuple[Sequence[Tensor | None], dict[int, Tensor]]:
        """Return the results' padding, and the elements of each operand that should be left out."""
        if tt.Reduce.matches(op) or tt.Scan.matches(op):
            return self._reduced(op, operands, each)
        if tt.Dot.matches(op):
            return self._multiplied(op, operands, each)
        if tt.Histogram.matches(op):
            return self._binned(op, operands, each)
        data = [self._data(value) for value in op.operands]
        place = self._facts.accumulations.get(op)
        if place is not None:
            return self._accumulated(op, operands, each, data, place)
        whole = self._cared_for.whole(op.operands, each)
        return padding_of_results(self._ev, op, operands, each, data, whole), {}

    def _reduced(
        self, op: Operation, operands: Sequence[TileValue], each: Sequence[Tensor | None]
    ) -> tuple[Sequence[Tensor | None], dict[int, Tensor]]:
        combiner, pad = combination(op), each[0]
        if combiner is None or pad is None:
            return [None] * len(op.results), {}
        view = tt.Combining(op)
        source, axis = view.sources[0], view.axis + 1
        extent = ir.shape_of(source.type)[axis - 1]
        pad, whole, left_out, has_any = self._cared_for.along(source, pad, axis, extent)
        is_scan = tt.Scan.matches(op)
        result = pad if is_scan else whole.squeeze(axis)
        if not has_any:
            return [result] * len(op.results), {}
        self._padding_of_op = {0: left_out}
        if combiner == "add" and not is_scan and left_out.numel() == extent:
            load = self._source(op.operands)
            if load is not None:
                self._worlds.note_count(op.results[0], extent, left_out, load)
        if is_neutral(self._ev, op, operands[0], left_out, combiner):
            return [result] * len(op.results), {}
        # A sum of which one element is not neutral picks that one, as networks that sort do.
        values = self._ev.full(operands[0], tt.Combining(op).sources[0].type)
        takes = values != neutral_of(combiner, values.dtype)
        picks = ~any_along(takes & ~pad, axis, keepdim=True) & (takes.sum(axis, keepdim=True) == 1)
        left_out = left_out & ~picks
        result = pad if is_scan else (whole | picks).squeeze(axis)
        cleaned = {0: left_out} if any_true(left_out) else {}
        return [result] * len(op.results), cleaned

    def _multiplied(
        self, op: Operation, operands: Sequence[TileValue], each: Sequence[Tensor | None]
    ) -> tuple[Sequence[Tensor | None], dict[int, Tensor]]:
        ev, dot = self._ev, tt.Dot(op)
        no_data = [
            None if pad is None else self._cared_for.with_padding(value, pad)
            for value, pad in zip(op.operands, each, strict=True)
        ]
        result = padding_of_product(ev, op, no_data)
        if result is not None and not self._is_blank(dot.accumulator):
            result = None if each[2] is None else result & each[2]
        cleaned: dict[int, Tensor] = {}
        for place, dim in ((0, -1), (1, -2)):
            shadow, whole = each[place], no_data[place]
            if shadow is None or whole is None:
                continue
            is_zero = is_filled(operands[place], shadow, 0)
            if is_zero and not self._worlds.has_joint:
                continue
            type_ = dot.factors[place].type
            shadow = ev.full(shadow, type_) & ~all_along(ev.full(whole, type_), dim, keepdim=True)
            self._padding_of_op[place] = shadow
            if is_zero:
                continue
            values = ev.full(operands[place], dot.factors[place].type)
            if any_true(shadow & (numbers(values) != 0)):
                cleaned[place] = shadow
        return [result], cleaned

    def _binned(
        self, op: Operation, operands: Sequence[TileValue], each: Sequence[Tensor | None]
    ) -> tuple[Sequence[Tensor | None], dict[int, Tensor]]:
        ev, view = self._ev, tt.Histogram(op)
        bits = ir.element_of(view.source.type).bits
        if each[0] is None or (view.unsigned and view.bins >= 1 << bits):
            return [None], {}  # every element is in a bin
        pad = ev.full(each[0], view.source.type)
        values = ev.full(operands[0], view.source.type).long()
        values = values & ((1 << bits) - 1) if view.unsigned and bits < 64 else values
        whole = all_along(pad, 1, keepdim=True)
        left_out = pad & ~whole & (values >= 0) & (values < view.bins)
        if view.mask is not None:
            left_out = left_out & ev.full(operands[1], view.mask.type).bool()
        return [whole], {0: left_out} if any_true(left_out) else {}

    def _accumulated(
        self,
        op: Operation,
        operands: Sequence[TileValue],
        each: Sequence[Tensor | None],
        data: Sequence[Axes],
        place: int,
    ) -> tuple[Sequence[Tensor | None], dict[int, Tensor]]:
        """Return the same as `_padding`, for an op that adds to a value that a loop carries."""
        others = [at for at in range(len(op.operands)) if at != place]
        shadows = [each[at] if at != place else None for at in range(len(op.operands))]
        axes = [data[at] if at != place else frozenset[int]() for at in range(len(op.operands))]
        if not any(shadows[at] is not None for at in others):
            return [None], {}
        (pad,) = padding_of_results(self._ev, op, operands, shadows, axes)
        if pad is None:
            return [None], {}
        carried = op.operands[place]
        result = pad if self._is_blank(carried) else None
        if result is None and each[place] is not None:
            result = pad & each[place]  # type: ignore[operator]
        if result is not None:
            # Elements that are still padding are followed as such.
            pad = pad & ~result
            if not any_true(pad):
                return [result], {}
        combiner = combination(op)
        if len(others) == 1 and combiner is not None and not self._worlds.has_begun(op):
            taken = operands[others[0]]
            neutral = neutral_of(combiner, self._ev.dtype_of(op.result.type))
            values = self._ev.dense(taken, op.result.type)
            if is_filled(taken, pad, neutral) or not any_true(pad & (values != neutral)):
                return [result], {}
        return [result], {place: pad}

    # Stores

    def _about_to_store(self, op: Operation) -> None:
        value = stored_value(op)
        self._ev.follow(self, value is not None and self._worlds.differ_in(value))
        self._worlds.forget_results(op)

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Compare what is about to be stored with the results without padding."""
        self._compare(access, access.stored)

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Stop following accesses."""
        self._ev.follow(self, False)

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Compare what an atomic is about to use with the results without padding."""
        self._ev.follow(self, False)
        self._compare(access, updated_by(self._ev, access))

    def _compare(self, access: ObservedAccess, stored: Callable[[], Tensor]) -> None:
        value = stored_value(access.op)
        if value is not None:
            self._worlds.compare(access, value, stored, self._pad(value))
