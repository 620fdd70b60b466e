"""The map of memory that a checked launch takes: where pointers that a kernel loads may lead.

It cuts all addresses into intervals, each of which is live (one allocation), gone (no allocation,
or one that was freed), or unknown: memory of other libraries, of which nobody has a list. Only what
is certain is a fault, so unknown memory is left alone, unless a pointer into a live allocation led
there.

In memory: how many intervals there are, then 16 bytes for each, its first address and its state. It
ends where the next one begins.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

# Bit patterns that fresh memory is filled with, where reads of it are looked for
# (`interpreter.checks.unwritten.patterns`), by the element type's name; other types have none.
MARKS: Final[Mapping[str, int]] = {
    "f16": 0x7D5A,
    "bf16": 0x7FA5,
    "f32": 0x7FA5A5A5,
    "f64": 0x7FF5A5A5A5A5A5A5,
    "i32": 0xA5A5A5A5,
    "i64": 0xA5A5A5A5A5A5A5A5,
}


# The map's name among the bounds that a kernel takes; no parameter has such a name.
MEMORY: Final = "*memory"
UNKNOWN: Final = 0
LIVE: Final = 1
GONE: Final = 2
ENTRY_BYTES: Final = 16
# Nothing is mapped below the first page of a process, nor beyond 57 bits of address.
LOWEST: Final = 1 << 16
HIGHEST: Final = 1 << 57
_PAIR: Final = struct.Struct("=QQ")


class AddressRange(NamedTuple):
    """Addresses from `first` to before `end`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """The allocations that are known when a launch is made.

    Attributes:
        live: allocations.
        gone: memory that certainly belongs to no allocation; memory that is live, too, counts as
            live.
        stale: allocations that were freed, whatever is there now.
    """

    live: Sequence[AddressRange]
    gone: Sequence[AddressRange] = ()
    stale: Sequence[AddressRange] = ()

    def packed(self, most: int) -> bytes:
        """Pack the map as a kernel takes it.

        Args:
            most: the most intervals; if there are more, all mappable addresses are unknown.
        """
        found = self.intervals()
        if len(found) > most:
            found = MemoryMap(()).intervals()
        return _PAIR.pack(len(found), 0) + b"".join(_PAIR.pack(*one) for one in found)

    def intervals(self) -> list[tuple[int, int]]:
        """Return the first address and the state of each interval, ascending."""
        cut = {0, LOWEST, HIGHEST}
        gone = [AddressRange(0, LOWEST), AddressRange(HIGHEST, 1 << 64), *self.gone]
        for spans in (gone, self.live, self.stale):
            cut.update(place for span in spans if span.first < span.end for place in span)
        places = sorted(place for place in cut if place < 1 << 64)
        states = [UNKNOWN] * len(places)
        # The beginnings of allocations, so that two of them are two intervals.
        begins = {0, *(span.first for span in self.live)}
        at = {place: index for index, place in enumerate(places)}
        at[1 << 64] = len(places)
        for spans, state in ((gone, GONE), (self.live, LIVE), (self.stale, GONE)):
            for first, end in spans:
                if first < end:
                    states[at[first] : at[end]] = [state] * (at[end] - at[first])
        return [
            (place, state)
            for index, (place, state) in enumerate(zip(places, states, strict=True))
            if place in begins or state != states[index - 1]
        ]


def merged(spans: Iterable[AddressRange]) -> list[AddressRange]:
    """Return the spans in ascending order, with those that touch or overlap merged."""
    found: list[AddressRange] = []
    for span in sorted(spans):
        if found and span.first <= found[-1].end:
            found[-1] = AddressRange(found[-1].first, max(found[-1].end, span.end))
        elif span.first < span.end:
            found.append(span)
    return found


def overlapping(span: AddressRange, ascending: Sequence[AddressRange]) -> Iterator[AddressRange]:
    """Yield the parts of a span that lie in the given spans, which do not overlap."""
    for other in ascending[max(0, bisect_right(ascending, span) - 1) :]:
        if other.first >= span.end:
            return
        if other.end > span.first:
            yield AddressRange(max(span.first, other.first), min(span.end, other.end))


def without(span: AddressRange, ascending: Sequence[AddressRange]) -> Iterator[AddressRange]:
    """Yield the parts of a span that lie in none of the given spans, which do not overlap."""
    first = span.first
    for part in overlapping(span, ascending):
        if first < part.first:
            yield AddressRange(first, part.first)
        first = part.end
    if first < span.end:
        yield AddressRange(first, span.end)
