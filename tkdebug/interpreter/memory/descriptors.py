"""Gathers, scatters and reductions through tensor descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.addresses import store_addresses
from tkdebug.interpreter.memory.atomics import in_rounds, plain_add, run_atomic
from tkdebug.interpreter.memory.buffer_access import store_active
from tkdebug.interpreter.memory.checked_access import Access
from tkdebug.interpreter.memory.descriptor_blocks import check_start, descriptor_access, tile_scalar
from tkdebug.interpreter.memory.loads_and_stores import load_pointers
from tkdebug.interpreter.memory.pointers import affine_of
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    AffineTile,
    DescriptorTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


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
    # What the mask excludes must not disturb the proof that the rest is legal.
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
