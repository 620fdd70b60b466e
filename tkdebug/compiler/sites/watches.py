"""A site of a watch: a value of a kernel that is looked at, and the memory that native code fills.

Sites are numbered in the order in which the front end met them. A `tt.watch` carries its number
through all passes: copies that unrolling makes share it. The kernel carries the list of its sites
as text.

For each site a launch's memory has a counter, and as many records as fit. A record is made of
words of 8 bytes: the program's number, the iteration, then the summary's fields (`Word`) and
histogram, or the elements of the tile in row-major order. A counter goes on counting where nothing
fits any more.

The log of a kernel's accesses, by which races between its programs are found on the host, has such
sites too. Each access is one, of whole tiles, with one word an element: the low bits of its address
and a hash of the value read or written there; 0 if it is masked off. In the place of the iteration
a record has its time: how many records of all sites were begun before it. An atomic that may
synchronise has two sites, as its releases count from before it, and its acquires from after
it. The last site has no op: its counter is the clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.sites.texts import read_sites
from tkdebug.errors import Frame
from tkdebug.watches.places import Span, Watch

if TYPE_CHECKING:
    from tkdebug.watches.conditions import Node

WORD_BYTES: Final = 8
# Bins of magnitudes: below 2 ** (FIRST_EXPONENT + 1), then a power of two each, the last open.
BINS: Final = 64
FIRST_EXPONENT: Final = -32


class Word(IntEnum):
    """Places of a summary's fields in its record; histogram bins come after the last one."""

    PROGRAM = 0
    ITERATION = 1
    NAN = 2
    INF = 3
    ZEROS = 4
    # Bits of fp64.
    MINIMUM = 5
    MAXIMUM = 6
    # The sum of the finite elements times 2 ** scale, each truncated to an integer; and the scale.
    SUM = 7
    SCALE = 8


HEADER_WORDS: Final = Word.ITERATION + 1
SUMMARY_WORDS: Final = Word.SCALE + 1


@dataclass(frozen=True, slots=True)
class WatchSite:
    """A value that is looked at.

    Attributes:
        number: the number of its counter.
        watch: the request.
        name: the name of the variable.
        frames: call chain of its line, outermost first.
        type: the type in the language's words: `fp32[64, 64]`.
        dtype: the dtype of its elements, by the language's name: `fp32`, `uint8`.
        element: IR name of the element type.
        is_unsigned: whether integers have no sign.
        shape: the shape of the tile, () for a scalar.
        programs: boxes of programs, () for all.
        condition: the text of the condition, "" for always.
        is_whole: whether the whole tile is kept.
        plugin: the instrumentation that wants it; "" for a watch.
        op_id: the op that it is an operand of, for a plugin.
        operand: the number of the value among those that the plugin wants of the op.
    """

    number: int
    watch: str
    name: str
    frames: tuple[Frame, ...]
    type: str
    dtype: str
    element: str
    is_unsigned: bool
    shape: tuple[int, ...]
    programs: tuple[tuple[Span, ...], ...]
    condition: str
    is_whole: bool
    plugin: str = ""
    op_id: int = 0
    operand: int = 0

    @property
    def elements(self) -> int:
        """Number of elements of the tile."""
        return math.prod(self.shape)

    @property
    def node(self) -> Node | None:
        """The parsed condition; None without one."""
        if not self.condition:
            return None
        from tkdebug.watches.conditions import read_condition

        return read_condition(self.condition, self.name)

    @property
    def element_bytes(self) -> int:
        """Size of an element in a record of a whole tile, in bytes."""
        digits = "".join(filter(str.isdecimal, self.element.partition("E")[0]))
        return max(1, int(digits) // 8)

    @property
    def record_words(self) -> int:
        """Size of one record, in words of 8 bytes."""
        if self.is_whole:
            return HEADER_WORDS + -(-self.elements * self.element_bytes // WORD_BYTES)
        return SUMMARY_WORDS + BINS

    @staticmethod
    def of(watch: Watch, number: int, frames: tuple[Frame, ...], **value: object) -> WatchSite:
        """The site of a watch, with the facts of its value."""
        return WatchSite(
            number=number,
            watch=watch.text,
            name=watch.name,
            frames=frames,
            programs=watch.programs,
            condition=watch.condition,
            is_whole=watch.whole,
            **value,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True)
class Space:
    """The place of a site's records.

    Attributes:
        first_word: the place of the first record.
        capacity: the number of records that fit.
    """

    first_word: int
    capacity: int


def spaces(sites: Sequence[WatchSite], budget_bytes: int) -> tuple[Space, ...]:
    """Return the space of each site: an equal share of the budget, but at least one record."""
    found, first = [], 0
    for site in sites:
        share = budget_bytes // (len(sites) * site.record_words * WORD_BYTES)
        found.append(Space(first, max(1, share)))
        first += found[-1].capacity * site.record_words
    return tuple(found)


def records_words(sites: Sequence[WatchSite], budget_bytes: int) -> int:
    """Words that the records of all sites take."""
    rooms = zip(spaces(sites, budget_bytes), sites, strict=True)
    return sum(space.capacity * site.record_words for space, site in rooms)


def watch_sites(function: Operation) -> tuple[WatchSite, ...]:
    """The sites of a kernel, in the order of their numbers; none for a kernel without watches.

    Raises:
        IRError: the kernel's list cannot be read.
    """
    return read_sites(WatchSite, tt.Func(function).watch_sites, "watch_sites")


def watch_ops(function: Operation) -> Iterator[tuple[Operation, int]]:
    """The ops that show a value, each with the number of its site."""
    for op in function.walk():
        if tt.Watch.matches(op):
            yield op, tt.Watch(op).watch


# The name of the log, which no plugin has.
LOGGED: Final = "*race"
BEFORE: Final = 0
AFTER: Final = 1
ADDRESS_BITS: Final = 48
HASH_BITS: Final = 16
# Memory for the log of one launch.
LOG_BYTES: Final = 32 << 20


def is_logged(site: WatchSite) -> bool:
    """Whether a site is one of the access log."""
    return site.plugin == LOGGED


def clock_of(sites: Sequence[WatchSite]) -> int:
    """The number of the site whose counter is the clock."""
    return sites[-1].number
