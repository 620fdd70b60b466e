"""Which logged tiles may race: most lie apart from those of all other programs.

To compare accesses element by element takes sorts of all elements. A tile's first and last byte say
of most tiles that no other program touches what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.interpreter.checks.races.access_history import Deed, suspicious


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

    Those are stores whose own elements may share a place, and tiles of suspicious clusters, taken
    to touch all bytes from their first to their last.
    """
    if not tables:
        return []
    firsts = torch.cat([_firsts(tiles.addresses) for tiles in tables])
    stops = torch.cat([tiles.addresses.amax(1) + tiles.itemsize for tiles in tables])
    programs = torch.cat([tiles.programs for tiles in tables])
    counts = [tiles.programs.shape[0] for tiles in tables]
    deeds = torch.tensor([tiles.deed for tiles in tables]).repeat_interleave(torch.tensor(counts))
    is_shared = torch.zeros_like(programs, dtype=torch.bool)
    some = (firsts < stops).nonzero().reshape(-1)
    shared = suspicious(firsts[some], stops[some], programs[some], deeds[some])
    if shared is not None:
        is_shared[some[shared]] = True
    found = list(torch.split(is_shared, counts))
    for number, tiles in enumerate(tables):
        if tiles.deed == Deed.WRITE:
            found[number] = found[number] | _may_repeat(tiles.addresses)
    return found


def _firsts(addresses: Tensor) -> Tensor:
    """The least address of each tile; one behind all addresses where all is masked off."""
    return torch.where(addresses == 0, torch.iinfo(torch.int64).max, addresses).amin(1)


def _may_repeat(addresses: Tensor) -> Tensor:
    """Which tiles are not in ascending order of their addresses, what is masked off left out."""
    found = ~(addresses[:, 1:] > addresses[:, :-1]).all(1)
    doubtful = found.nonzero().reshape(-1)
    if doubtful.numel():
        tiles = addresses[doubtful]
        before = torch.cummax(tiles, 1).values[:, :-1]
        found[doubtful] = ~((tiles[:, 1:] > before) | (tiles[:, 1:] == 0)).all(1)
    return found
