"""Tiles through scratch shared memory: written in one layout, read in another.

What reductions, scans, sorts and flips share. The plan (buffer without bank conflicts, vectors) is
that of layout conversions; the barrier between both halves is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tkdebug.compiler.layouts import OFFSET, LinearLayout, SharedTrip
from tkdebug.compiler.layouts.swizzle import plan_shared_trip
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.conversions import shared_addresses
from tkdebug.compiler.targets.nvptx.lowering.shared_access import load_vector, store_vector
from tkdebug.compiler.targets.nvptx.lowering.types import Registers

SCRATCH_ALIGNMENT_BYTES = 16
_CACHED_PLANS = 256


@lru_cache(_CACHED_PLANS)
def planned_trip(source: LinearLayout, target: LinearLayout, element_bytes: int) -> SharedTrip:
    """The trip from `source` to `target` (see `layouts.swizzle`), remembered."""
    return plan_shared_trip(source, target, element_bytes)


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
    trip = planned_trip(source, target, element_bytes)
    addresses = shared_addresses(ctx, base, source, trip.buffer, trip.stores, element_bytes)
    owner = ctx.owner(source)
    for group, address in zip(trip.stores, addresses, strict=True):
        store_vector(ctx, address, [values[register] for register in group], owner)


def read_tile(
    ctx: Lowering,
    base: LLVMValue,
    source: LinearLayout,
    target: LinearLayout,
    element_bytes: int,
    type_: str,
) -> Registers:
    """Read what `write_tile` has written, as the registers of `target`."""
    trip = planned_trip(source, target, element_bytes)
    addresses = shared_addresses(ctx, base, target, trip.buffer, trip.loads, element_bytes)
    found: dict[int, LLVMValue] = {}
    for group, address in zip(trip.loads, addresses, strict=True):
        found.update(zip(group, load_vector(ctx, address, type_, len(group)), strict=True))
    return [found[register] for register in trip.copies]


def exchange_tiles(
    ctx: Lowering,
    base: LLVMValue,
    source: LinearLayout,
    target: LinearLayout,
    tiles: Sequence[Registers],
    element_bytes: Sequence[int],
) -> list[Registers]:
    """Tiles in `source`, side by side in scratch at `base`, given back in `target`."""
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
