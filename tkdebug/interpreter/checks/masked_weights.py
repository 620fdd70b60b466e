"""Finds loaded NaNs and Infs that are multiplied by a weight that a mask made 0.

0 * NaN is NaN: a mask on the scores, or on one factor, does not keep the other factor's loaded
values out of the sum. A mask is a condition on positions, lengths and program ids: one on loaded
tiles, or one that compares floats, says what the data mean, and its zeros are data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf

import torch
from torch import Tensor

from tkdebug.compiler.analysis.data_flow import backward, traced
from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.dialects.interfaces import Cast
from tkdebug.compiler.faults.hints import argument_name
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, incoming
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.shadow_values import computable, is_elementwise
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules import run_alone
from tkdebug.interpreter.tiles.values import TileValue

_MOVED = names_of(tt.Splat, tt.Broadcast, tt.ExpandDims, tt.Trans, tt.Reshape)
_SAME = names_of(Cast, tt.Rearrangement)
_LOADS = (tt.Load, tt.DescriptorLoad, tt.DescriptorGather)
# Scores are masked by -inf, or by -1e4 where that overflows.
_DROWNING = -1e4
# How many ops back a weight is followed.
_MOST_STEPS = 100


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask that makes elements of a weight 0.

    Attributes:
        op: the `tl.where`, the load or the conversion that does it.
        condition: the mask's condition.
        is_zero_where: the condition's value where the elements are 0.
        moves: the ops that brought its elements to their places in the weight, in order.
    """

    op: Operation
    condition: Value
    is_zero_where: bool
    moves: tuple[Operation, ...]

    def elements(self, run: Evaluator) -> Tensor | None:
        """Return the elements of the weight that it masks, or None if its value is gone."""
        tile = run.values.get(self.condition)
        if tile is None:
            return None
        masked = run.dense(tile, self.condition.type).bool() == self.is_zero_where
        for op in self.moves:
            (moved,) = run_alone(run, op, [masked])
            masked = run.dense(moved, ir.tile(ir.shape_of(op.result.type), ir.I1))
        return masked


@dataclass(frozen=True, slots=True)
class MaskedProduct:
    """A product some of whose elements are NaN only because a masked weight met a loaded value.

    Attributes:
        elements: the elements, (P or 1, then the tile's axes).
        mask: the mask that made the weight 0.
        load: the load of the other factor.
        loaded: "NaN" or "Inf".
    """

    elements: Tensor
    mask: Mask
    load: Operation
    loaded: str

    @property
    def tensor(self) -> str | None:
        """The name of the argument that was loaded; None if it is not known."""
        load = tt.Load.cast(self.load)
        return None if load is None else argument_name(load.pointer)


def conditions_needed(op: Operation) -> Iterator[Value]:
    """Yield the conditions of masks that `masked_product` needs at `op`."""
    given = op.operands
    for weight, values in _factors(op):
        if _load_of(given[values]) is not None:
            for mask in _masks_of(given[weight]):
                yield mask.condition


def masked_product(
    run: Evaluator, op: Operation, operands: Sequence[TileValue], result: TileValue
) -> MaskedProduct | None:
    """Find the NaNs of a product that exist only because masked weights met loaded values.

    Args:
        run: the batch.
        op: has just run.
        operands: the product's operands.
        result: the product's result, with a NaN among its elements.

    Returns:
        The product; None if an element is NaN by another weight, or `op` is no product. NaNs of
            an accumulator do not count, so the product may have no elements.
    """
    given = op.operands
    for weight, values in _factors(op):
        load = _load_of(given[values])
        if load is None:
            continue
        weights, loaded = (
            computable(run.full(operands[at], given[at].type)) for at in (weight, values)
        )
        found = _of_active(run, run.full(result, op.result.type).isnan())
        masks = [
            (mask, masked)
            for mask in _masks_of(given[weight])
            if (masked := mask.elements(run)) is not None
        ]
        if not masks or bool(weights.isnan().any()):
            continue
        is_zero, is_bad = weights == 0, ~loaded.isfinite()
        each = [(mask, is_zero & masked) for mask, masked in masks]
        all_masked = reduce(torch.logical_or, (masked for _, masked in each))
        if bool((found & _meets(op, weight, ~all_masked, is_bad)).any()):
            continue
        new = found
        if len(operands) == 3:
            new = found & ~run.full(operands[2], given[2].type).isnan()
        elements = new & _meets(op, weight, all_masked, is_bad)
        if bool((new & ~elements).any()):
            continue  # a weight that is not finite met a loaded 0
        shown = [(mask, elements & _meets(op, weight, masked, is_bad)) for mask, masked in each]
        mask = max(shown, key=lambda one: int(one[1].sum()))[0]
        return MaskedProduct(elements, mask, load, "NaN" if bool(loaded.isnan().any()) else "Inf")
    return None


