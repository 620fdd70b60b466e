"""Trips through shared memory whose stores are `stmatrix`: fragments of tensor cores become rows.

A thread holds 2 elements of a row of 8 in a fragment, and would store them by themselves.
`stmatrix` takes the rows of 8 x 8 matrices of 16-bit elements from the warp as a whole: each lane
names where a row of 16 bytes goes. So for the choice of the buffer the lanes are those that name
rows, and the other side reads whole rows.

Source: PTX ISA, "Warp-level matrix store instruction: stmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tkdebug.compiler.layouts import f2
from tkdebug.compiler.layouts.linear import LANE, REGISTER, WARP, LinearLayout
from tkdebug.compiler.layouts.swizzle import SharedTrip, plan_shared_trip, thread_vectors
from tkdebug.compiler.targets.nvptx.architectures import BANKS

_ELEMENT_BYTES = 2
_CACHED_PLANS = 256


@lru_cache(_CACHED_PLANS)
def plan_matrix_trip(source: LinearLayout, target: LinearLayout) -> SharedTrip | None:
    """A trip of 16-bit elements into whose buffer `source` can be stored by `stmatrix`.

    Returns:
        The trip, whose `stores` are not `source`'s; None where `source` holds no fragments of rows
        that `target` reads, or copies.
    """
    if len(source.packed_bases(LANE)) != 5 or any(source.free_masks.values()):
        return None
    if len(f2.independent(source.packed_bases(REGISTER))) != source.in_bits(REGISTER):
        return None
    for row, naming in _namings(source, target):
        if len(f2.independent(row, over=thread_vectors(naming, target))) == len(row):
            return plan_shared_trip(naming, target, _ELEMENT_BYTES, BANKS, row)
    return None


def _namings(
    source: LinearLayout, target: LinearLayout
) -> Iterator[tuple[tuple[int, ...], LinearLayout]]:
    """A row's elements, and the layout of rows whose lanes are those that name them."""
    registers, lanes = source.packed_bases(REGISTER), source.packed_bases(LANE)
    held = f2.Span(target.packed_bases(REGISTER))
    for index, pair in enumerate(registers):
        rest = [*registers[:index], *registers[index + 1 :]]
        matrices = [*rest[:2], 0, 0][:2]
        # A pair of registers is two elements of a row; or of a column, with .trans.
        for row, names in (((pair, *lanes[:2]), lanes[2:]), (lanes[2:], (pair, *lanes[:2]))):
            if all(element in held for element in row):
                ins = {
                    REGISTER: (*row, *rest[2:]),
                    LANE: (*names, *matrices),
                    WARP: source.packed_bases(WARP),
                }
                kept = tuple((dim, ins.get(dim, vectors)) for dim, vectors in source.ins)
                yield row, LinearLayout(kept, source.outs)
