"""Tensor descriptors: how programs make them, and what is read and written through them.

Blocks become pointer tiles and masks on the spot. A block of one axis has to begin at a multiple of
`tt.DESCRIPTOR_ALIGNMENT_BYTES`: a bulk copy of one that does not ends with an illegal instruction
(H200, Triton 3.6). Such blocks are reported, and so are descriptors without the alignment that TMA
asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.atomics import in_rounds, plain_add, run_atomic
from tkdebug.interpreter.memory.buffer_access import store_active
from tkdebug.interpreter.memory.checked_access import Access, loaded_type
from tkdebug.interpreter.memory.loads_and_stores import load_pointers, store_addresses
from tkdebug.interpreter.memory.pointers import affine_of, sum_of, wrapped
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    AffineTile,
    BoxMask,
    DescriptorTile,
    IntTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def descriptor_access(
    run: Evaluator, descriptor: DescriptorTile, shape: tuple[int, ...], offsets: Sequence[TileValue]
) -> tuple[TileValue, TileValue]:
    """Pointer tile and mask of a block: inside the descriptor's shape along every axis."""
    rank = len(shape)
    total: IntTile = 0
    mask: TileValue = 1
    for axis, extent in enumerate(shape):
        coefs = tuple(int(a == axis and extent > 1) for a in range(rank))
        start = tile_scalar(offsets[axis], shape)
        position = run.index.affine_add(AffineTile(0, None, coefs, shape), start, shape)
        limit = tile_scalar(descriptor.shape[axis], shape)
        for difference in (
            run.index.affine_add(position, run.index.negated(limit, shape), shape),
            run.index.negated(position, shape).shifted(-1),
        ):
            mask = _and_negative(run, mask, difference)
        stride = descriptor.strides[axis]
        total = sum_of(run, total, _times(run, position, stride, shape), shape)
    base = descriptor.base
    if isinstance(base, PointerTile):
        origin = tile_scalar(base.offset, shape)
        offset = sum_of(run, total, origin, shape)
        return PointerTile(base.buffer, wrapped(run, offset, base.buffer.itemsize)), mask
    size = base.itemsize
    scaled = _times(run, affine_of(run, total, shape), size, shape)
    address = sum_of(run, scaled, tile_scalar(base.address, shape), shape)
    return AddressTile(wrapped(run, address), base.buffers, size), mask


def check_start(
    run: Evaluator,
    op: Operation,
    descriptor: DescriptorTile,
    shape: tuple[int, ...],
    offsets: Sequence[TileValue],
) -> None:
    """Record a block of one axis that begins between units of bulk copies."""
    if len(shape) != 1:
        return
    base, (start,) = descriptor.base, offsets
    size = base.buffer.itemsize if isinstance(base, PointerTile) else base.itemsize
    unit = tt.DESCRIPTOR_ALIGNMENT_BYTES // size
    if unit <= 1 or (isinstance(start, int) and start % unit == 0):
        return
    begins = run.materialize(tile_scalar(start, ())).reshape(-1)
    bad = (begins % unit != 0).expand(run.programs)
    if run.active is not None:
        bad = bad & run.active
    if bool(bad.any()):
        name = base.buffer.name if isinstance(base, PointerTile) else None
        offender = run.offender(bad, begins.expand(run.programs), None)
        run.faults.misaligned_block(op, name, unit, offender, int(bad.sum()))


def tile_scalar(value: TileValue, shape: tuple[int, ...]) -> AffineTile:
    """A scalar in every element of a tile."""
    rank = len(shape)
    if isinstance(value, int):
        return AffineTile(value, None, (0,) * rank, shape)
    if isinstance(value, AffineTile):
        base = value.base
        if base is not None:
            base = base.reshaped((base.shape[0], *(1,) * rank))
        return AffineTile(value.const, base, (0,) * rank, shape)
    assert isinstance(value, torch.Tensor)
    tensor = value.to(torch.int64).reshape(-1, *(1,) * rank)
    return AffineTile(0, Base(tensor), (0,) * rank, shape)


def _times(
    run: Evaluator, tile: AffineTile, factor: TileValue, shape: tuple[int, ...]
) -> AffineTile:
    if isinstance(factor, int):
        base = None if tile.base is None else tile.base.times_modulo(factor)
        return AffineTile(tile.const * factor, base, tuple(c * factor for c in tile.coefs), shape)
    dense = run.materialize(tile) * run.materialize(tile_scalar(factor, shape))
    return AffineTile(0, Base(dense), (0,) * len(shape), shape)


