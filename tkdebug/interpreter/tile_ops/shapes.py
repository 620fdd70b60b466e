"""Ops that make tiles, change their shapes, and move, pick, count or sort their elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.pointers import buffers_of, byte_addresses, itemsize_of
from tkdebug.interpreter.numerics.fp8 import convert
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    AffineTile,
    BoxMask,
    BoxTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def make_range(run: Evaluator, view: tt.MakeRange) -> TileValue:
    """start, start + 1, … end - 1."""
    start, end = view.start, view.end
    extent = end - start
    if extent == 1:
        return start
    return AffineTile(start, None, (1,), (extent,))


def splat(run: Evaluator, view: tt.Splat, value: TileValue) -> TileValue:
    """A scalar in every element."""
    shape = ir.shape_of(view.result.type)
    return _respread(run, value, (1,) * len(shape), shape, (0,) * len(shape))


def _respread(
    run: Evaluator,
    value: TileValue,
    dims: tuple[int, ...],
    shape: tuple[int, ...],
    coefs: tuple[int, ...],
) -> TileValue:
    """Return a scalar-like value with the given shape and coefficients, tensors as (P, *dims)."""
    if isinstance(value, int):
        return value
    if isinstance(value, AffineTile):
        base = value.base
        if base is not None:
            base = base.reshaped((base.shape[0], *dims))
        return AffineTile(value.const, base, coefs, shape)
    if isinstance(value, PointerTile | AddressTile):
        return value.at(_respread(run, value.places, dims, shape, coefs))
    assert isinstance(value, torch.Tensor), type(value)
    return value.reshape(-1, *dims)


def expand_dims(run: Evaluator, view: tt.ExpandDims, value: TileValue) -> TileValue:
    """A new axis of extent 1."""
    return _expand(run, value, view.axis)


def _expand(run: Evaluator, value: TileValue, axis: int) -> TileValue:
    if isinstance(value, int):
        return value
    if isinstance(value, AffineTile):
        base = value.base
        if base is not None:
            base = base.reshaped((*base.shape[: axis + 1], 1, *base.shape[axis + 1 :]))
        coefs = (*value.coefs[:axis], 0, *value.coefs[axis:])
        return AffineTile(value.const, base, coefs, (*value.shape[:axis], 1, *value.shape[axis:]))
    if isinstance(value, BoxMask):
        return run.masks.expand_dims(value, axis)
    if isinstance(value, BoxTile):
        box = (*value.box[:axis], (0, 1), *value.box[axis:])
        shape = (*value.shape[:axis], 1, *value.shape[axis:])
        return BoxTile(value.data.unsqueeze(axis + 1), box, value.fill.unsqueeze(axis + 1), shape)
    if isinstance(value, PointerTile | AddressTile):
        return value.at(_expand(run, value.places, axis))
    assert isinstance(value, torch.Tensor)
    return value.unsqueeze(axis + 1)


def broadcast(run: Evaluator, view: tt.Broadcast, value: TileValue) -> TileValue:
    """Repeat axes of extent 1; tensors keep the extent 1, which broadcasts."""
    return _broadcast(run, value, ir.shape_of(view.result.type))


def _broadcast(run: Evaluator, value: TileValue, shape: tuple[int, ...]) -> TileValue:
    if isinstance(value, AffineTile):
        coefs = tuple(
            coef if have == want else 0
            for coef, have, want in zip(value.coefs, value.shape, shape, strict=True)
        )
        return AffineTile(value.const, value.base, coefs, shape)
    if isinstance(value, BoxMask):
        return run.masks.broadcast(value, shape)
    if isinstance(value, BoxTile):
        if any(value.shape[axis] != shape[axis] for axis in value.cropped_axes):
            return run.unbox(value)
        box = tuple(
            (0, want) if have != want else pair
            for pair, have, want in zip(value.box, value.shape, shape, strict=True)
        )
        return BoxTile(value.data, box, value.fill, shape)
    if isinstance(value, PointerTile | AddressTile):
        return value.at(_broadcast(run, value.places, shape))
    return value


def through_tensor(run: Evaluator, type_: ir.Type, value: TileValue, change: Any) -> TileValue:
    """`change` applied to the full tensor of a value; pointers through their offsets."""
    shape = ir.shape_of(type_)
    if isinstance(value, PointerTile | AddressTile):
        if isinstance(value.places, int):
            return value
        whole = run.full(value.places, ir.tile(shape, ir.I64))
        return value.at(change(whole.to(torch.int64)))
    if isinstance(value, int):
        return value
    return change(run.full(value, type_))  # type: ignore[no-any-return]


def reshape(run: Evaluator, view: tt.Reshape | tt.Unsplat, value: TileValue) -> TileValue:
    """Row-major elements under another shape."""
    shape = ir.shape_of(view.result.type)
    source = ir.shape_of(view.source.type)
    if isinstance(value, AffineTile) and value.base is None:
        coefs = _reshaped_coefs(value.coefs, source, shape)
        if coefs is not None:
            return AffineTile(value.const, None, coefs, shape)
    if isinstance(value, torch.Tensor) and value.numel() == value.shape[0]:
        return value.reshape(-1, *(1,) * len(shape))
    return through_tensor(run, view.source.type, value, lambda t: t.reshape(t.shape[0], *shape))


def transpose(run: Evaluator, view: tt.Trans, value: TileValue) -> TileValue:
    """Axes permuted."""
    return _permute(run, value, view.order)


def _permute(run: Evaluator, value: TileValue, order: tuple[int, ...]) -> TileValue:
    if isinstance(value, int):
        return value
    if isinstance(value, AffineTile):
        base = value.base
        if base is not None:
            base = base.permuted(order)
        return AffineTile(
            value.const,
            base,
            tuple(value.coefs[axis] for axis in order),
            tuple(value.shape[axis] for axis in order),
        )
    places = (0, *(axis + 1 for axis in order))
    if isinstance(value, BoxMask):
        return BoxMask(
            tuple(value.bounds[axis] for axis in order),
            tuple(value.shape[axis] for axis in order),
        )
    if isinstance(value, BoxTile):
        return BoxTile(
            value.data.permute(places),
            tuple(value.box[axis] for axis in order),
            value.fill.permute(places),
            tuple(value.shape[axis] for axis in order),
        )
    if isinstance(value, PointerTile | AddressTile):
        return value.at(_permute(run, value.places, order))
    assert isinstance(value, torch.Tensor)
    return value.permute(places)


def _together(
    run: Evaluator,
    type_: ir.Type,
    a: TileValue,
    b: TileValue,
    put: Callable[[Sequence[Tensor]], Tensor],
) -> TileValue:
    """`put` applied to two full tiles; pointers through their addresses."""
    if isinstance(a, PointerTile | AddressTile):
        assert isinstance(b, PointerTile | AddressTile)
        index = ir.tile(ir.shape_of(type_), ir.I64)
        placed = put(_pair(run, byte_addresses(a), byte_addresses(b), index))
        return AddressTile(placed, (*buffers_of(a), *buffers_of(b)), itemsize_of(a))
    return put(_pair(run, a, b, type_))


def _pair(run: Evaluator, a: TileValue, b: TileValue, type_: ir.Type) -> tuple[Tensor, Tensor]:
    x, y = run.full(a, type_), run.full(b, type_)
    count = max(x.shape[0], y.shape[0])
    return x.expand(count, *x.shape[1:]), y.expand(count, *y.shape[1:])


def join(run: Evaluator, view: tt.Join, a: TileValue, b: TileValue) -> TileValue:
    """Two tiles side by side in a new last axis."""
    return _together(run, view.lhs.type, a, b, lambda tiles: torch.stack(tuple(tiles), dim=-1))


def split(run: Evaluator, view: tt.Split, value: TileValue) -> Sequence[TileValue]:
    """The halves along the last axis."""
    return (
        through_tensor(run, view.source.type, value, lambda tile: tile[..., 0]),
        through_tensor(run, view.source.type, value, lambda tile: tile[..., 1]),
    )


def cat(run: Evaluator, view: tt.Cat, a: TileValue, b: TileValue) -> TileValue:
    """Put one tile after the other along the first axis."""
    return _together(run, view.lhs.type, a, b, lambda tiles: torch.cat(tuple(tiles), dim=1))


# Selects


def _reshaped_coefs(
    coefs: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return coefficients for shape `target`, or None unless value = c * linear position."""
    step = 0
    stride = 1
    for coef, extent in zip(reversed(coefs), reversed(source), strict=True):
        if extent > 1:
            if step == 0:
                step, stride = coef, extent
                if coef == 0:
                    return None
            elif coef != step * stride:
                return None
            else:
                stride *= extent
    out, position = [], step
    for extent in reversed(target):
        out.append(position if extent > 1 else 0)
        position *= extent
    assert math.prod(source) == math.prod(target)
    return tuple(reversed(out))


