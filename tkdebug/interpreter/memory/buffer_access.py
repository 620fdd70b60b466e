"""Loads and stores through one buffer, of the whole batch, by the fastest way that is proven legal.

A load is a strided view wherever its offsets are affine and proven legal; a masked load computes
only the box it needs; the rest goes through index tensors with the bad lanes reported and masked
off. Views are handed out only for memory that the kernel never writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.checked_access import (
    Access,
    checked,
    leading,
    loaded_type,
    narrow_value,
    narrowed,
    programs_of,
    widened,
)
from tkdebug.interpreter.memory.observed_access import ObservedAccess, tell_read, tell_store
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    AffineTile,
    BoxMask,
    BoxTile,
    DeferredTile,
    RepeatedTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


# Loads


def load_active(run: Evaluator, access: Access, other: TileValue | None) -> TileValue:
    """Load for the active programs; the others may get zeros."""
    if run.active is None:
        return load_access(run, access, other)
    needs_programs = access.tile.base is not None or not isinstance(access.mask, int)
    if not needs_programs:
        return load_access(run, access, other)
    chosen = run.active.nonzero().reshape(-1)
    loaded = load_access(
        run, narrowed(run, access, chosen), narrow_value(run, other, access.op, chosen)
    )
    return widened(run, access.op, loaded, chosen)


def plain_mask(run: Evaluator, mask: TileValue) -> TileValue:
    """Return a mask as it is, but a box tile as one tensor."""
    if isinstance(mask, BoxTile):
        return run.unbox(mask)
    return mask


def fill_of(run: Evaluator, op: Operation, other: TileValue | None) -> TileValue:
    """Return the value that a load gives where it reads nothing."""
    type_ = loaded_type(op)
    if other is not None:
        return other
    element = ir.element_of(type_)
    if isinstance(element, ir.PointerType):
        return AddressTile(0, (), element.bits // 8)
    return run.constant(type_, 0)


def load_access(run: Evaluator, access: Access, other: TileValue | None) -> TileValue:
    """Load, and call the observers that follow accesses."""
    loaded = _load_legal(run, access, other)
    if any(one.sees_reads for one in run.followers):
        tell_read(run, ObservedAccess.of_tile(run, access), loaded)
    return loaded


def _load_legal(run: Evaluator, access: Access, other: TileValue | None) -> TileValue:
    mask = access.mask
    if isinstance(mask, int):
        if not mask:
            return fill_of(run, access.op, other)
        if access.buffer.proves_legal(access.tile):
            if access.op in run.fusion.factors:
                return _read_factor(run, access)
            return loaded_value(access.op, _read(run, access, access.tile))
        return _load_checked(run, access, other)
    if isinstance(mask, BoxMask):
        return _load_boxed(run, access, mask, other)
    if access.buffer.proves_legal(access.tile):
        values = _read(run, access, access.tile)
        fill = _other(run, access.op, other, values)
        return loaded_value(access.op, torch.where(mask, values, fill))  # type: ignore[arg-type]
    return _load_checked(run, access, other)


def _other(run: Evaluator, op: Operation, other: TileValue | None, values: Tensor) -> Any:
    if other is None:
        return torch.zeros((), dtype=values.dtype, device=values.device)
    return run.dense(other, loaded_type(op))


def loaded_value(op: Operation, values: Tensor) -> TileValue:
    """Return elements that were read as a value of the type that the op loads."""
    element = ir.element_of(loaded_type(op))
    if isinstance(element, ir.PointerType):
        return AddressTile(values, (), element.pointee.bits // 8 or 1)
    return values


def _read(run: Evaluator, access: Access, tile: AffineTile) -> Tensor:
    kind = run.dtype_of(access.type)
    values = run.access.read(access.buffer, kind, tile)
    if run.written is None or access.buffer.storage_key in run.written:
        # A later store may change what a view shows.
        return values.clone()
    return values


def _read_factor(run: Evaluator, access: Access) -> TileValue:
    """Read a factor of a dot, and only once for programs that read the same elements."""
    tile = access.tile
    if tile.base is not None and tile.base.is_per_program and run.active is None:
        repeats = tile.base.repeats()
        if repeats.places.shape[0] >= 2 * repeats.distinct.tensor.shape[0]:
            once = AffineTile(tile.const, repeats.distinct, tile.coefs, tile.shape)
            return RepeatedTile(_read(run, access, once), repeats)
    return _read(run, access, tile)


def _load_boxed(
    run: Evaluator, access: Access, mask: BoxMask, other: TileValue | None
) -> TileValue:
    box = mask.uniform_box
    if box is not None:
        tile = access.tile.cropped(box)
        fill = _box_fill(run, access.op, other, mask, box)
        if fill is not None and access.buffer.proves_legal(tile):
            return BoxTile(_read(run, access, tile), box, fill, access.shape)
        return _load_checked(run, access, other)
    count = programs_of(run, access)
    full = run.masks.full_programs(mask, count)
    whole = leading(full)
    if whole == 0 or int(full.sum()) != whole or access.tile.base is None:
        return _load_checked(run, access, other)
    head = narrowed(run, access, slice(0, whole))
    if not access.buffer.proves_legal(head.tile):
        return _load_checked(run, access, other)
    tail_slice = slice(whole, count)
    tail_other = None
    if other is not None:
        dense = run.dense(other, access.type)
        tail_other = dense if dense.shape[0] == 1 else dense[tail_slice]
    tail = run.dense(
        _load_checked(run, narrowed(run, access, tail_slice), tail_other),
        access.type,
    )
    values = _read(run, head, head.tile)
    out = torch.empty((count, *access.shape), dtype=values.dtype, device=values.device)
    out[:whole] = values
    out[whole:] = tail
    return loaded_value(access.op, out)


def _box_fill(
    run: Evaluator, op: Operation, other: TileValue | None, mask: BoxMask, box: Any
) -> Tensor | None:
    """Return the fill outside the box; None for pointers, or if `other` is no fill there."""
    kind = run.dtype_of(loaded_type(op))
    if isinstance(ir.element_of(loaded_type(op)), ir.PointerType):
        return None
    rank = len(mask.shape)
    if other is None:
        return torch.zeros((1,) * (rank + 1), dtype=kind, device=run.device)
    if isinstance(other, BoxTile):
        return None
    fill = run.dense(other, loaded_type(op))
    for axis, ((low, high), extent) in enumerate(zip(box, mask.shape, strict=True)):
        if (low, high) != (0, extent) and fill.shape[axis + 1] > 1:
            return None
    return fill


def _load_checked(run: Evaluator, access: Access, other: TileValue | None) -> TileValue:
    """Load element by element through index tensors; report bad lanes and mask them off."""
    if isinstance(access.mask, int) and not access.mask:
        return fill_of(run, access.op, other)
    offsets, allowed = checked(run, access)
    flat = access.buffer.flat(run.dtype_of(access.type))
    if flat.numel() == 0:
        return fill_of(run, access.op, other)
    if allowed is None:
        values = flat[offsets + access.buffer.storage_offset]
        return loaded_value(access.op, values)
    safe = torch.where(allowed, offsets, 0) + access.buffer.storage_offset
    values = flat[safe.clamp_(max=flat.numel() - 1)]
    fill = _other(run, access.op, other, values)
    return loaded_value(access.op, torch.where(allowed, values, fill))


# Stores


def store_active(run: Evaluator, access: Access, value: TileValue) -> None:
    """Store for the active programs."""
    if run.active is None:
        store_access(run, access, value)
        return
    chosen = run.active.nonzero().reshape(-1)
    dense = run.dense(value, access.type)
    store_access(
        run, narrowed(run, access, chosen), dense if dense.shape[0] == 1 else dense[chosen]
    )


def store_access(run: Evaluator, access: Access, value: TileValue) -> None:
    """Store, and call the observers that follow accesses."""
    if not run.followers:
        _store_legal(run, access, value)
        return
    observed = ObservedAccess.of_tile(run, access, value)
    tell_store(run, observed, lambda value: _store_legal(run, access, value))


def _store_legal(run: Evaluator, access: Access, value: TileValue) -> None:
    mask = access.mask
    type_ = access.type
    kind = run.dtype_of(type_)
    if isinstance(mask, int):
        if mask and access.buffer.proves_legal(access.tile):
            if isinstance(value, DeferredTile) and value.box is None:
                if run.access.write_deferred(access.buffer, kind, access.tile, value):
                    return
            run.access.write(access.buffer, kind, access.tile, run.dense(value, type_))
        elif mask:
            _store_checked(run, access, value)
        return
    if isinstance(mask, BoxMask):
        _store_boxed(run, access, mask, value)
        return
    _store_checked(run, access, value)


def _store_boxed(run: Evaluator, access: Access, mask: BoxMask, value: TileValue) -> None:
    type_ = access.type
    kind = run.dtype_of(type_)
    box = mask.uniform_box
    if box is not None:
        tile = access.tile.cropped(box)
        if access.buffer.proves_legal(tile):
            if isinstance(value, DeferredTile) and value.box == box:
                if run.access.write_deferred(access.buffer, kind, tile, value):
                    return
            run.access.write(access.buffer, kind, tile, run.crop(value, type_, box))
            return
        _store_checked(run, access, value)
        return
    count = programs_of(run, access)
    full = run.masks.full_programs(mask, count)
    whole = leading(full)
    if whole == 0 or int(full.sum()) != whole or access.tile.base is None:
        _store_checked(run, access, value)
        return
    head = narrowed(run, access, slice(0, whole))
    if not access.buffer.proves_legal(head.tile):
        _store_checked(run, access, value)
        return
    dense = run.dense(value, type_)
    several = dense.shape[0] > 1
    run.access.write(access.buffer, kind, head.tile, dense[:whole] if several else dense)
    tail = narrowed(run, access, slice(whole, count))
    _store_checked(run, tail, dense[whole:] if several else dense)


def _store_checked(run: Evaluator, access: Access, value: TileValue) -> None:
    if isinstance(access.mask, int) and not access.mask:
        return
    type_ = access.type
    offsets, allowed = checked(run, access)
    flat = access.buffer.flat(run.dtype_of(type_))
    stored = run.dense(value, type_)
    offsets = offsets + access.buffer.storage_offset
    if allowed is None:
        run.access.scatter(flat, offsets, _spread(stored, offsets, access))
        return
    count = max(allowed.shape[0], offsets.shape[0], stored.shape[0])
    shape = (count, *access.shape)
    keep = allowed.expand(shape).reshape(-1).nonzero().reshape(-1)
    offsets = torch.index_select(offsets.expand(shape).reshape(-1), 0, keep)
    values = torch.index_select(stored.expand(shape).reshape(-1), 0, keep)
    run.access.scatter_flat(flat, offsets, values)


def _spread(stored: Tensor, offsets: Tensor, access: Access) -> Tensor:
    count = max(stored.shape[0], offsets.shape[0])
    return stored.expand(count, *access.shape)