def _and_negative(run: Evaluator, mask: TileValue, difference: AffineTile) -> TileValue:
    """Return `mask and difference < 0` as a mask."""
    low, high = difference.bounds()
    if high < 0 or (isinstance(mask, int) and not mask):
        return mask
    if low >= 0:
        return 0
    axes = [axis for axis, coef in enumerate(difference.coefs) if coef]
    base = difference.base
    piece: TileValue
    if len(axes) == 1 and (base is None or base.is_per_program):
        piece = run.index.half_line(difference, axes[0])
    else:
        piece = run.materialize(difference) < 0
    if isinstance(piece, int) or isinstance(mask, int):
        return (piece if mask else 0) if isinstance(mask, int) else (mask if piece else 0)
    if isinstance(piece, BoxMask) and isinstance(mask, BoxMask):
        return run.masks.intersect_boxes(mask, piece)
    type_ = ir.tile(difference.shape, ir.I1)
    return run.dense(mask, type_) & run.dense(piece, type_)


def descriptor_load(
    run: Evaluator, view: tt.DescriptorLoad, descriptor: TileValue, *offsets: TileValue
) -> TileValue:
    """tt.descriptor_load."""
    return load_block(run, view.op, descriptor, offsets)


def load_block(
    run: Evaluator, op: Operation, descriptor: TileValue, offsets: Sequence[TileValue]
) -> TileValue:
    """The block at some offsets, padded, for the access `op`."""
    assert isinstance(descriptor, DescriptorTile)
    block = loaded_type(op)
    assert isinstance(block, ir.TensorType)
    check_start(run, op, descriptor, block.shape, offsets)
    pointer, mask = descriptor_access(run, descriptor, block.shape, offsets)
    other = None
    if descriptor.padding == "nan":
        other = run.constant(block, float("nan"))
    return load_pointers(run, op, pointer, mask, other)


def descriptor_store(
    run: Evaluator,
    view: tt.DescriptorStore,
    descriptor: TileValue,
    value: TileValue,
    *offsets: TileValue,
) -> Sequence[TileValue]:
    """tt.descriptor_store."""
    store_block(run, view.op, view.value.type, descriptor, value, offsets)
    return ()


def store_block(
    run: Evaluator,
    op: Operation,
    block: ir.Type,
    descriptor: TileValue,
    value: TileValue,
    offsets: Sequence[TileValue],
) -> None:
    """Write `value`, of type `block`, at some offsets, for the access `op`."""
    assert isinstance(descriptor, DescriptorTile)
    assert isinstance(block, ir.TensorType | ir.MemDescType)
    check_start(run, op, descriptor, block.shape, offsets)
    pointer, mask = descriptor_access(run, descriptor, block.shape, offsets)
    if isinstance(mask, int) and not mask:
        return
    if isinstance(pointer, AddressTile):
        store_addresses(run, op, block, pointer, value, mask)
        return
    assert isinstance(pointer, PointerTile)
    tile = affine_of(run, pointer.offset, block.shape)
    store_active(run, Access(op, "oob-store", block, pointer.buffer, tile, mask), value)


def make_descriptor(
    run: Evaluator, view: tt.MakeTensorDescriptor, base: TileValue, *rest: IntTile
) -> DescriptorTile:
    """tt.make_tensor_descriptor."""
    assert isinstance(base, PointerTile | AddressTile)
    rank = len(rest) // 2
    descriptor = DescriptorTile(base, rest[:rank], rest[rank:], view.padding)
    _check_alignment(run, view, descriptor)
    return descriptor


def _check_alignment(
    run: Evaluator, view: tt.MakeTensorDescriptor, descriptor: DescriptorTile
) -> None:
    """Record a base or a stride that is no multiple of `tt.DESCRIPTOR_ALIGNMENT_BYTES`."""
    base = descriptor.base
    name = base.buffer.name if isinstance(base, PointerTile) else None
    size = base.buffer.itemsize if isinstance(base, PointerTile) else base.itemsize
    parts = [("address", _address(run, descriptor))]
    strides = enumerate(descriptor.strides[:-1])
    parts += [(f"stride {axis}", _scalar(run, stride) * size) for axis, stride in strides]
    active = run.active
    found = {}
    for part, value in parts:
        bad = (value % tt.DESCRIPTOR_ALIGNMENT_BYTES != 0).expand(run.programs)
        bad = bad if active is None else bad & active
        if bool(bad.any()):
            found[part] = (bad, run.offender(bad, value, None))
    if found:
        part, (bad, offender) = next(iter(found.items()))
        programs = torch.stack([bad for bad, _ in found.values()]).any(0)
        run.faults.misaligned_descriptor(view.op, name, part, offender, int(programs.sum()))


