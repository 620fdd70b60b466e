"""Tiles through scratch shared memory: written in one layout, read in another.

Reductions, scans, sorts and flips share this. The buffer is chosen as for layout conversions,
without bank conflicts; each side takes the widest vectors it can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from tkdebug.compiler.layouts import LANE, OFFSET, WARP, LinearLayout, SharedTrip, f2
from tkdebug.compiler.layouts.conversion import plan_shared_trip
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.targets.nvptx.architectures import BANKS
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.conversions import shared_addresses
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import (
    load_groups,
    plan_vectors,
    store_groups,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Registers

SCRATCH_ALIGNMENT_BYTES = 16
_CACHED_PLANS = 256


@lru_cache(_CACHED_PLANS)
def planned_trip(source: LinearLayout, target: LinearLayout, element_bytes: int) -> SharedTrip:
    """The trip from `source` to `target` (see `layouts.conversion`), cached."""
    return plan_shared_trip(source, target, element_bytes, BANKS)


def trip_bytes(source: LinearLayout, target: LinearLayout, element_bytes: int) -> int:
    """Bytes of scratch that a trip takes, a multiple of 16."""
    size = planned_trip(source, target, element_bytes).buffer.in_size(OFFSET) * element_bytes
    return -(-size // SCRATCH_ALIGNMENT_BYTES) * SCRATCH_ALIGNMENT_BYTES


def write_tile(
    ctx: Lowering,
    base: LLVMValue,
    source: LinearLayout,
    target: LinearLayout,
    element_bytes: int,
    values: Registers,
) -> None:
    """Write the registers of a tile in `source` to the trip's buffer at `base`."""
    buffer = planned_trip(source, target, element_bytes).buffer
    plan = plan_vectors(source, buffer, element_bytes)
    addresses = shared_addresses(ctx, base, source, buffer, plan.groups, element_bytes)
    store_groups(ctx, addresses, plan.groups, values, ctx.owner(source))


def read_tile(
    ctx: Lowering,
    base: LLVMValue,
    source: LinearLayout,
    target: LinearLayout,
    element_bytes: int,
    type_: str,
) -> Registers:
    """Read the tile that `write_tile` has written, as the registers of `target`."""
    buffer = planned_trip(source, target, element_bytes).buffer
    return _read_vectors(ctx, base, target, buffer, type_, element_bytes)


def exchange_tiles(
    ctx: Lowering,
    base: LLVMValue,
    source: LinearLayout,
    target: LinearLayout,
    tiles: Sequence[Registers],
    element_bytes: Sequence[int],
) -> list[Registers]:
    """Move tiles from layout `source` to `target` through scratch memory at `base`."""
    places = []
    offset = 0
    for size in element_bytes:
        places.append(ctx.emit.gep(base, "i8", offset))
        offset += trip_bytes(source, target, size)
    for tile, place, size in zip(tiles, places, element_bytes, strict=True):
        write_tile(ctx, place, source, target, size, tile)
    ctx.barrier()
    return [
        read_tile(ctx, place, source, target, size, tile[0].type)
        for tile, place, size in zip(tiles, places, element_bytes, strict=True)
    ]


# Tiles whose elements trade places at a fixed distance


def distance_bytes(layout: LinearLayout, element_bytes: int, warp_xor: int) -> int:
    """Bytes of scratch that `from_distance` takes."""
    return trip_bytes(layout, layout, element_bytes) if warp_xor else 0


def from_distance(
    ctx: Lowering,
    base: LLVMValue | None,
    layout: LinearLayout,
    values: Registers,
    lane_xor: int,
    warp_xor: int,
    element_bytes: int,
) -> Registers:
    """The registers of the thread whose lane and warp differ by XOR.

    Args:
        ctx: the kernel.
        base: scratch of `distance_bytes`; None if the warp stays.
        layout: the layout of the tile.
        values: the tile's registers.
        lane_xor: the lane bits that differ.
        warp_xor: the warp bits that differ.
        element_bytes: size of an element in memory.
    """
    if not warp_xor:
        return [ctx.shuffle("bfly", value, lane_xor) for value in values] if lane_xor else values
    assert base is not None
    write_tile(ctx, base, layout, layout, element_bytes, values)
    ctx.barrier()
    buffer = planned_trip(layout, layout, element_bytes).buffer
    place = layout.pack_in({LANE: lane_xor, WARP: warp_xor})
    moved = f2.combine(layout.columns, place)
    distance = buffer.unpack_in(buffer.solve(moved))[OFFSET]
    return _read_vectors(ctx, base, layout, buffer, values[0].type, element_bytes, distance)


def _read_vectors(
    ctx: Lowering,
    base: LLVMValue,
    layout: LinearLayout,
    buffer: LinearLayout,
    type_: str,
    element_bytes: int,
    fixed_offset: int = 0,
) -> Registers:
    plan = plan_vectors(layout, buffer, element_bytes, fixed_offset)
    addresses = shared_addresses(
        ctx, base, layout, buffer, plan.groups, element_bytes, fixed_offset
    )
    return load_groups(ctx, addresses, plan.groups, plan.copies, type_)


# Whole tiles in row-major order


@lru_cache(_CACHED_PLANS)
def row_major(shape: tuple[int, ...]) -> LinearLayout:
    """Layout of a buffer in which the last dimension runs fastest."""
    return shared(shape, 1, 1, 1, tuple(reversed(range(len(shape)))))


def tile_bytes(shape: tuple[int, ...], element_bytes: int) -> int:
    """Bytes of scratch that a tile takes, a multiple of 16."""
    size = math.prod(shape) * element_bytes
    return -(-size // SCRATCH_ALIGNMENT_BYTES) * SCRATCH_ALIGNMENT_BYTES


def write_rows(
    ctx: Lowering, base: LLVMValue, layout: LinearLayout, values: Registers, element_bytes: int
) -> None:
    """Write a whole tile to scratch in row-major order."""
    buffer = row_major(layout.shape)
    plan = plan_vectors(layout, buffer, element_bytes)
    addresses = shared_addresses(ctx, base, layout, buffer, plan.groups, element_bytes)
    store_groups(ctx, addresses, plan.groups, values, ctx.owner(layout))


def read_rows(
    ctx: Lowering, base: LLVMValue, layout: LinearLayout, type_: str, element_bytes: int
) -> Registers:
    """Read a whole tile from scratch in row-major order."""
    buffer = row_major(layout.shape)
    return _read_vectors(ctx, base, layout, buffer, type_, element_bytes)
