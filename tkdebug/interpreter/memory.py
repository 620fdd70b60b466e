"""Loads and stores of the whole batch, by the fastest way that is proven legal.

A load is a strided view wherever its offsets are affine and proven legal; a masked load computes
only the box it needs; the rest goes through index tensors with the bad lanes reported and masked
off. Views are handed out only for memory that the kernel never writes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.checked_access import Access, AccessChecks, loaded_type
from tkdebug.interpreter.values import (
    AddressTile,
    AffineTile,
    Base,
    BoxMask,
    BoxTile,
    DeferredTile,
    IntTile,
    PointerTile,
    TileValue,
)


class MemoryOps(AccessChecks):
    """Pointer arithmetic, loads and stores."""

    # Pointers

    def add_pointer(self, op: Operation, pointer: TileValue, offset: TileValue) -> TileValue:
        """A pointer moved by `offset` elements; offsets never wrap."""
        shape = ir.shape_of(op.operands[0].type)
        if isinstance(offset, BoxTile):
            offset = self.unbox(offset)
        if isinstance(pointer, PointerTile):
            return PointerTile(pointer.buffer, self._sum(pointer.offset, offset, shape))
        assert isinstance(pointer, AddressTile)
        step = self.index.affine(offset, shape)
        assert step is not None
        scaled = AffineTile(
            step.const * pointer.itemsize,
            None if step.base is None else Base(step.base.tensor * pointer.itemsize),
            tuple(coef * pointer.itemsize for coef in step.coefs),
            shape,
        )
        address = self._sum(pointer.address, scaled, shape)
        return AddressTile(address, pointer.buffers, pointer.itemsize)

    def _sum(self, a: IntTile, b: TileValue, shape: tuple[int, ...]) -> IntTile:
        total = self.index.affine_add(a, b, shape)
        if total.base is None and total.is_scalar_like:
            return total.const
        return total

    def affine_of(self, value: IntTile, shape: tuple[int, ...]) -> AffineTile:
        """An integer tile as an affine tile."""
        tile = self.index.affine(value, shape)
        assert tile is not None
        return tile

    # Loads

    def _load_active(self, access: Access, other: TileValue | None) -> TileValue:
        if self.active is None:
            return self._load(access, other)
        needs_programs = access.tile.base is not None or not isinstance(access.mask, int)
        if not needs_programs:
            return self._load(access, other)
        chosen = self.active.nonzero().reshape(-1)
        loaded = self._load(
            self._narrowed(access, chosen), self._narrow_value(other, access.op, chosen)
        )
        return self._widened(access.op, loaded, chosen)

    def _plain_mask(self, mask: TileValue, op: Operation) -> TileValue:
        if isinstance(mask, BoxTile):
            return self.unbox(mask)
        return mask

    def _fill(self, op: Operation, other: TileValue | None) -> TileValue:
        type_ = loaded_type(op)
        if other is not None:
            return other
        element = ir.element_of(type_)
        if isinstance(element, ir.PointerType):
            return AddressTile(0, (), element.bits // 8)
        return self.constant(type_, 0)

    def _load(self, access: Access, other: TileValue | None) -> TileValue:
        loaded = self._load_legal(access, other)
        if self.followers:
            values = loaded.data if isinstance(loaded, BoxTile) else loaded
            plain = values if isinstance(values, torch.Tensor) else None
            self.tell_read(access.op, access.buffer, plain, lambda: self._touched(access))
        return loaded

    def _load_legal(self, access: Access, other: TileValue | None) -> TileValue:
        mask = access.mask
        if isinstance(mask, int):
            if not mask:
                return self._fill(access.op, other)
            if access.buffer.proves_legal(access.tile):
                return self._loaded(access.op, self._read(access, access.tile))
            return self._load_checked(access, other)
        if isinstance(mask, BoxMask):
            return self._load_boxed(access, mask, other)
        if access.buffer.proves_legal(access.tile):
            values = self._read(access, access.tile)
            fill = self._other(access.op, other, values)
            return self._loaded(access.op, torch.where(mask, values, fill))  # type: ignore[arg-type]
        return self._load_checked(access, other)

    def _other(self, op: Operation, other: TileValue | None, values: Tensor) -> Any:
        if other is None:
            return torch.zeros((), dtype=values.dtype, device=values.device)
        return self.dense(other, loaded_type(op))

    def _loaded(self, op: Operation, values: Tensor) -> TileValue:
        element = ir.element_of(loaded_type(op))
        if isinstance(element, ir.PointerType):
            return AddressTile(values, (), element.pointee.bits // 8 or 1)
        return values

    def _read(self, access: Access, tile: AffineTile) -> Tensor:
        kind = self.dtype_of(loaded_type(access.op))
        values = self.access.read(access.buffer, kind, tile)
        if self.written is None or access.buffer.storage_key in self.written:
            # A later store may change what a view shows.
            return values.clone()
        return values

    def _load_boxed(self, access: Access, mask: BoxMask, other: TileValue | None) -> TileValue:
        box = mask.uniform_box
        if box is not None:
            tile = access.tile.cropped(box)
            fill = self._box_fill(access.op, other, mask, box)
            if fill is not None and access.buffer.proves_legal(tile):
                return BoxTile(self._read(access, tile), box, fill, access.shape)
            return self._load_checked(access, other)
        count = self._batch(access)
        full = self.masks.full_programs(mask, count)
        whole = self._leading(full)
        if whole == 0 or int(full.sum()) != whole or access.tile.base is None:
            return self._load_checked(access, other)
        head = self._narrowed(access, slice(0, whole))
        if not access.buffer.proves_legal(head.tile):
            return self._load_checked(access, other)
        tail_slice = slice(whole, count)
        tail_other = None
        if other is not None:
            dense = self.dense(other, loaded_type(access.op))
            tail_other = dense if dense.shape[0] == 1 else dense[tail_slice]
        tail = self.dense(
            self._load_checked(self._narrowed(access, tail_slice), tail_other),
            loaded_type(access.op),
        )
        values = self._read(head, head.tile)
        out = torch.empty((count, *access.shape), dtype=values.dtype, device=values.device)
        out[:whole] = values
        out[whole:] = tail
        return self._loaded(access.op, out)

    def _box_fill(
        self, op: Operation, other: TileValue | None, mask: BoxMask, box: Any
    ) -> Tensor | None:
        """The fill outside the box, or None when `other` varies there."""
        kind = self.dtype_of(loaded_type(op))
        if isinstance(ir.element_of(loaded_type(op)), ir.PointerType):
            return None
        rank = len(mask.shape)
        if other is None:
            return torch.zeros((1,) * (rank + 1), dtype=kind, device=self.device)
        if isinstance(other, BoxTile):
            return None
        fill = self.dense(other, loaded_type(op))
        for axis, ((low, high), extent) in enumerate(zip(box, mask.shape, strict=True)):
            if (low, high) != (0, extent) and fill.shape[axis + 1] > 1:
                return None
        return fill

    def _load_checked(self, access: Access, other: TileValue | None) -> TileValue:
        """Element by element through index tensors, bad lanes reported and masked off."""
        if isinstance(access.mask, int) and not access.mask:
            return self._fill(access.op, other)
        offsets, allowed = self._checked(access)
        flat = access.buffer.flat(self.dtype_of(loaded_type(access.op)))
        if flat.numel() == 0:
            return self._fill(access.op, other)
        if allowed is None:
            values = flat[offsets + access.buffer.storage_offset]
            return self._loaded(access.op, values)
        safe = torch.where(allowed, offsets, 0) + access.buffer.storage_offset
        values = flat[safe.clamp_(max=flat.numel() - 1)]
        fill = self._other(access.op, other, values)
        return self._loaded(access.op, torch.where(allowed, values, fill))

    # Stores

    def _store_active(self, access: Access, value: TileValue) -> None:
        if self.active is None:
            self._store(access, value)
            return
        chosen = self.active.nonzero().reshape(-1)
        dense = self.dense(value, access.op.operands[1].type)
        self._store(self._narrowed(access, chosen), dense if dense.shape[0] == 1 else dense[chosen])

    def _store(self, access: Access, value: TileValue) -> None:
        if not self.followers:
            self._store_legal(access, value)
            return
        stored = self.dense(value, access.op.operands[1].type)
        touched = self._touched(access)
        rows = touched.programs - self.first
        if access.programs is not None:
            rows = torch.searchsorted(access.programs, rows)
        values = stored.expand(-1, *access.shape).reshape(stored.shape[0], -1)
        picked = values[rows if stored.shape[0] > 1 else 0, touched.lanes]
        self.tell_store(
            access.op, access.buffer, touched, picked, lambda: self._store_legal(access, stored)
        )

    def _store_legal(self, access: Access, value: TileValue) -> None:
        mask = access.mask
        type_ = access.op.operands[1].type
        kind = self.dtype_of(type_)
        if isinstance(mask, int):
            if mask and access.buffer.proves_legal(access.tile):
                if isinstance(value, DeferredTile) and value.box is None:
                    if self.access.write_deferred(access.buffer, kind, access.tile, value):
                        return
                self.access.write(access.buffer, kind, access.tile, self.dense(value, type_))
            elif mask:
                self._store_checked(access, value)
            return
        if isinstance(mask, BoxMask):
            self._store_boxed(access, mask, value)
            return
        self._store_checked(access, value)

    def _store_boxed(self, access: Access, mask: BoxMask, value: TileValue) -> None:
        type_ = access.op.operands[1].type
        kind = self.dtype_of(type_)
        box = mask.uniform_box
        if box is not None:
            tile = access.tile.cropped(box)
            if access.buffer.proves_legal(tile):
                if isinstance(value, DeferredTile) and value.box == box:
                    if self.access.write_deferred(access.buffer, kind, tile, value):
                        return
                self.access.write(access.buffer, kind, tile, self.crop(value, type_, box))
                return
            self._store_checked(access, value)
            return
        count = self._batch(access)
        full = self.masks.full_programs(mask, count)
        whole = self._leading(full)
        if whole == 0 or int(full.sum()) != whole or access.tile.base is None:
            self._store_checked(access, value)
            return
        head = self._narrowed(access, slice(0, whole))
        if not access.buffer.proves_legal(head.tile):
            self._store_checked(access, value)
            return
        dense = self.dense(value, type_)
        several = dense.shape[0] > 1
        self.access.write(access.buffer, kind, head.tile, dense[:whole] if several else dense)
        tail = self._narrowed(access, slice(whole, count))
        self._store_checked(tail, dense[whole:] if several else dense)

    def _store_checked(self, access: Access, value: TileValue) -> None:
        if isinstance(access.mask, int) and not access.mask:
            return
        type_ = access.op.operands[1].type
        offsets, allowed = self._checked(access)
        flat = access.buffer.flat(self.dtype_of(type_))
        stored = self.dense(value, type_)
        offsets = offsets + access.buffer.storage_offset
        if allowed is None:
            self.access.scatter(flat, offsets, self._spread(stored, offsets, access))
            return
        count = max(allowed.shape[0], offsets.shape[0], stored.shape[0])
        shape = (count, *access.shape)
        keep = allowed.expand(shape).reshape(-1).nonzero().reshape(-1)
        offsets = torch.index_select(offsets.expand(shape).reshape(-1), 0, keep)
        values = torch.index_select(stored.expand(shape).reshape(-1), 0, keep)
        self.access.scatter_flat(flat, offsets, values)

    def _spread(self, stored: Tensor, offsets: Tensor, access: Access) -> Tensor:
        count = max(stored.shape[0], offsets.shape[0])
        return stored.expand(count, *access.shape)