def _address(run: Evaluator, descriptor: DescriptorTile) -> Tensor:
    """Return the byte offset from the allocation's start, which is aligned; or a bare address."""
    base = descriptor.base
    if isinstance(base, PointerTile):
        offset = _scalar(run, base.offset) + base.buffer.storage_offset
        return offset * base.buffer.itemsize
    return _scalar(run, base.address)


def _scalar(run: Evaluator, value: IntTile) -> Tensor:
    """Return a value for each program, or one for all of them: int64, one axis."""
    return run.materialize(tile_scalar(value, ())).reshape(-1)


def descriptor_gather(
    run: Evaluator,
    view: tt.DescriptorGather,
    descriptor: TileValue,
    rows: TileValue,
    column: TileValue,
) -> TileValue:
    """tt.descriptor_gather."""
    assert isinstance(descriptor, DescriptorTile)
    type_ = view.result.type
    pointer, mask = row_access(run, descriptor, ir.shape_of(type_), rows, view.rows.type, column)
    other = None
    if descriptor.padding == "nan":
        other = run.constant(type_, float("nan"))
    return load_pointers(run, view.op, pointer, mask, other)


def descriptor_scatter(
    run: Evaluator,
    view: tt.DescriptorScatter,
    descriptor: TileValue,
    value: TileValue,
    rows: TileValue,
    column: TileValue,
) -> Sequence[TileValue]:
    """tt.descriptor_scatter."""
    assert isinstance(descriptor, DescriptorTile)
    op, type_ = view.op, view.value.type
    shape = ir.shape_of(type_)
    pointer, mask = row_access(run, descriptor, shape, rows, view.rows.type, column)
    if isinstance(pointer, AddressTile):
        store_addresses(run, op, type_, pointer, value, mask)
        return ()
    assert isinstance(pointer, PointerTile)
    tile = affine_of(run, pointer.offset, shape)
    store_active(run, Access(op, "oob-store", type_, pointer.buffer, tile, mask), value)
    return ()


def row_access(
    run: Evaluator,
    descriptor: DescriptorTile,
    shape: tuple[int, ...],
    rows: TileValue,
    rows_type: ir.Type,
    column: TileValue,
) -> tuple[TileValue, Tensor]:
    """Pointers and mask of the elements of some rows, from a column on."""
    row = run.full(rows, rows_type).to(torch.int64).unsqueeze(2)
    start = run.materialize(tile_scalar(column, shape))
    place = start + run.positions(1, shape[1], 2)
    extents = [run.materialize(tile_scalar(e, shape)) for e in descriptor.shape]
    mask = (row >= 0) & (row < extents[0]) & (place >= 0) & (place < extents[1])
    strides = [run.materialize(tile_scalar(s, shape)) for s in descriptor.strides]
    offset = row * strides[0] + place * strides[1]
    # Masked-off elements must not disturb the proof that the rest is legal.
    offset = torch.where(mask, offset, 0)
    base = descriptor.base
    if isinstance(base, PointerTile):
        origin = run.materialize(tile_scalar(base.offset, shape))
        return PointerTile(base.buffer, _index_tile(offset + origin, shape)), mask
    origin = run.materialize(tile_scalar(base.address, shape))
    address = _index_tile(offset * base.itemsize + origin, shape)
    return AddressTile(address, base.buffers, base.itemsize), mask


def descriptor_reduce(
    run: Evaluator,
    view: tt.DescriptorReduce,
    descriptor: TileValue,
    value: TileValue,
    *offsets: TileValue,
) -> Sequence[TileValue]:
    """tt.descriptor_reduce: a combination in memory whose old values are unused."""
    assert isinstance(descriptor, DescriptorTile)
    block, kind = view.value.type, view.kind
    assert isinstance(block, ir.TensorType)
    check_start(run, view.op, descriptor, block.shape, offsets)
    pointer, mask = descriptor_access(run, descriptor, block.shape, offsets)
    stored = run.dense(value, block)
    apply = partial(plain_add, run) if kind in ("add", "fadd") else in_rounds(run, kind)
    run_atomic(run, view.op, block, pointer, mask, (stored,), apply)
    return ()


def _index_tile(offsets: Tensor, shape: tuple[int, ...]) -> AffineTile:
    return AffineTile(0, Base(offsets), (0,) * len(shape), shape)
