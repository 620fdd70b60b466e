"""A ring of launches in memory that the script's process shares with the recording process.

Responsible for the place of a launch and when that is free again. Messages that went through the
channel before define the numbers in it.

Invariants: a slot is filled by one call of `struct`, its number last, so a kill leaves it whole or
unread; its number is taken and it is filled within one call of C code, between whose steps neither
another thread nor a signal handler runs, so no number is left without a launch; a slot is written
again only once the reader has said that it has copied it.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import NamedTuple

SLOTS = 1 << 17
SLOT_BYTES = 128
HEADER_BYTES = 4096
RING_BYTES = HEADER_BYTES + SLOTS * SLOT_BYTES
MASK = SLOTS - 1
SCALARS = 7
# variant, facts, launch, grid, thread, stream, start, end, scopes, flags
LAUNCH = "IIqIIIIQQQII"
_SLOT = struct.Struct(f"={LAUNCH}{SCALARS * 8}sQ")
_PLAIN = struct.Struct(f"={LAUNCH}{SCALARS * 8}x")
_WITH_NUMBER = struct.Struct(f"={_PLAIN.size}sQ")
_NUMBER = struct.Struct("=Q")
_NUMBER_AT = SLOT_BYTES - _NUMBER.size
_READ_AT = 0  # in the header: how many slots the reader has copied
_POLL_S = 0.0005
# Threads look for room before they take a slot: at most this many may do so at once.
_SPARE_SLOTS = 1024

assert _SLOT.size == _WITH_NUMBER.size == SLOT_BYTES

# In the place of a variant: the slot says how the launch ended. `start_ns` is how long it took on
# the device, `flags` how that was obtained, as an index of `TIME_SOURCES`.
ENDED = 0xFFFFFFFF
# The slot is an operation of torch's: its thread, start and end, and as `facts` its origin.
OPERATION = 0xFFFFFFFE
TIME_SOURCES = ("events", "events-at-most", "host")

# Flag of a launch: it gets its time by CUPTI.
TIMED = 1


class PackedLaunch(NamedTuple):
    """A launch as it lies in a slot; numbers of variants, facts and scopes are the script's."""

    variant: int
    facts: int
    launch: int
    x: int
    y: int
    z: int
    thread: int
    stream: int
    start_ns: int
    end_ns: int
    scopes: int
    flags: int
    scalars: bytes


def launch_format(codes: str) -> struct.Struct:
    """Return the format of a launch whose scalars have these codes, each of 8 bytes."""
    return struct.Struct(f"={LAUNCH}{codes}{(SCALARS - len(codes)) * 8}x")


class RingWriter:
    """The script's side.

    Args:
        is_read: asked while there is no room: whether the reader is there.

    Attributes:
        descriptor: the descriptor of the memory, for the other side.
        memory: the ring.
        filled: the number of filled slots, without those of the latest moment.

    Raises:
        OSError: there is no such memory.
    """

    def __init__(self, is_read: Callable[[], bool]) -> None:
        self.descriptor = os.memfd_create("tkdebug-launches", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, RING_BYTES)
        self.memory = mmap.mmap(self.descriptor, RING_BYTES)
        self._is_read = is_read
        self._waiting: deque[bytes] = deque()
        # Slots up to `_limit` are known to be free.
        self.filled = 0
        self._limit = SLOTS - _SPARE_SLOTS
        self._fill_next = self._filler().__next__

    def _filler(self) -> Iterator[tuple[None, int]]:
        """Fill a slot with the oldest waiting launch at each step; yield None and the slots filled.

        All of it is C code. If nothing waits, IndexError is raised before a number is taken.
        """
        waiting = iter(self._waiting.popleft, None)
        offsets = itertools.cycle(range(HEADER_BYTES, RING_BYTES, SLOT_BYTES))
        parts = map(itemgetter(1, 0, 2), zip(waiting, offsets, itertools.count(1)))
        filled = itertools.starmap(partial(_WITH_NUMBER.pack_into, self.memory), parts)
        return zip(filled, itertools.count(1))

    def put(self, launch: bytes) -> None:
        """Fill the next slot, once one is free; do nothing if the reader is gone.

        Args:
            launch: the fields of `PackedLaunch`, packed.
        """
        if self.filled >= self._limit and not self._await_room():
            return
        self._waiting.append(launch)
        # An exception of a signal handler may have left one there.
        while self._waiting:
            try:
                _, self.filled = self._fill_next()
            except IndexError:
                break  # another thread has taken it

    def put_fields(self, *fields: int) -> None:
        """Fill the next slot: the fields of `PackedLaunch` before its scalars.

        Raises:
            struct.error: one of the fields does not fit.
        """
        self.put(_PLAIN.pack(*fields))

    def put_end(self, launch: int, duration_ns: int, source: str) -> bool:
        """Report how a launch ended; False if no slot can hold it."""
        try:
            how = TIME_SOURCES.index(source)
            self.put_fields(ENDED, 0, launch, 0, 0, 0, 0, 0, duration_ns, 0, 0, how)
        except (ValueError, struct.error):
            return False
        return True

    def _await_room(self) -> bool:
        """Wait until there are free slots; return False if the reader is gone."""
        while True:
            (read,) = _NUMBER.unpack_from(self.memory, _READ_AT)
            self._limit = read + SLOTS - _SPARE_SLOTS
            if self.filled < self._limit:
                return True
            if not self._is_read():
                return False
            time.sleep(_POLL_S)

    def touch(self) -> None:
        """Touch the memory, so that the system provides it now; launches would take 0.1 us more."""
        self.memory[:: mmap.PAGESIZE]

    def close_descriptor(self) -> None:
        """Close the descriptor, which the other side has; the memory stays."""
        os.close(self.descriptor)


def slot_offset(number: int) -> int:
    """Return the offset of the slot of that number."""
    return HEADER_BYTES + (number & MASK) * SLOT_BYTES


class RingReader:
    """The recording process's side."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, RING_BYTES)
        self._read = 0

    def head(self) -> int:
        """Return the number after the last slot before which all unread slots are whole."""
        memory, unpack, end = self._memory, _NUMBER.unpack_from, self._read + SLOTS
        number = self._read
        while number < end and unpack(memory, slot_offset(number) + _NUMBER_AT)[0] == number + 1:
            number += 1
        return number

    def take(self, head: int) -> list[PackedLaunch]:
        """Return the unread launches before `head`, and free their slots."""
        if head == self._read:
            return []
        first, last = slot_offset(self._read), slot_offset(head)
        if first < last:
            data = self._memory[first:last]
        else:
            data = self._memory[first:] + self._memory[HEADER_BYTES:last]
        self._read = head
        _NUMBER.pack_into(self._memory, _READ_AT, head)
        return [PackedLaunch(*slot[:-1]) for slot in _SLOT.iter_unpack(data)]
