"""Slices op by op: the elements of its operands that an element of a result was computed from.

Through shared memory, that is the write which put an element there that a view shows. Elements are
known by their addresses, so that views, slots of a ring and buffers that share memory need no rules
of their own: among the writes to an address, the last one before a read counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import DotLike, PlainDot
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.shared_buffers import indices

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.tiles.values import BufferView

# Gets the op, the mask of a result, which result that is, and the operands' tiles; gives a mask for
# each operand, None for nothing of it.
Masks = list["Tensor | None"]
Rule = Callable[[Operation, Tensor, int, Sequence["Tensor | None"]], Masks]


def operand_masks(
    op: Operation, mask: Tensor, result: int, tiles: Sequence[Tensor | None]
) -> Masks:
    """Return, for each operand, a mask of the elements that those at `mask` of a result need.

    Args:
        op: the op.
        mask: bool, of the result's shape.
        result: the number of the result.
        tiles: the operands of this instance, None for an unknown one.
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
    """Return the shape of the tile that an op of one operand rearranges."""
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
    # Elements at or before a position, along the axis, take part in it.
    counted = mask if view.reverse else mask.flip(axis)
    counted = counted.cumsum(axis) > 0
    counted = counted if view.reverse else counted.flip(axis)
    return [counted for _ in op.operands]


def _dot(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    left, right = (ir.shape_of(factor.type) for factor in DotLike(op).factors)
    rows, columns = mask.any(-1, keepdim=True), mask.any(-2, keepdim=True)
    return [rows.expand(left), columns.expand(right), mask]


def _waited(op: Operation, mask: Tensor, result: int, tiles: object) -> Masks:
    """Return the masks of a wait's operands, which it forwards."""
    return [mask if place == result else None for place in range(len(op.operands))]


def _copy(op: Operation, mask: Tensor, result: int, tiles: Sequence[Tensor | None]) -> Masks:
    """Return masks of the operands of a copy to shared memory: pointers, buffer, mask, other."""
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


@dataclass(frozen=True, slots=True, eq=False)
class SharedWrite:
    """A tile that was put into shared memory.

    Attributes:
        number: the number of instances before it.
        places: the address of each of its elements.
        source: the instance of the tile, or of the copy that brought it; -1 for nothing known.
    """

    number: int
    places: Tensor
    source: int
    low: int = field(init=False)
    high: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", int(self.places.min()))
        object.__setattr__(self, "high", int(self.places.max()))


def places_of(run: Evaluator, view: BufferView, position: int) -> Tensor:
    """The address in bytes of each element that a view shows to a program.

    Args:
        run: the batch.
        view: the view of shared memory.
        position: the position of the program in the batch.
    """
    at = view
    while at.chosen is not None and not bool(at.chosen[position]) and at.other is not None:
        at = at.other
    other = view.other
    while other is not None:  # the last one that is this program's is what is read
        if other.chosen is not None and bool(other.chosen[position]):
            at = other
        other = other.other
    storage, axes = at.storage, at.window
    row = position if storage.shape[0] > 1 else 0
    strides = storage.stride()
    base = torch.tensor(row * strides[0])
    if at.index is None:
        base = base + torch.arange(storage.shape[1]) * strides[1]
    else:
        base = base + int(indices(run, at.index)[position]) * strides[1]
    ahead = base.dim()
    for axis, (start, size) in enumerate(axes):
        base = base[..., None] + torch.arange(start, start + size) * strides[axis + 2]
    order = (*range(ahead), *(axis + ahead for axis in at.order))
    return base.permute(order) * storage.element_size() + storage.data_ptr()


def written_by(
    writes: Sequence[SharedWrite], before: int, places: Tensor, mask: Tensor
) -> Iterator[tuple[SharedWrite, Tensor, Tensor]]:
    """The writes that put the elements at a mask of a view there, the last one first.

    Args:
        writes: all writes of the program.
        before: the number of the read's instance.
        places: the addresses that the view shows.
        mask: bool, of its shape.

    Yields:
        Triples of a write, the mask of its elements in the view, and their places in the
            write's flat tile.
    """
    left = mask.clone()
    low, high = int(places.min()), int(places.max())
    for write in reversed(writes):
        if write.number > before or write.high < low or write.low > high:
            continue
        ordered, order = write.places.reshape(-1).sort()
        at = torch.searchsorted(ordered, places).clamp_(max=len(ordered) - 1)
        hit = left & (ordered[at] == places)
        if bool(hit.any()):
            yield write, hit, order[at[hit]]
            left &= ~hit
            if not bool(left.any()):
                return
