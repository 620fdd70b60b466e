"""Loads and stores through tiles of pointers: into one buffer, or by bare byte addresses.

The mask is looked at first. An access through one buffer goes on in `buffer_access`. An address
that a kernel read from memory, or chose between tensors, is resolved to the buffers it may point
into: program by program if each program's tile lies in one buffer, and then as a plain access to
that buffer; element by element otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.analysis.global_memory import loaded_root
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.address_registry import ADDRESSES
from tkdebug.interpreter.memory.buffer_access import (
    fill_of,
    load_access,
    load_active,
    loaded_value,
    plain_mask,
    store_access,
    store_active,
)
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.checked_access import Access, loaded_type, mask_of, narrow_value
from tkdebug.interpreter.memory.observed_access import (
    ObservedAccess,
    elements_touched,
    tell_read,
    tell_store,
)
from tkdebug.interpreter.memory.pointers import affine_of, byte_addresses
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import AddressTile, AffineTile, PointerTile, TileValue
from tkdebug.records.events import FaultKind

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def resolved(
    run: Evaluator,
    op: Operation,
    pointer: AddressTile,
    mask: TileValue,
    kind: FaultKind,
    shape: Any,
) -> list[tuple[Buffer, Tensor, Tensor]]:
    """Return each buffer with element offsets and where these are legal; report the others."""
    address = run.materialize(affine_of(run, pointer.address, shape))
    wanted = (
        run.dense(mask, ir.tile(shape, ir.I1))
        if not isinstance(mask, int)
        else (torch.ones((1,) * (len(shape) + 1), dtype=torch.bool, device=run.device))
    )
    if run.active is not None:
        wanted = wanted & run.active.reshape(-1, *(1,) * len(shape))
    rest = wanted
    found = []
    own = _OwnBuffers.of(run, op, pointer)
    # A buffer that holds the very element comes before one that merely surrounds it.
    for strict in (True, False):
        for buffer in _candidates(run, pointer, address):
            known = buffer.reinterpreted(pointer.itemsize)
            if not strict and known.is_dense:
                continue
            offsets = (address - buffer.address).div(pointer.itemsize, rounding_mode="floor")
            inside = rest & ~known.outside(offsets)
            if own is not None:
                inside = inside & own.may_touch(buffer)
            if strict:
                inside = inside & ~known.between(offsets)
            if not bool(inside.any()):
                continue
            if not strict:
                _report_addresses(run, op, "between-elements", known, inside, offsets, shape)
            found.append((known, offsets, inside))
            rest = rest & ~inside
        if not bool(rest.any()):
            return found
    if len(pointer.buffers) == 1:
        # Whatever it was cast to: it is that tensor's pointer.
        known = pointer.buffers[0].reinterpreted(pointer.itemsize)
        size = pointer.itemsize
        offsets = (address - known.address).div(size, rounding_mode="floor")
        _report_addresses(run, op, kind, known, rest, offsets, shape)
        return found
    for buffer in () if own is None else own.buffers:
        assert own is not None
        astray = rest & own.is_of(buffer)
        if bool(astray.any()):
            known = buffer.reinterpreted(pointer.itemsize)
            offsets = (address - known.address).div(pointer.itemsize, rounding_mode="floor")
            _report_addresses(run, op, kind, known, astray, offsets, shape)
            rest = rest & ~astray
    if bool(rest.any()):
        _report_addresses(run, op, kind, None, rest, address, shape)
    return found


class _OwnBuffers:
    """The buffer of each program's base pointer, which a tile's pointers are offsets from.

    Attributes:
        buffers: the buffers of the programs.
    """

    def __init__(self, origins: Tensor, candidates: Sequence[Buffer], itemsize: int) -> None:
        self.buffers: list[Buffer] = []
        self._of = torch.full_like(origins, -1)
        for buffer in sorted(candidates, key=lambda one: -one.hull_elems):
            offset = origins - buffer.address
            inside = (offset >= 0) & (offset < buffer.hull_elems * buffer.itemsize)
            inside &= (self._of < 0) & (offset % itemsize == 0)
            if bool(inside.any()):
                self._of[inside] = len(self.buffers)
                self.buffers.append(buffer)

    @classmethod
    def of(cls, run: Evaluator, op: Operation, pointer: AddressTile) -> _OwnBuffers | None:
        """Return the buffers of an access; None if pointers of a tile may be unrelated."""
        root = loaded_root(op)
        value = None if root is None else run.values.get(root)
        if not isinstance(value, AddressTile):
            return None
        origins = run.dense(value.address, ir.I64)
        rank = len(ir.shape_of(PointerAccess(op).pointer.type))
        shaped = origins.reshape(-1, *(1,) * rank)
        return cls(shaped, _candidates(run, pointer, origins), pointer.itemsize)

    def is_of(self, buffer: Buffer) -> Tensor:
        """Return, by program, whether its base pointer is into `buffer`, bool."""
        number = self.buffers.index(buffer) if buffer in self.buffers else len(self.buffers)
        return self._of == number

    def may_touch(self, buffer: Buffer) -> Tensor:
        """Return, by program, whether its base pointer is into `buffer` or no known one, bool."""
        return self.is_of(buffer) | (self._of < 0)


def _report_addresses(
    run: Evaluator,
    op: Operation,
    kind: FaultKind,
    buffer: Buffer | None,
    bad: Tensor,
    at: Tensor,
    shape: tuple[int, ...],
) -> None:
    # What is the same in the whole batch has one row for all its programs.
    whole = bad.expand(run.programs, *shape)
    if run.active is not None and bad.shape[0] == 1:
        whole = whole & run.active.reshape(-1, *(1,) * (whole.dim() - 1))
    offender = run.offender(whole, at.expand(whole.shape), None)
    run.faults.bad_access(op, kind, buffer, offender, int(whole.sum()), mask_of(op))


def _candidates(run: Evaluator, pointer: AddressTile, address: Tensor) -> Sequence[Buffer]:
    """Return the buffers that a pointer may point into; for a loaded one, those in reach."""
    if pointer.buffers:
        return pointer.buffers
    if run.known_buffers is None:
        run.known_buffers = (*run.buffers, *ADDRESSES.buffers())
    low, high = (int(v) for v in address.aminmax())
    return [
        buffer
        for buffer in run.known_buffers
        if buffer.address <= high and low < buffer.address + buffer.hull_elems * buffer.itemsize
    ]


def load_addresses(
    run: Evaluator, op: Operation, pointer: AddressTile, mask: TileValue, other: TileValue | None
) -> TileValue:
    """Load what `op` reads through bare byte addresses."""
    type_ = loaded_type(op)
    shape, kind = ir.shape_of(type_), run.dtype_of(type_)
    parts = _by_program(run, op, "oob-load", type_, pointer, mask)
    if parts is not None:
        return _load_parts(run, op, parts, other)
    out = run.full(_dense_fill(run, op, other), type_)
    for buffer, offsets, inside in resolved(run, op, pointer, mask, "oob-load", shape):
        flat = buffer.flat(kind)
        safe = torch.where(inside, offsets + buffer.storage_offset, 0)
        values = flat[safe]
        out = torch.where(inside, values, out)
        if any(one.sees_reads for one in run.followers):
            elements = partial(elements_touched, run, buffer, offsets, inside, shape)
            tell_read(run, ObservedAccess(run, op, buffer, shape, elements), values)
    return loaded_value(op, out)


def _dense_fill(run: Evaluator, op: Operation, other: TileValue | None) -> Tensor:
    if other is not None:
        return run.dense(other, loaded_type(op))
    rank = len(ir.shape_of(loaded_type(op)))
    kind = run.dtype_of(loaded_type(op))
    return torch.zeros((1,) * (rank + 1), dtype=kind, device=run.device)


def store_addresses(
    run: Evaluator,
    op: Operation,
    type_: ir.Type,
    pointer: AddressTile,
    value: TileValue,
    mask: TileValue,
) -> None:
    """Store `value`, of type `type_`, through bare byte addresses."""
    shape = ir.shape_of(type_)
    stored = run.dense(value, type_)
    parts = _by_program(run, op, "oob-store", type_, pointer, mask)
    if parts is not None:
        for part in parts:
            chosen = part.programs
            store_access(run, part, stored if stored.shape[0] == 1 else stored[chosen])
        return
    for buffer, offsets, inside in resolved(run, op, pointer, mask, "oob-store", shape):
        count = max(inside.shape[0], stored.shape[0], offsets.shape[0])
        whole = (count, *shape)
        keep = inside.expand(whole).reshape(-1).nonzero().reshape(-1)
        places = (offsets + buffer.storage_offset).expand(whole).reshape(-1)[keep]
        flat = buffer.flat(stored.dtype)
        values = stored.expand(whole).reshape(-1)[keep]
        if not run.followers:
            run.access.scatter_flat(flat, places, values)
            continue
        elements = partial(elements_touched, run, buffer, offsets, inside, shape)
        observed = ObservedAccess(run, op, buffer, shape, elements, values=stored)
        tell_store(run, observed, partial(_scatter, run, flat, places, values))


def _scatter(run: Evaluator, flat: Tensor, places: Tensor, values: Tensor, _: TileValue) -> None:
    run.access.scatter_flat(flat, places, values)


def _by_program(
    run: Evaluator,
    op: Operation,
    kind: FaultKind,
    type_: ir.Type,
    pointer: AddressTile,
    mask: TileValue,
) -> list[Access] | None:
    """Return one access per buffer, or None unless each program's tile starts inside a buffer."""
    shape = ir.shape_of(type_)
    size = pointer.itemsize
    address = affine_of(run, pointer.address, shape)
    base = address.base
    if base is None or not base.is_per_program or any(c % size for c in address.coefs):
        return None
    starts = (base.tensor.reshape(-1) + address.const).expand(run.programs)
    pending = torch.arange(run.programs, device=run.device)
    if run.active is not None:
        pending = pending[run.active]
    parts = []
    coefs = tuple(coef // size for coef in address.coefs)
    candidates = sorted(_candidates(run, pointer, starts), key=lambda b: -b.hull_elems)
    known_buffers = [buffer.reinterpreted(size) for buffer in candidates]
    # Columns of one tensor lie between each other's: what holds the very element comes first.
    around = [(known, False) for known in known_buffers if not known.is_dense]
    for known, strict in [*((known, True) for known in known_buffers), *around]:
        offsets = starts[pending] - known.address
        inside = (offsets >= 0) & (offsets < known.hull_elems * size) & (offsets % size == 0)
        if strict:
            inside &= ~known.between(offsets.div(size, rounding_mode="floor"))
        if not bool(inside.any()):
            continue
        chosen, offsets = pending[inside], offsets[inside].div(size, rounding_mode="floor")
        tile = AffineTile(0, Base(offsets.reshape(-1, *(1,) * len(shape))), coefs, shape)
        narrowed = run.masks.select_programs(mask, chosen)
        parts.append(Access(op, kind, type_, known, tile, narrowed, chosen))
        pending = pending[~inside]
    return parts if pending.numel() == 0 else None


def _load_parts(
    run: Evaluator, op: Operation, parts: list[Access], other: TileValue | None
) -> TileValue:
    """Load each part and put its programs' tiles in their places."""
    type_ = loaded_type(op)
    out = torch.zeros(
        (run.programs, *ir.shape_of(type_)), dtype=run.dtype_of(type_), device=run.device
    )
    for part in parts:
        chosen = part.programs
        assert chosen is not None
        loaded = load_access(run, part, narrow_value(run, other, op, chosen))
        if isinstance(loaded, AddressTile):
            loaded = loaded.address
        out[chosen] = run.dense(loaded, type_)
    return loaded_value(op, out)


def load(
    run: Evaluator,
    view: tt.Load,
    pointer: TileValue,
    mask: TileValue = 1,
    other: TileValue | None = None,
) -> TileValue:
    """tt.load."""
    return load_pointers(run, view.op, pointer, mask, other)


def load_pointers(
    run: Evaluator, op: Operation, pointer: TileValue, mask: TileValue, other: TileValue | None
) -> TileValue:
    """Load the elements that the access `op` reads at a tile of pointers."""
    mask = plain_mask(run, mask)
    if isinstance(mask, int) and not mask:
        return fill_of(run, op, other)
    if isinstance(pointer, AddressTile):
        return load_addresses(run, op, pointer, mask, other)
    assert isinstance(pointer, PointerTile)
    type_ = loaded_type(op)
    tile = affine_of(run, pointer.offset, ir.shape_of(type_))
    return load_active(run, Access(op, "oob-load", type_, pointer.buffer, tile, mask), other)


def store(
    run: Evaluator, view: tt.Store, pointer: TileValue, value: TileValue, mask: TileValue = 1
) -> Sequence[TileValue]:
    """tt.store."""
    mask = plain_mask(run, mask)
    if isinstance(mask, int) and not mask:
        return ()
    if isinstance(value, PointerTile | AddressTile):
        value = byte_addresses(value)
    op, type_ = view.op, view.value.type
    if isinstance(pointer, AddressTile):
        store_addresses(run, op, type_, pointer, value, mask)
        return ()
    assert isinstance(pointer, PointerTile)
    tile = affine_of(run, pointer.offset, ir.shape_of(type_))
    store_active(run, Access(op, "oob-store", type_, pointer.buffer, tile, mask), value)
    return ()
