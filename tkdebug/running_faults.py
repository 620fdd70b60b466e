"""What checked kernels have found so far, in memory that another process can read while they run.

A launch has a table of slots in the device's memory (`compiler.probes.table`). Beside each there is
one in memory of the host that the device writes to: whenever an example changes, its slot is copied
there. A header before the slots says whose they are. The recording process looks at these from time
to time, so that nobody waits, and no thread of the script's wakes up.

Invariants: what is read here is of one moment, or it is not given out; a launch that has no header
any more has been read by the script, which reports what it found in full.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tkdebug.errors import Frame
from tkdebug.events import FaultKind, FaultState
from tkdebug.forks import renew_after_forks

# A slot, as far as it is read here.
SLOT_BYTES: Final = 64
COUNT: Final = 0
# The program's number plus one; 0 where nothing was reported.
PROGRAM: Final = 8
# Grows by one before a slot is copied and by one behind it: odd while it is.
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
    """What a site is called.

    Attributes:
        kind: of the faults that it reports.
        frames: its place, outermost first.
        tensor: the parameter, None where it is none.
        state: of its faults; None where nobody is told of them.
    """

    kind: FaultKind
    frames: tuple[Frame, ...]
    tensor: str | None
    state: FaultState | None = None


class CheckedKernel(NamedTuple):
    """A checked build, as its tables name it.

    Attributes:
        number: unique in its process, from 1.
        sites: in the order of their slots.
    """

    number: int
    kernel: str
    sites: tuple[SiteText, ...]


class SharedTables(NamedTuple):
    """Tables in memory of the host that the device writes to.

    Attributes:
        descriptor: of the memory, for another process.
        stride_bytes: from one table's header to the next one's.
    """

    descriptor: int
    stride_bytes: int


class Seen(NamedTuple):
    """What was found at a site so far.

    Attributes:
        launch: its id.
        number: of the checked build.
        site: its number.
        bad: elements, or more.
        program: of the example, None where only that there are some is known.
    """

    launch: int
    number: int
    site: int
    bad: int
    program: int | None


class Shown:
    """The tables and checked builds of this process, for whoever is to look at them."""

    def __init__(self) -> None:
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """A forked child has launched nothing, and its recorder is one of its own."""
        self._lock = threading.RLock()
        self._known: list[SharedTables | CheckedKernel] = []
        self._watchers: list[Callable[[SharedTables | CheckedKernel], None]] = []

    @property
    def is_watched(self) -> bool:
        """Whether anybody looks."""
        return bool(self._watchers)

    def put(self, one: SharedTables | CheckedKernel) -> None:
        """It is there from now on."""
        with self._lock:
            self._known.append(one)
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher(one)

    def watch(self, watcher: Callable[[SharedTables | CheckedKernel], None]) -> None:
        """Call `watcher` with all that is there, and with what comes."""
        with self._lock:
            self._watchers.append(watcher)
            known = tuple(self._known)
        for one in known:
            watcher(one)

    def unwatch(self, watcher: Callable[[SharedTables | CheckedKernel], None]) -> None:
        """Call it no more; one that is not called already is left alone."""
        with self._lock:
            self._watchers = [one for one in self._watchers if one != watcher]


SHOWN = Shown()


def write_header(memory: memoryview, at: int, launch: int, number: int, sites: int) -> None:
    """Say whose the table at `at` is: of a launch, of a checked build, with so many sites."""
    _ALONE.pack_into(memory, at + _ALONE_AT, launch, number, sites)


def erase_header(memory: memoryview, at: int) -> None:
    """The table at `at` is nobody's."""
    _ALONE.pack_into(memory, at + _ALONE_AT, 0, 0, 0)


def seen(view: memoryview, stride_bytes: int) -> Iterator[Seen]:
    """What the launches whose tables these are have found so far."""
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
        # What else the GPU runs may have written there.
        if (count or program) and max(count, program) < _TOO_MANY:
            yield site, max(1, count), program - 1 if program else None


def consistent_slot(view: memoryview, at: int) -> bytes | None:
    """A slot as it was at one moment; None where it changes all the time."""
    for _ in range(_MOST_TRIES):
        (before,) = _VERSION.unpack_from(view, at + VERSION)
        slot = bytes(view[at : at + SLOT_BYTES])
        (after,) = _VERSION.unpack_from(view, at + VERSION)
        if before == after and not before % 2:
            return slot
    return None
