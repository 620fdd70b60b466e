"""The conditions that masks are made of, named so that equal ones are found again.

A mask that is computed twice from the same values is the same condition, whether it is made of a
vector or of a tile with other axes of extent 1.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Block, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.shadow_values import is_elementwise

# Ops that put a tile's axes elsewhere, and nothing else.
MOVED = (tt.Splat, tt.Broadcast, tt.ExpandDims, tt.Trans)
_LEAST_FIRST = {"sle": True, "slt": True, "sge": False, "sgt": False}
# Beyond so many ops a value is itself.
_LARGEST_KEY = 200


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that decides whether elements are padding.

    Attributes:
        text: equal for conditions that hold for the same elements at one point of the kernel.
        axes: the axes of the tile, for the axes of the condition in order.
        blocks: the blocks in which the values that it is made of change.
    """

    text: Hashable
    axes: tuple[int, ...]
    blocks: frozenset[Block] = field(compare=False, default=frozenset())

    def moved(self, places: Mapping[int, int]) -> Condition:
        """Return the condition of a tile whose axes have moved to other places."""
        return Condition(self.text, tuple(places[axis] for axis in self.axes), self.blocks)


def conditions_of(mask: Value) -> set[Condition]:
    """Return the conditions that all hold where a mask does."""
    rank = len(ir.shape_of(mask.type))
    return _parts(mask, {axis: axis for axis in range(rank)})


def _parts(mask: Value, places: Mapping[int, int]) -> set[Condition]:
    """Return the conditions of a mask with its axes at `places`; a broadcast axis has no place."""
    op = mask.defining_op
    if op is not None:
        if arith.AndI.matches(op):
            both = arith.AndI(op)
            return _parts(both.lhs, places) | _parts(both.rhs, places)
        if any(view.matches(op) for view in MOVED):
            return _parts(tt.Rearrangement(op).source, _before(op, places))
    axes = tuple(sorted(_key(mask, places, [_LARGEST_KEY]).axes))
    own = {axis: axes.index(place) for axis, place in places.items() if place in axes}
    key = _key(mask, own, [_LARGEST_KEY])  # whichever axes of the tile they are
    return {Condition(key.text, axes, key.blocks)}


@dataclass(frozen=True, slots=True)
class Order:
    """An order of positions along two axes, which a `tl.where` keeps elements by.

    Attributes:
        least: the positions that are less or equal, as the sides of conditions are named.
        most: the others.
    """

    least: Hashable
    most: Hashable

    def covers(self, condition: Condition, others: Collection[Condition]) -> bool:
        """Whether elements that fail `condition` but keep this order also fail one of `others`.

        Under a causal mask, keys past the end are kept only for queries past the end: if
        `least < n` fails, and `least <= most` holds, `most < n` fails as well.
        """
        below = _below(condition)
        if below is None or below[0] != self.least:
            return False
        return (self.most, below[1]) in map(_below, others)


def orders_of(mask: Value) -> list[Order]:
    """Return the orders that all hold where a mask does."""
    op = traced(mask, names_of(tt.Broadcast, tt.ExpandDims)).defining_op
    if op is not None and arith.AndI.matches(op):
        both = arith.AndI(op)
        return [*orders_of(both.lhs), *orders_of(both.rhs)]
    compare = arith.CmpI.cast(op) if op is not None else None
    least_first = None if compare is None else _LEAST_FIRST.get(compare.predicate)
    if compare is None or least_first is None:
        return []
    sides = [_along_one_axis(value) for value in (compare.lhs, compare.rhs)]
    least, most = sides if least_first else reversed(sides)
    return [] if least is None or most is None else [Order(least, most)]


def holds_at(op: Operation, condition: Condition) -> bool:
    """Whether the branch that `op` is in is taken only where all elements meet a condition.

    Kernels load a block without a mask where it ends before the sequence does: of
    `if start + N > n` the other branch has `start + i < n` for each `i` below N.
    """
    below = _below(condition)
    match below:
        case ((arith.AddI.name, _, _, _, start, ("range", 0, extent, _)), limit):
            pass
        case _:
            return False
    wanted = (arith.AddI.name, start, extent, _unwidened(limit))
    block = op.block
    while block is not None and (around := block.parent_op) is not None:
        if scf.If.matches(around):
            is_taken = block is around.regions[0].block
            if wanted in _ends_within(scf.If(around).condition, is_taken):
                return True
        block = around.block
    return False


