"""Pointers: loads and stores through one buffer, or through bare byte addresses.

An address that a kernel read from memory, or chose between tensors, is resolved to the buffers
it may point into: program by program where each program's tile lies in one buffer, and then as a
plain access to that buffer; element by element otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.events import FaultKind
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.checked_access import Access, loaded_type, mask_of
from tkdebug.interpreter.memory import MemoryOps
from tkdebug.interpreter.registry import ADDRESSES
from tkdebug.interpreter.values import (
    AddressTile,
    AffineTile,
    Base,
    PointerTile,
    TileValue,
)


class AddressOps(MemoryOps):
    """tt.load and tt.store on any kind of pointer."""

    def load(
        self, op: Operation, pointer: TileValue, mask: TileValue = 1, other: TileValue | None = None
    ) -> TileValue:
        """tt.load."""
        mask = self._plain_mask(mask, op)
        if isinstance(mask, int) and not mask:
            return self._fill(op, other)
        if isinstance(pointer, AddressTile):
            return self._load_addresses(op, pointer, mask, other)
        assert isinstance(pointer, PointerTile)
        tile = self.affine_of(pointer.offset, ir.shape_of(loaded_type(op)))
        access = Access(op, "oob-load", pointer.buffer, tile, mask, None)
        return self._load_active(access, other)

    def store(
        self, op: Operation, pointer: TileValue, value: TileValue, mask: TileValue = 1
    ) -> Sequence[TileValue]:
        """tt.store."""
        mask = self._plain_mask(mask, op)
        if isinstance(mask, int) and not mask:
            return ()
        if isinstance(value, PointerTile | AddressTile):
            value = self.addresses(value)
        if isinstance(pointer, AddressTile):
            self._store_addresses(op, pointer, value, mask)
            return ()
        assert isinstance(pointer, PointerTile)
        shape = ir.shape_of(op.operands[0].type)
        tile = self.affine_of(pointer.offset, shape)
        self._store_active(Access(op, "oob-store", pointer.buffer, tile, mask, None), value)
        return ()

    # Pointers without one known buffer

    def addresses(self, pointer: PointerTile | AddressTile) -> TileValue:
        """Byte addresses of pointers, as an integer tile."""
        if isinstance(pointer, AddressTile):
            return pointer.address
        size, start = pointer.buffer.itemsize, pointer.buffer.address
        offset = pointer.offset
        if isinstance(offset, int):
            return start + offset * size
        if not isinstance(offset, AffineTile):
            return offset * size + start
        base = None if offset.base is None else Base(offset.base.tensor * size)
        return AffineTile(
            start + offset.const * size, base, tuple(c * size for c in offset.coefs), offset.shape
        )

    def _resolved(
        self, op: Operation, pointer: AddressTile, mask: TileValue, kind: FaultKind, shape: Any
    ) -> list[tuple[Buffer, Tensor, Tensor]]:
        """For each buffer: element offsets and where they are its own; the rest is reported."""
        address = self.materialize(self.affine_of(pointer.address, shape))
        wanted = (
            self.dense(mask, ir.tile(shape, ir.I1))
            if not isinstance(mask, int)
            else (torch.ones((1,) * (len(shape) + 1), dtype=torch.bool, device=self.device))
        )
        if self.active is not None:
            wanted = wanted & self.active.reshape(-1, *(1,) * len(shape))
        rest = wanted
        found = []
        # A buffer that holds the very element comes before one that merely surrounds it.
        for strict in (True, False):
            for buffer in self._candidates(pointer, address):
                known = buffer.reinterpreted(pointer.itemsize)
                if not strict and known.is_dense:
                    continue
                offsets = (address - buffer.address).div(pointer.itemsize, rounding_mode="floor")
                inside = rest & ~known.outside(offsets)
                if strict:
                    inside = inside & ~known.between(offsets)
                if not bool(inside.any()):
                    continue
                if not strict:
                    self._report_addresses(op, "between-elements", known, inside, offsets)
                found.append((known, offsets, inside))
                rest = rest & ~inside
            if not bool(rest.any()):
                return found
        if len(pointer.buffers) == 1:
            # Whatever it was cast to: it is that tensor's pointer.
            known = pointer.buffers[0].reinterpreted(pointer.itemsize)
            size = pointer.itemsize
            offsets = (address - known.address).div(size, rounding_mode="floor")
            self._report_addresses(op, kind, known, rest, offsets)
        else:
            self._report_addresses(op, kind, None, rest, address)
        return found

    def _report_addresses(
        self, op: Operation, kind: FaultKind, buffer: Buffer | None, bad: Tensor, at: Tensor
    ) -> None:
        # What is the same in the whole batch has one row for all its programs.
        whole = bad.expand(self.programs, *ir.shape_of(op.operands[0].type))
        if self.active is not None and bad.shape[0] == 1:
            whole = whole & self.active.reshape(-1, *(1,) * (whole.dim() - 1))
        offender = self.offender(whole, at.expand(whole.shape), None)
        self.faults.bad_access(op, kind, buffer, offender, int(whole.sum()), mask_of(op))

    def _candidates(self, pointer: AddressTile, address: Tensor) -> Sequence[Buffer]:
        """The buffers a pointer may point into; for a loaded one, the known tensors in reach."""
        if pointer.buffers:
            return pointer.buffers
        if self._known is None:
            self._known = (*self.buffers, *ADDRESSES.buffers())
        low, high = (int(v) for v in address.aminmax())
        return [
            buffer
            for buffer in self._known
            if buffer.address <= high and low < buffer.address + buffer.hull_elems * buffer.itemsize
        ]

    def _load_addresses(
        self, op: Operation, pointer: AddressTile, mask: TileValue, other: TileValue | None
    ) -> TileValue:
        shape = ir.shape_of(loaded_type(op))
        kind = self.dtype_of(loaded_type(op))
        parts = self._by_program(op, "oob-load", pointer, mask, shape)
        if parts is not None:
            return self._load_parts(op, parts, other)
        out = self.full(self._dense_fill(op, other), loaded_type(op))
        for buffer, offsets, inside in self._resolved(op, pointer, mask, "oob-load", shape):
            flat = buffer.flat(kind)
            safe = torch.where(inside, offsets + buffer.storage_offset, 0)
            values = flat[safe]
            out = torch.where(inside, values, out)
            if self.followers:
                touch = partial(self.touched, buffer, offsets, inside, shape)
                self.tell_read(op, buffer, values, touch)
        return self._loaded(op, out)

    def _dense_fill(self, op: Operation, other: TileValue | None) -> Tensor:
        if other is not None:
            return self.dense(other, loaded_type(op))
        rank = len(ir.shape_of(loaded_type(op)))
        kind = self.dtype_of(loaded_type(op))
        return torch.zeros((1,) * (rank + 1), dtype=kind, device=self.device)

    def _store_addresses(
        self, op: Operation, pointer: AddressTile, value: TileValue, mask: TileValue
    ) -> None:
        shape = ir.shape_of(op.operands[1].type)
        stored = self.dense(value, op.operands[1].type)
        parts = self._by_program(op, "oob-store", pointer, mask, shape)
        if parts is not None:
            for part in parts:
                chosen = part.programs
                self._store(part, stored if stored.shape[0] == 1 else stored[chosen])
            return
        for buffer, offsets, inside in self._resolved(op, pointer, mask, "oob-store", shape):
            count = max(inside.shape[0], stored.shape[0], offsets.shape[0])
            whole = (count, *shape)
            keep = inside.expand(whole).reshape(-1).nonzero().reshape(-1)
            places = (offsets + buffer.storage_offset).expand(whole).reshape(-1)[keep]
            flat = buffer.flat(stored.dtype)
            values = stored.expand(whole).reshape(-1)[keep]
            if not self.followers:
                self.access.scatter_flat(flat, places, values)
                continue
            touched = self.touched(buffer, offsets, inside, shape)
            self.tell_store(
                op, buffer, touched, values, partial(self.access.scatter_flat, flat, places, values)
            )

    def _by_program(
        self,
        op: Operation,
        kind: FaultKind,
        pointer: AddressTile,
        mask: TileValue,
        shape: tuple[int, ...],
    ) -> list[Access] | None:
        """One access per buffer, when every active program's tile starts inside one buffer."""
        size = pointer.itemsize
        address = self.affine_of(pointer.address, shape)
        base = address.base
        if base is None or not base.is_per_program or any(c % size for c in address.coefs):
            return None
        starts = (base.tensor.reshape(-1) + address.const).expand(self.programs)
        pending = torch.arange(self.programs, device=self.device)
        if self.active is not None:
            pending = pending[self.active]
        parts = []
        coefs = tuple(coef // size for coef in address.coefs)
        candidates = sorted(self._candidates(pointer, starts), key=lambda b: -b.hull_elems)
        for buffer in candidates:
            known = buffer.reinterpreted(size)
            offsets = starts[pending] - known.address
            inside = (offsets >= 0) & (offsets < known.hull_elems * size) & (offsets % size == 0)
            if not bool(inside.any()):
                continue
            chosen, offsets = pending[inside], offsets[inside].div(size, rounding_mode="floor")
            tile = AffineTile(0, Base(offsets.reshape(-1, *(1,) * len(shape))), coefs, shape)
            narrowed = self.masks.select_programs(mask, chosen)
            parts.append(Access(op, kind, known, tile, narrowed, chosen))
            pending = pending[~inside]
        return parts if pending.numel() == 0 else None

    def _load_parts(self, op: Operation, parts: list[Access], other: TileValue | None) -> TileValue:
        """Load each part and put its programs' tiles in their places."""
        type_ = loaded_type(op)
        out = torch.zeros(
            (self.programs, *ir.shape_of(type_)), dtype=self.dtype_of(type_), device=self.device
        )
        for part in parts:
            chosen = part.programs
            assert chosen is not None
            loaded = self._load(part, self._narrow_value(other, op, chosen))
            if isinstance(loaded, AddressTile):
                loaded = loaded.address
            out[chosen] = self.dense(loaded, type_)
        return self._loaded(op, out)