def _of_active(run: Evaluator, found: Tensor) -> Tensor:
    if run.active is None or found.shape[0] != run.active.shape[0]:
        return found
    return found & run.active.reshape(-1, *(1,) * (found.dim() - 1))


def _meets(op: Operation, weight: int, weights: Tensor, is_bad: Tensor) -> Tensor:
    """Return the elements of a product in which one of `weights` meets a non-finite number."""
    if not tt.Dot.matches(op):
        return weights & is_bad
    a, b = (weights, is_bad) if weight == 0 else (is_bad, weights)
    return torch.matmul(a.float(), b.float()) > 0


def _factors(op: Operation) -> tuple[tuple[int, int], ...]:
    """Return the pairs of operand numbers (weight, weighted factor); () if `op` is no product."""
    is_product = any(view.matches(op) for view in (arith.MulF, math.Fma, tt.Dot))
    return ((0, 1), (1, 0)) if is_product else ()


def _load_of(value: Value) -> Operation | None:
    """Return the load that gave a value, through other shapes and types, or None."""
    op = traced(value, _SAME).defining_op
    return op if op is not None and any(view.matches(op) for view in _LOADS) else None


def _masks_of(weight: Value) -> Iterable[Mask]:
    """The masks that may have made elements of a weight 0, the nearest first."""
    pending: list[tuple[Value, tuple[Operation, ...]]] = [(weight, ())]
    seen = {weight}
    while pending and len(seen) < _MOST_STEPS:
        value, moves = pending.pop(0)
        op = value.defining_op
        if op is None or op.name in CONTROL_FLOW:
            continue
        mask = _mask_at(op, moves)
        if mask is not None and _is_of_positions(mask.condition):
            yield mask
        if op.name in _MOVED:
            sources, moves = op.operands, (op, *moves)
        elif is_elementwise(op):
            sources = op.operands
        else:
            continue
        pending += [(source, moves) for source in sources if source not in seen]
        seen.update(sources)


def _mask_at(op: Operation, moves: tuple[Operation, ...]) -> Mask | None:
    """Return the mask by which `op` makes elements 0, or so small that `exp` does; else None."""
    if arith.Select.matches(op):
        select = arith.Select(op)
        if ir.shape_of(select.condition.type) != ir.shape_of(op.result.type):
            return None
        for value, is_zero_where in ((select.false_value, False), (select.true_value, True)):
            if _masks(value):
                return Mask(op, select.condition, is_zero_where, moves)
    load = tt.Load.cast(op)
    if load is not None and load.mask is not None and (load.other is None or _masks(load.other)):
        return Mask(op, load.mask, False, moves)
    if arith.UIToFP.matches(op):
        (condition,) = op.operands
        if ir.element_of(condition.type).bits == 1:
            return Mask(op, condition, False, moves)
    return None


def _masks(value: Value) -> bool:
    number = constant_value(traced(value, names_of(tt.Splat, tt.Broadcast)))
    return isinstance(number, int | float) and (number == 0 or -inf <= number <= _DROWNING)


def _is_of_positions(condition: Value) -> bool:
    """Whether a condition depends on no loaded tile and no comparison of floats."""
    for value in backward([condition], _sources):
        op = value.defining_op
        if op is None:
            continue
        is_load = any(view.matches(op) for view in _LOADS)
        if arith.CmpF.matches(op) or (is_load and ir.shape_of(value.type)):
            return False
    return True


def _sources(value: Value) -> Iterable[Value]:
    op = value.defining_op
    if op is None or op.name in CONTROL_FLOW:
        return incoming(value)
    return () if any(view.matches(op) for view in _LOADS) else op.operands
