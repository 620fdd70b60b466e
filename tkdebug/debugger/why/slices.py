"""Which elements of its operands an element of a result was computed from, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import DotLike, PlainDot
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir

# Gets the op, the mask of a result, which result that is, and the operands' tiles; gives a mask for
# each operand, None for nothing of it.
Masks = list["Tensor | None"]
Rule = Callable[[Operation, Tensor, int, Sequence["Tensor | None"]], Masks]


def operand_masks(
    op: Operation, mask: Tensor, result: int, tiles: Sequence[Tensor | None]
) -> Masks:
    """What of each operand the elements at `mask` of a result were computed from.

    Args:
        op: which.
        mask: bool, of the result's shape.
        result: which result.
        tiles: the operands of this instance, None where it is not known.
    """
    rule = _RULES.get(op.name)
    if rule is not None:
        return rule(op, mask, result, tiles)
    return [_elementwise(mask, ir.shape_of(operand.type)) for operand in op.operands]


def _elementwise(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tuple(mask.shape) == shape:
        return mask
    if not shape:
        return mask.any()
    # An op of which no more is known: everything may take part.
    return torch.ones(shape, dtype=torch.bool)


def _source_shape(op: Operation) -> tuple[int, ...]:
    """Of the tile that an op of one operand rearranges."""
    (source,) = op.operands
    return ir.shape_of(source.type)


def _reshaped(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    return [mask.reshape(_source_shape(op))]


def _splat(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    return [mask.any().reshape(_source_shape(op))]


def _broadcast(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    shape = _source_shape(op)
    if not shape:
        return [mask.any()]
    for axis, extent in enumerate(shape):
        if extent == 1 and mask.shape[axis] > 1:
            mask = mask.any(axis, keepdim=True)
    return [mask]


def _trans(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    order = tt.Trans(op).order
    inverse = [order.index(axis) for axis in range(len(order))]
    return [mask.permute(inverse)]


def _reduce(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    axis, found = tt.Reduce(op).axis, []
    for operand in op.operands:
        shape = ir.shape_of(operand.type)
        wide = mask.reshape((*shape[:axis], 1, *shape[axis + 1 :]))
        found.append(wide.expand(shape))
    return list(found)


def _scan(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    view = tt.Scan(op)
    axis = view.axis
    # What is at or before a position, along the axis, takes part in it.
    counted = mask if view.reverse else mask.flip(axis)
    counted = counted.cumsum(axis) > 0
    counted = counted if view.reverse else counted.flip(axis)
    return [counted for _ in op.operands]


def _dot(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    left, right = (ir.shape_of(factor.type) for factor in DotLike(op).factors)
    rows, columns = mask.any(-1, keepdim=True), mask.any(-2, keepdim=True)
    return [rows.expand(left), columns.expand(right), mask]


def _waited(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    """A wait hands on its operands."""
    return [mask if place == result else None for place in range(len(op.operands))]


def _copy(op: Operation, mask: Tensor, result: int, tiles: Sequence[Tensor | None]) -> Masks:
    """What of its operands a copy to shared memory brought there: pointers, buffer, mask, other."""
    view, keeps = ttg.AsyncCopyGlobalToLocal(op), torch.ones_like(mask)
    found: Masks = [mask, None]
    if view.mask is not None:
        test = tiles[2]
        keeps = keeps if test is None else test.bool().expand_as(mask)
        found = [mask & keeps, None, mask]
    if view.other is not None:
        found.append(_elementwise(mask & ~keeps, ir.shape_of(view.other.type)))
    return found


def _select(op: Operation, mask: Tensor, result: int, tiles: Sequence[Tensor | None]) -> Masks:
    condition = tiles[0]
    chosen = _elementwise(mask, ir.shape_of(arith.Select(op).condition.type))
    if condition is None:
        return [chosen, mask, mask]
    test = condition.bool()
    return [chosen, mask & test, mask & ~test]


def _load(op: Operation, mask: Tensor, result: int, tiles: Sequence[Tensor | None]) -> Masks:
    view = tt.Load(op)
    found: Masks = [mask]
    keeps = torch.ones_like(mask)
    if view.mask is not None:
        found.append(mask)
        test = tiles[1]
        keeps = keeps if test is None else test.bool().expand_as(mask)
        found[0] = mask & keeps
    if view.other is not None:
        found.append(_elementwise(mask & ~keeps, ir.shape_of(view.other.type)))
    return found


def _join(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    return [mask[..., 0], mask[..., 1]]


def _split(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    nothing = torch.zeros_like(mask)
    pair = [mask, nothing] if result == 0 else [nothing, mask]
    return [torch.stack(pair, -1)]


def _cat(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    extent = ir.shape_of(tt.Cat(op).lhs.type)[0]
    return [mask[:extent], mask[extent:]]


def _flip(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    return [mask.flip(tt.Flip(op).axis)]


def _gather(op: Operation, mask: Tensor, result: int, tiles: Sequence[Tensor | None]) -> Masks:
    view = tt.Gather(op)
    source = torch.zeros(ir.shape_of(view.source.type), dtype=torch.bool)
    indices = tiles[1]
    if indices is None:
        return [~source, mask]
    axis = view.axis
    return [source.scatter(axis, indices.long() * mask, mask), mask]


_RULES: dict[str, Rule] = {
    tt.ExpandDims.name: _reshaped,
    tt.Reshape.name: _reshaped,
    tt.Unsplat.name: _reshaped,
    tt.Splat.name: _splat,
    tt.Broadcast.name: _broadcast,
    tt.Trans.name: _trans,
    tt.Reduce.name: _reduce,
    tt.Scan.name: _scan,
    **dict.fromkeys(PlainDot.names, _dot),
    ttng.WarpGroupDotWait.name: _waited,
    ttg.AsyncCopyGlobalToLocal.name: _copy,
    tt.Load.name: _load,
    tt.Join.name: _join,
    tt.Split.name: _split,
    tt.Cat.name: _cat,
    tt.Flip.name: _flip,
    tt.Gather.name: _gather,
    arith.Select.name: _select,
}
