"""The layout of the memory in which another process sees the findings of running checked kernels.

A launch has a table of slots in the device's memory (`compiler.sites.table`), and a shown table in
host memory that the device writes to. When an example changes, the kernel copies its slot to the
shown table. A header before the slots names the launch and its build. The recording process reads
shown tables five times a second; no thread of the script takes part.

Invariants: a slot is given out only if it did not change while it was read; when the script has
read a launch's table, it erases the header and reports the faults itself.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tkdebug.errors import Frame
from tkdebug.process.forks import renew_after_forks
from tkdebug.records.events import FaultKind, FaultState

# A slot, as far as it is read here.
SLOT_BYTES: Final = 64
COUNT: Final = 0
# The program's number plus one; 0 where nothing was reported.
PROGRAM: Final = 8
# Grows by one before a slot is copied and by one after it: odd meanwhile.
VERSION: Final = 52

# Before the first slot. In the device's memory only the first word is used: what to add to a slot's
# address for where the host sees it, 0 for nowhere.
HEADER_BYTES: Final = 64
_HEADER: Final = struct.Struct("=QQII")
_ALONE: Final = struct.Struct("=QII")
_ALONE_AT: Final = 8
_BOTH: Final = struct.Struct("=QQ")
_VERSION: Final = struct.Struct("=I")
_MOST_TRIES: Final = 4
_TOO_MANY: Final = 1 << 63


class SiteText(NamedTuple):
    """The name of a site for people.

    Attributes:
        kind: the kind of the faults that it reports.
        frames: its place, outermost first.
        tensor: the parameter, None if it is none.
        state: the state of its faults, as `Fault.state`; None if they are not shown while the
            launch runs.
    """

    kind: FaultKind
    frames: tuple[Frame, ...]
    tensor: str | None
    state: FaultState | None = None


class ShownKernel(NamedTuple):
    """A checked build, as its tables name it.

    Attributes:
        number: unique in its process, from 1.
        sites: the sites in the order of their slots.
    """

    number: int
    kernel: str
    sites: tuple[SiteText, ...]


class SharedTables(NamedTuple):
    """Tables in memory of the host that the device writes to.

    Attributes:
        descriptor: the descriptor of the memory, for another process.
        stride_bytes: the distance from one table's header to the next one's.
    """

    descriptor: int
    stride_bytes: int


class Seen(NamedTuple):
    """The finding at a site so far.

    Attributes:
        launch: the id of the launch.
        number: the number of the checked build.
        site: the number of the site in its build.
        bad: the number of bad elements, or more.
        program: the number of the example's program, None if it is not known yet.
    """

    launch: int
    number: int
    site: int
    bad: int
    program: int | None


class Shown:
    """The shown tables and checked builds of this process, handed to all followers."""

    def __init__(self) -> None:
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Forget the parent's launches in a forked child, which has a recorder of its own."""
        self._lock = threading.RLock()
        self._known: list[SharedTables | ShownKernel] = []
        self._followers: list[Callable[[SharedTables | ShownKernel], None]] = []

    @property
    def is_followed(self) -> bool:
        """Whether anybody follows."""
        return bool(self._followers)

    def put(self, one: SharedTables | ShownKernel) -> None:
        """Hand tables or a build to all followers, and to later ones."""
        with self._lock:
            self._known.append(one)
            followers = tuple(self._followers)
        for follower in followers:
            follower(one)

    def follow(self, follower: Callable[[SharedTables | ShownKernel], None]) -> None:
        """Call `follower` with all that was put, and with each that will be."""
        with self._lock:
            self._followers.append(follower)
            known = tuple(self._known)
        for one in known:
            follower(one)

    def unfollow(self, follower: Callable[[SharedTables | ShownKernel], None]) -> None:
        """Stop calling `follower`; do nothing if it does not follow."""
        with self._lock:
            self._followers = [one for one in self._followers if one != follower]


SHOWN = Shown()


def write_header(memory: memoryview, at: int, launch: int, number: int, sites: int) -> None:
    """Write the header of the table at `at`: launch id, number of the build, number of sites."""
    _ALONE.pack_into(memory, at + _ALONE_AT, launch, number, sites)


def erase_header(memory: memoryview, at: int) -> None:
    """Erase the header of the table at `at`, which then belongs to no launch."""
    _ALONE.pack_into(memory, at + _ALONE_AT, 0, 0, 0)


def seen(view: memoryview, stride_bytes: int) -> Iterator[Seen]:
    """Yield the findings so far of the launches that have these tables."""
    for at in range(0, len(view) - HEADER_BYTES, stride_bytes):
        _, launch, number, sites = _HEADER.unpack_from(view, at)
        if not launch or HEADER_BYTES + sites * SLOT_BYTES > stride_bytes:
            continue
        found = list(_sites(view, at + HEADER_BYTES, sites))
        if found and _HEADER.unpack_from(view, at)[1] == launch:
            yield from (Seen(launch, number, *one) for one in found)


def _sites(view: memoryview, first: int, sites: int) -> Iterator[tuple[int, int, int | None]]:
    for site in range(sites):
        slot = consistent_slot(view, first + site * SLOT_BYTES)
        if slot is None:
            continue
        count, program = _BOTH.unpack_from(slot)
        # Other work of the GPU may have written there.
        if (count or program) and max(count, program) < _TOO_MANY:
            yield site, max(1, count), program - 1 if program else None


def consistent_slot(view: memoryview, at: int) -> bytes | None:
    """A slot that did not change while it was read; None if it changed at each try."""
    for _ in range(_MOST_TRIES):
        (before,) = _VERSION.unpack_from(view, at + VERSION)
        slot = bytes(view[at : at + SLOT_BYTES])
        (after,) = _VERSION.unpack_from(view, at + VERSION)
        if before == after and not before % 2:
            return slot
    return None
