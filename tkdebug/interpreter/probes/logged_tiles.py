"""Which logged tiles may race: most lie apart from those of all other programs.

To compare accesses element by element takes sorts of all elements. A tile's first and last byte say
of most tiles that no other program touches what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.interpreter.checks.races.access_history import Deed


@dataclass(frozen=True, slots=True)
class LoggedTiles:
    """Tiles that one op accessed.

    Attributes:
        addresses: (tiles, elements) int64, in bytes; 0 of what is masked off.
        programs: (tiles,) linear program ids.
        itemsize: bytes of an element.
        deed: READ, WRITE or ATOMIC.
    """

    addresses: Tensor
    programs: Tensor
    itemsize: int
    deed: Deed


def may_race(tables: Sequence[LoggedTiles]) -> list[Tensor]:
    """Of each table, (tiles,) bool: which tiles have to be compared element by element.

    Those are stores whose own elements may share a place, and tiles of clusters of several programs
    of which one stores, or one reads and one is atomic. Tiles are of one cluster if their bytes,
    from the first to the last, overlap.
    """
    if not tables:
        return []
    firsts = torch.cat([_firsts(tiles.addresses) for tiles in tables])
    stops = torch.cat([tiles.addresses.amax(1) + tiles.itemsize for tiles in tables])
    programs = torch.cat([tiles.programs for tiles in tables])
    counts = [tiles.programs.shape[0] for tiles in tables]
    deeds = torch.tensor([tiles.deed for tiles in tables]).repeat_interleave(torch.tensor(counts))
    is_shared = torch.zeros_like(programs, dtype=torch.bool)
    order = torch.argsort(firsts)
    order = order[firsts[order] < stops[order]]
    if order.numel():
        is_shared[order] = _conflicts(firsts[order], stops[order], programs[order], deeds[order])
    found = list(torch.split(is_shared, counts))
    for number, tiles in enumerate(tables):
        if tiles.deed == Deed.WRITE:
            found[number] = found[number] | _may_repeat(tiles.addresses)
    return found


def _firsts(addresses: Tensor) -> Tensor:
    """The least address of each tile; one behind all addresses where all is masked off."""
    return torch.where(addresses == 0, torch.iinfo(torch.int64).max, addresses).amin(1)


def _conflicts(firsts: Tensor, stops: Tensor, programs: Tensor, deeds: Tensor) -> Tensor:
    """Which tiles, in order of their first bytes, are of a cluster that may race."""
    begins = torch.ones_like(firsts, dtype=torch.bool)
    begins[1:] = firsts[1:] >= torch.cummax(stops, 0).values[:-1]
    cluster = torch.cumsum(begins, 0) - 1
    count = int(cluster[-1]) + 1

    def of_clusters(values: Tensor, how: str) -> Tensor:
        kept = values.new_zeros(count)
        return kept.scatter_reduce_(0, cluster, values, how, include_self=False)

    def some(deed: Deed) -> Tensor:
        return of_clusters((deeds == deed).long(), "amax") > 0

    several = of_clusters(programs, "amin") < of_clusters(programs, "amax")
    conflict = some(Deed.WRITE) | (some(Deed.READ) & some(Deed.ATOMIC))
    return (several & conflict)[cluster]


def _may_repeat(addresses: Tensor) -> Tensor:
    """Which tiles are not in ascending order of their addresses, what is masked off left out."""
    found = ~(addresses[:, 1:] > addresses[:, :-1]).all(1)
    doubtful = found.nonzero().reshape(-1)
    if doubtful.numel():
        tiles = addresses[doubtful]
        before = torch.cummax(tiles, 1).values[:, :-1]
        found[doubtful] = ~((tiles[:, 1:] > before) | (tiles[:, 1:] == 0)).all(1)
    return found
