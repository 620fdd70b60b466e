"""Tiles of a log that are left out of the comparison: those that surely race with no other."""

from __future__ import annotations

from itertools import product

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.interpreter.checks.races.access_history import Deed
from tkdebug.interpreter.closer_looks.logged_races import LoggedTiles, may_race

BASE = 1 << 40


def tiles(rows: list[list[int]], programs: list[int], deed: Deed, itemsize: int = 4) -> LoggedTiles:
    """Tiles of elements of `itemsize` bytes at places; a negative place is masked off."""
    places = torch.tensor(rows)
    addresses = torch.where(places < 0, 0, BASE + itemsize * places)
    return LoggedTiles(addresses, torch.tensor(programs), itemsize, deed)


def test_tiles_that_lie_apart_are_left_out():
    reads = tiles([[0, 1], [2, 3], [2, 3]], [0, 1, 2], Deed.READ)
    # Each program stores where it alone has read or nobody has, the last one a part of its tile.
    writes = tiles([[4, 5], [6, -1]], [0, 1], Deed.WRITE)
    in_place = tiles([[4, 5]], [0], Deed.READ)
    assert not any(bool(kept.any()) for kept in may_race([reads, writes, in_place]))


def test_tiles_that_others_write_are_compared():
    reads = tiles([[0, 1], [8, 9]], [0, 0], Deed.READ)
    writes = tiles([[1, 2]], [1], Deed.WRITE)
    assert [kept.tolist() for kept in may_race([reads, writes])] == [[True, False], [True]]


def test_stores_that_may_repeat_a_place_are_compared():
    rows = [[0, 1, 2], [5, -1, 5], [9, 8, 7], [-1, 10, 11], [12, -1, -1], [-1, -1, -1]]
    (kept,) = may_race([tiles(rows, [0] * 6, Deed.WRITE)])
    assert kept.tolist() == [False, True, True, False, False, False]


def test_atomics_alone_are_left_out():
    atomics = tiles([[0], [0]], [0, 1], Deed.ATOMIC)
    assert not may_race([atomics])[0].any()
    reads = tiles([[0]], [2], Deed.READ)
    assert all(bool(kept.all()) for kept in may_race([atomics, reads]))


def test_nothing_was_logged():
    assert may_race([]) == []


ROWS = st.lists(st.lists(st.integers(-1, 12), min_size=3, max_size=3), min_size=1, max_size=5)
TABLES = st.lists(
    st.tuples(ROWS, st.sampled_from([Deed.READ, Deed.WRITE, Deed.ATOMIC]), st.sampled_from([2, 4])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(TABLES, st.randoms(use_true_random=False))
def test_what_can_race_is_never_left_out(tables, random):
    logged = [
        tiles(rows, [random.randrange(3) for _ in rows], deed, itemsize)
        for rows, deed, itemsize in tables
    ]
    kept = may_race(logged)
    rows = [
        (number, row, touched(one, row), int(one.programs[row]), one.deed)
        for number, one in enumerate(logged)
        for row in range(one.programs.shape[0])
    ]
    for (a, row_a, mine, p, deed), (b, row_b, theirs, q, other) in product(rows, rows):
        kinds = {deed, other}
        conflict = Deed.WRITE in kinds or kinds == {Deed.READ, Deed.ATOMIC}
        if p != q and conflict and set(mine) & set(theirs):
            assert kept[a][row_a]
            assert kept[b][row_b]
    for number, row, mine, _, deed in rows:
        if deed == Deed.WRITE and len(set(mine)) < len(mine):
            assert kept[number][row]


def touched(one: LoggedTiles, row: int) -> list[int]:
    """The bytes of a tile, in order of its elements."""
    return [
        address + byte
        for address in one.addresses[row].tolist()
        if address
        for byte in range(one.itemsize)
    ]
