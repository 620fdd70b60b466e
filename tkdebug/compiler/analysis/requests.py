"""The requests that warps make for a tile of memory, and the sectors and lines that each touches.

A layout says which thread holds which element; with the address of each element the requests
follow. Source: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory": memory is moved
in sectors of 32 bytes, four of which make a line of 128.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout

SECTOR_BYTES = 32
LINE_BYTES = 128
_NONE = np.iinfo(np.int64).max
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Requests:
    """The memory requests of one execution of an access.

    Attributes:
        count: instructions of a warp with at least one thread that accesses.
        sectors: the sectors that each request touches, summed up.
        needed: sectors that the bytes of each request would fill without gaps, summed up.
        lines: the lines of 128 bytes that each request touches, summed up.
        distinct: sectors that all requests together touch, each counted once.
        addresses: the different addresses of all requests together.
    """

    count: int
    sectors: int
    needed: int
    lines: int
    distinct: int
    addresses: int = 0


def requests_of(
    layout: LinearLayout | None,
    vector: int,
    shape: tuple[int, ...],
    itemsize: int,
    addresses: Integers,
    positions: Integers,
) -> Requests:
    """The requests of one execution of an access by one program.

    Args:
        layout: the layout of the pointers; None for a scalar pointer.
        vector: consecutive registers that one access of a thread takes.
        shape: the shape of the tile.
        itemsize: bytes of an element.
        addresses: byte addresses (n,) of the accessed elements.
        positions: places of these elements in the tile (n,), row by row.
    """
    if layout is None:
        grouped = addresses.reshape(1, -1)
    else:
        whole = np.full(max(1, math.prod(shape)), _NONE, np.int64)
        whole[positions] = addresses
        grouped = whole[held_positions(layout, shape, vector)]
    used = grouped != _NONE
    asking = used.any(1)
    grouped, used = grouped[asking], used[asking]
    needed = -(-_distinct(grouped, used, itemsize) * itemsize // SECTOR_BYTES)
    touched = np.unique(addresses // SECTOR_BYTES).size
    return Requests(
        count=grouped.shape[0],
        sectors=int(_distinct(grouped, used, SECTOR_BYTES).sum()),
        needed=int(needed.sum()),
        lines=int(_distinct(grouped, used, LINE_BYTES).sum()),
        distinct=int(touched),
        addresses=int(np.unique(addresses).size),
    )


def _distinct(grouped: Integers, used: NDArray[np.bool_], unit: int) -> Integers:
    """The number of pieces of `unit` bytes that the used addresses of each row touch."""
    if not grouped.shape[0]:
        return np.zeros(0, np.int64)
    pieces = np.sort(np.where(used, grouped // unit, _NONE), axis=1)
    changes = (pieces[:, 1:] != pieces[:, :-1]).sum(1) + 1
    return np.asarray(changes - (pieces[:, -1] == _NONE), np.int64)


@lru_cache(64)
def held_positions(layout: LinearLayout, shape: tuple[int, ...], vector: int) -> Integers:
    """The positions in the tile, row by row, that each request of a warp accesses.

    The shape is (warps x register groups, vector x lanes).

    Warps that hold copies of others' elements make requests of their own.
    """
    names = layout.out_dims
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    registers, lanes = layout.in_size(REGISTER), layout.in_size(LANE)
    parts = {
        name: np.array([_flat(layout, v, names, strides) for v in layout.packed_bases(name)])
        for name in (REGISTER, LANE, WARP)
    }
    tables = {name: _span(bases) for name, bases in parts.items()}
    held = (
        tables[WARP][:, None, None] ^ tables[REGISTER][None, :, None] ^ tables[LANE][None, None, :]
    )
    vector = min(vector, registers)
    warps = tables[WARP].size
    grouped = held.reshape(warps, registers // vector, vector, lanes)
    return grouped.reshape(warps * (registers // vector), vector * lanes)


def _flat(layout: LinearLayout, packed: int, names: tuple[str, ...], strides: list[int]) -> int:
    """A basis vector as a position; powers of two, so positions add up by exclusive or."""
    coordinates = layout.unpack_out(packed)
    by_axis = [coordinates[f"dim{axis}"] for axis in range(len(names))]
    return sum(c * stride for c, stride in zip(by_axis, strides, strict=True))


def _span(bases: Integers) -> Integers:
    """The position of every index, given the positions of the bits of the index."""
    found = np.zeros(1, np.int64)
    for base in bases:
        found = np.concatenate([found, found ^ int(base)])
    return found