def _ends_within(test: Value, is_true: bool) -> Iterator[Hashable]:
    """Yield the ends of blocks that are within a limit if a scalar test is `is_true`."""
    op = test.defining_op
    if op is None:
        return
    if (arith.OrI if not is_true else arith.AndI).matches(op):
        for operand in op.operands:
            yield from _ends_within(operand, is_true)
    compare = arith.CmpI.cast(op)
    if compare is None:
        return
    end, limit = (_key(side, {}, [_LARGEST_KEY]).text for side in (compare.lhs, compare.rhs))
    within = ("sle", "slt") if is_true else ("sgt", "sge")
    if compare.predicate not in within:
        return
    match _unwidened(end):
        case (arith.AddI.name, _, _, _, start, ("constant", int(extent))):
            yield (arith.AddI.name, start, extent, _unwidened(limit))


def _along_one_axis(value: Value) -> Hashable:
    """Return a side of a comparison as conditions name it; None unless it has one axis."""
    places = {axis: axis for axis in range(len(ir.shape_of(value.type)))}
    axes = sorted(_key(value, places, [_LARGEST_KEY]).axes)
    if len(axes) != 1:
        return None
    return _unwidened(_key(value, {axes[0]: 0}, [_LARGEST_KEY]).text)


def _below(condition: Condition) -> tuple[Hashable, Hashable] | None:
    """Return both sides of `positions < limit`; None for any other condition."""
    match condition.text:
        case (arith.CmpI.name, _, _, (("predicate", "'slt'"),), side, limit):
            return _unwidened(side), _unwidened(limit)
    return None


def _unwidened(text: Hashable) -> Hashable:
    """Return the key of a number before sign extensions; any other key unchanged."""
    match text:
        case (arith.ExtSI.name, _, _, _, inner):
            return _unwidened(inner)
    return text


@dataclass(frozen=True, slots=True)
class _Key:
    text: Hashable
    axes: frozenset[int]
    blocks: frozenset[Block]


def _key(value: Value, places: Mapping[int, int], left: list[int]) -> _Key:
    """Return a key of a value, equal for values that are computed twice from the same."""
    op = value.defining_op
    left[0] -= 1
    if op is not None and left[0] > 0:
        if any(view.matches(op) for view in MOVED):
            return _key(tt.Rearrangement(op).source, _before(op, places), left)
        if arith.Constant.matches(op):
            return _Key(("constant", arith.Constant(op).value), frozenset(), frozenset())
        if tt.MakeRange.matches(op):
            make, place = tt.MakeRange(op), places.get(0)
            axes = frozenset(() if place is None else (place,))
            return _Key(("range", make.start, make.end, place), axes, frozenset())
        if not op.regions and not OPS[op.name].effects and (is_elementwise(op) or not op.operands):
            parts = [_key(operand, places, left) for operand in op.operands]
            attributes = tuple(sorted((name, repr(at)) for name, at in op.attributes.items()))
            element = str(ir.element_of(value.type))
            text = (op.name, value.index, element, attributes, *(part.text for part in parts))
            axes = frozenset[int]().union(*(part.axes for part in parts))
            return _Key(text, axes, frozenset[Block]().union(*(part.blocks for part in parts)))
    block = value.owner.block if isinstance(value.owner, Operation) else value.owner
    shape = ir.shape_of(value.type)
    axes = frozenset(place for axis, place in places.items() if shape[axis] > 1)
    blocks = frozenset() if block is None else frozenset([block])
    return _Key((value, tuple(sorted(places.items()))), axes, blocks)


def _before(op: Operation, places: Mapping[int, int]) -> Mapping[int, int]:
    """Return the places of an operand's axes, given the `places` of the result's axes."""
    shape = ir.shape_of(tt.Rearrangement(op).source.type)
    if tt.Splat.matches(op):
        return {}
    if tt.ExpandDims.matches(op):
        axis = tt.ExpandDims(op).axis
        return {a: places[a + (a >= axis)] for a in range(len(shape)) if a + (a >= axis) in places}
    if tt.Trans.matches(op):
        order = tt.Trans(op).order
        return {old: places[new] for new, old in enumerate(order) if new in places}
    result = ir.shape_of(op.result.type)
    return {a: places[a] for a in places if a < len(shape) and shape[a] == result[a]}
