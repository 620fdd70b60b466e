"""The log of a kernel's accesses, by which races between its programs are found on the host.

Each access is a site of a watch, of whole tiles, with one word an element: the low bits of its
address and a hash of what was read or written there; 0 of what is masked off. In the place of the
iteration a record has its time: how many records of all sites were begun before it. An atomic that
may synchronise has two sites, as what it publishes counts from before it, and what it learns from
behind it. The last site has no op: its counter is the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tkdebug.compiler.probes.watch_sites import WatchSite

RACE: Final = "race"
# No plugin has such a name.
LOGGED: Final = "*race"
BEFORE: Final = 0
AFTER: Final = 1
ADDRESS_BITS: Final = 48
HASH_BITS: Final = 16
# Memory for the log of one launch.
LOG_BYTES: Final = 32 << 20


def is_logged(site: WatchSite) -> bool:
    """Whether a site is one of the log's."""
    return site.plugin == LOGGED


def clock_of(sites: Sequence[WatchSite]) -> int:
    """The number of the site whose counter is the clock."""
    return sites[-1].number