def gather(run: Evaluator, view: tt.Gather, source: TileValue, index: TileValue) -> TileValue:
    """tt.gather; an index outside the axis is a fault and reads the nearest element."""
    axis = view.axis
    places = run.full(index, view.indices.type).to(torch.int64)
    extent = ir.shape_of(view.source.type)[axis]
    bad = (places < 0) | (places >= extent)
    if bool(bad.any()):
        _report_index(run, view.op, bad, places, axis, extent)
        places = places.clamp(0, extent - 1)

    def gathered(tile: Tensor) -> Tensor:
        count = max(tile.shape[0], places.shape[0])
        tile = tile.expand(count, *tile.shape[1:])
        return tile.gather(axis + 1, places.expand(count, *places.shape[1:]))

    return through_tensor(run, view.source.type, source, gathered)


def _report_index(
    run: Evaluator, op: Operation, bad: Tensor, places: Tensor, axis: int, extent: int
) -> None:
    whole = bad.expand(run.programs, *bad.shape[1:])
    if run.active is not None:
        whole = whole & run.active.reshape(-1, *(1,) * (whole.dim() - 1))
    if not bool(whole.any()):
        return
    offender = run.offender(whole, places, None)
    run.faults.bad_index(op, offender, axis, extent, int(whole.sum()))


