"""A ring of launches in memory that the script's process shares with the recording process.

Responsible for where a launch lies and when its place is free again. What the numbers in it mean is
said by messages that went through the channel before.

Invariants: a slot is filled by one call of `struct`, its number last, so a kill leaves it whole or
unread; a number is one writer's alone (`next` of a count is atomic), so threads and signal handlers
need no lock; a slot is written again only once the reader has said that it has copied it.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from tkdebug.launch_packing import SlotPlaces

SLOTS = 1 << 17
SLOT_BYTES = 128
HEADER_BYTES = 4096
RING_BYTES = HEADER_BYTES + SLOTS * SLOT_BYTES
MASK = SLOTS - 1
SCALARS = 7
# variant, facts, launch, grid, thread, stream, start, end, scopes, flags
LAUNCH = "IIqIIIIQqqII"
_FIELDS = "variant facts launch x y z thread stream start_ns end_ns scopes flags scalars".split()
_SLOT = struct.Struct(f"={LAUNCH}{SCALARS * 8}sQ")
_NUMBER = struct.Struct("=Q")
_NUMBER_AT = SLOT_BYTES - _NUMBER.size
_READ_AT = 0  # in the header: how many slots the reader has copied
_POLL_S = 0.0005
_HOLE_S = 1.0

assert _SLOT.size == SLOT_BYTES

# In the place of a variant: the slot says how the launch ended. `start_ns` is how long it took on
# the device, `flags` how that was obtained, as an index of `TIME_SOURCES`.
ENDED = 0xFFFFFFFF
# The slot is an operation of torch's: its thread, start and end, and as `facts` its origin.
OPERATION = 0xFFFFFFFE
TIME_SOURCES = ("events", "events-at-most", "host")

# Flag of a launch: it gets its time by CUPTI.
TIMED = 1


# Where machine code finds it all.
PLACES = SlotPlaces(
    read_at=_READ_AT,
    first=HEADER_BYTES,
    slots=SLOTS,
    size_bytes=SLOT_BYTES,
    number=_NUMBER_AT,
    **{name: struct.calcsize(f"={LAUNCH[:at]}") for at, name in enumerate(_FIELDS)},
)


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


def slot_format(codes: str) -> struct.Struct:
    """How a launch is packed whose scalars have these codes, each of 8 bytes."""
    rest = SCALARS - len(codes)
    return struct.Struct(f"={LAUNCH}{codes}{rest * 8}x{'Q'}")


class RingWriter:
    """The script's side.

    Attributes:
        descriptor: of the memory, for the other side.
        memory: to pack into.
        numbers: iterator of the slots' numbers, each of which is one writer's alone.
        next_number: gives the next one.
        limit: numbers below it are known to be free.

    Raises:
        OSError: there is no such memory.
    """

    def __init__(self, is_read: Callable[[], bool]) -> None:
        self.descriptor = os.memfd_create("tkdebug-launches", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, RING_BYTES)
        self.memory = mmap.mmap(self.descriptor, RING_BYTES)
        self.numbers = itertools.count()
        self.next_number: Callable[[], int] = self.numbers.__next__
        self.limit = SLOTS
        self._is_read = is_read

    def touch(self) -> None:
        """Have the system provide the memory now, which takes launches 0.1 us each otherwise."""
        self.memory[:: mmap.PAGESIZE]

    def close_descriptor(self) -> None:
        """The other side has it; the memory stays."""
        os.close(self.descriptor)

    def await_room(self, number: int) -> bool:
        """Wait until the slot of that number is free; False where the reader is gone."""
        while True:
            (read,) = _NUMBER.unpack_from(self.memory, _READ_AT)
            self.limit = read + SLOTS
            if number < self.limit:
                return True
            if not self._is_read():
                return False
            time.sleep(_POLL_S)

    def tell_end(self, launch: int, duration_ns: int, source: str) -> bool:
        """Report how a launch ended; False where there is no slot for that."""
        number = self.next_number()
        if number >= self.limit and not self.await_room(number):
            return True
        try:
            how = TIME_SOURCES.index(source)
            self.put(number, ENDED, 0, launch, 0, 0, 0, 0, 0, duration_ns, 0, 0, how)
        except (ValueError, struct.error):
            self.leave_empty(number)
            return False
        return True

    def put(self, number: int, *fields: int) -> None:
        """Fill the slot of that number: the fields of `PackedLaunch` before its scalars.

        Raises:
            struct.error: one of them does not fit.
        """
        _SLOT.pack_into(self.memory, slot_offset(number), *fields, b"", number + 1)

    def put_late(self, number: int, slot: bytes) -> None:
        """Fill the slot of that number with these bytes, once it is free."""
        if number < self.limit or self.await_room(number):
            at = slot_offset(number)
            self.memory[at : at + len(slot)] = slot
            _NUMBER.pack_into(self.memory, at + _NUMBER_AT, number + 1)

    def leave_empty(self, number: int) -> None:
        """Fill the slot of a number that no launch took."""
        self.put(number, *[0] * 12)


def slot_offset(number: int) -> int:
    """Where the slot of that number lies."""
    return HEADER_BYTES + (number & MASK) * SLOT_BYTES


class RingReader:
    """The recording process's side."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, RING_BYTES)
        self._read = 0
        self._stuck_since_s: float | None = None
        self._lost = 0

    def head(self, is_last: bool = False) -> int:
        """The number behind the last slot that is whole, with all before it.

        Args:
            is_last: the writer is gone, so nothing is waited for.
        """
        number = self._whole_from(self._read)
        if number > self._read:
            self._stuck_since_s = None
            return number
        return self._past_hole(is_last)

    def _whole_from(self, number: int) -> int:
        memory, unpack, end = self._memory, _NUMBER.unpack_from, self._read + SLOTS
        while number < end and unpack(memory, slot_offset(number) + _NUMBER_AT)[0] == number + 1:
            number += 1
        return number

    def _past_hole(self, is_last: bool) -> int:
        """Go on behind a number whose writer was interrupted for good."""
        after = self._read + 1
        while after < self._read + SLOTS and self._whole_from(after) == after:
            after += 1
            if after - self._read > 64:
                self._stuck_since_s = None
                return self._read
        now_s = time.monotonic()
        self._stuck_since_s = self._stuck_since_s or now_s
        if not is_last and now_s - self._stuck_since_s < _HOLE_S:
            return self._read
        self._stuck_since_s = None
        self._lost += after - self._read
        self._read = after
        return self._whole_from(after)

    def take(self, head: int) -> list[PackedLaunch]:
        """The launches before `head`; their slots are free then."""
        if head == self._read:
            return []
        first, last = slot_offset(self._read), slot_offset(head)
        if first < last:
            data = self._memory[first:last]
        else:
            data = self._memory[first:] + self._memory[HEADER_BYTES:last]
        self._read = head
        _NUMBER.pack_into(self._memory, _READ_AT, head)
        return [PackedLaunch(*slot[:-1]) for slot in _SLOT.iter_unpack(data) if slot[0]]

    def take_lost(self) -> int:
        """How many numbers no launch took since the last time: writers were interrupted."""
        lost, self._lost = self._lost, 0
        return lost