def histogram(
    run: Evaluator, view: tt.Histogram, value: TileValue, mask: TileValue = 1
) -> TileValue:
    """tt.histogram."""
    bins = view.bins
    tile = run.full(value, view.source.type).to(torch.int64)
    bits = ir.element_of(view.source.type).bits
    if view.unsigned and bits < 64:
        tile = tile & ((1 << bits) - 1)
    counted = (tile >= 0) & (tile < bins)
    if view.mask is not None:
        counted = counted & run.dense(mask, view.mask.type)
    count = counted.shape[0]
    # Each program's bins, and one more for what is not counted.
    places = torch.where(counted, tile, bins)
    out = torch.zeros((count, bins + 1), dtype=torch.int32, device=run.device)
    ones = torch.ones(places.shape, dtype=torch.int32, device=run.device)
    return out.scatter_add_(1, places, ones)[:, :bins]


def flip(run: Evaluator, view: tt.Flip, value: TileValue) -> TileValue:
    """tt.flip."""
    axis = view.axis

    def flipped(tile: Tensor) -> Tensor:
        return tile.flip(axis + 1)

    return through_tensor(run, view.source.type, value, flipped)


def sort(run: Evaluator, view: tt.Sort, value: TileValue) -> TileValue:
    """tt.sort: NaN counts as the largest."""
    keys = _keys(run, view, run.full(value, view.source.type))
    keys = keys.sort(dim=-1, descending=view.descending).values
    return _unkeyed(run, view, keys)


def topk(run: Evaluator, view: tt.TopK, value: TileValue) -> TileValue:
    """tt.topk: NaN counts as the largest."""
    keys = _keys(run, view, run.full(value, view.source.type))
    return _unkeyed(run, view, keys.topk(view.k, dim=-1, largest=view.descending).values)


def bitonic_merge(run: Evaluator, view: tt.BitonicMerge, value: TileValue) -> TileValue:
    """tt.bitonic_merge: the network itself, so that any input gives the same as on a GPU."""
    keys = _keys(run, view, run.full(value, view.source.type))
    shape = keys.shape
    distance = shape[-1] // 2
    while distance:
        pairs = keys.reshape(*shape[:-1], -1, 2, distance)
        left, right = pairs[..., 0, :], pairs[..., 1, :]
        swap = left < right if view.descending else left > right
        pair = (torch.where(swap, right, left), torch.where(swap, left, right))
        keys = torch.stack(pair, dim=-2).reshape(shape)
        distance //= 2
    return _unkeyed(run, view, keys)


def _keys(run: Evaluator, view: tt.Sorting, tile: Tensor) -> Tensor:
    """`tile` as numbers that torch orders as the language does."""
    element = ir.element_of(view.source.type)
    assert isinstance(element, ir.ScalarType)
    if element.is_float and element.bits == 8:
        return convert(tile, element.name, "f32", run.dtypes, False)
    if tile.dtype == torch.bool:
        return tile.to(torch.uint8)
    if view.unsigned:
        return tile ^ -(1 << (element.bits - 1))
    return tile


def _unkeyed(run: Evaluator, view: tt.Sorting, keys: Tensor) -> Tensor:
    element = ir.element_of(view.source.type)
    assert isinstance(element, ir.ScalarType)
    if element.is_float and element.bits == 8:
        return convert(keys, "f32", element.name, run.dtypes, False)
    if element.bits == 1:
        return keys.to(torch.bool)
    if view.unsigned:
        return keys ^ -(1 << (element.bits - 1))
    return keys
