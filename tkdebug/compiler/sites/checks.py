"""Check sites: source accesses, and other ops, that a checked kernel tests as it runs.

Sites are numbered in program order. The op carries its number in the attribute `site`, through all
passes: copies that pipelining makes of a load share it. The kernel carries the list of its sites as
text, so that printed GPU IR explains its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.sites.live_memory import MEMORY
from tkdebug.compiler.sites.table import PLACES, SYMPTOM_KINDS, table_bytes
from tkdebug.compiler.sites.texts import read_sites
from tkdebug.compiler.sites.watches import WORD_BYTES, WatchSite
from tkdebug.records.running_faults import SiteText
from tkdebug.watches.places import Watch

if TYPE_CHECKING:
    from tkdebug.compiler.sites.clocks import TimelineOptions, TimelinePlan
    from tkdebug.records.events import FaultKind

BOUNDS_KINDS: Final = ("oob-load", "oob-store", "oob-atomic")
UNWRITTEN: Final = "uninitialised-read"
# All kinds of faults that native code can check, and those that it checks by default.
ALL_KINDS: Final = (*BOUNDS_KINDS, "assert", "assumption", *SYMPTOM_KINDS, UNWRITTEN)
KINDS: Final = tuple(kind for kind in ALL_KINDS if kind != UNWRITTEN)
# Tests of an access: none, as no element can be outside; once before a loop; once for each tile;
# once for each element, which costs most.
TESTS: Final = ("proven", "before-loop", "tile", "element")


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of a checked build: its checks and its records.

    Attributes:
        kinds: the kinds of faults that it checks, some of `ALL_KINDS`; "race" logs its accesses.
        watches: values that are looked at, of any kernel.
        watch_bytes: memory for a launch's records of watched values, or of its log of accesses.
        instrumentations: plugins that look at ops, by name.
        timeline: the options of its timeline; a kernel that keeps one has nothing else.
        is_lasting: whether all later launches use that build, and none waits for it: then its
            compile may take longer to make the code faster.
        aligned_ends: parameters whose tensors end at multiples of `table.END_BYTES` in every
            launch of that build. No vector crosses such an end, so checks are shorter.
    """

    kinds: frozenset[str] = frozenset(KINDS)
    watches: tuple[Watch, ...] = ()
    watch_bytes: int = 4 << 20
    instrumentations: tuple[str, ...] = ()
    timeline: TimelineOptions | None = None
    is_lasting: bool = False
    aligned_ends: frozenset[str] = frozenset()

    @property
    def reads_marks(self) -> bool:
        """Whether loads look for the marks of memory that nothing has written."""
        return UNWRITTEN in self.kinds


@dataclass(frozen=True, slots=True)
class CheckSite:
    """One test: its kind, and the op that is tested.

    Attributes:
        number: the number of its slot in the table.
        kind: the kind of the fault that it reports.
        op_id: the Tile IR op.
        tensor: the parameter whose tensor an access must stay in; None if there is none.
        shape: the shape of the tile, () for a scalar.
        element_bytes: size of the access's elements; 0 for sites that access no memory.
        is_masked: whether it has a mask.
        is_recomputed: whether arguments and program ids alone decide which elements are bad: then
            the kernel only flags the site, and the host finds the elements.
        is_loaded: whether its pointer is no parameter's: it is tested by the map of memory.
    """

    number: int
    kind: str
    op_id: int
    tensor: str | None
    shape: tuple[int, ...]
    element_bytes: int
    is_masked: bool
    is_recomputed: bool = False
    is_loaded: bool = False

    @property
    def bound(self) -> str | None:
        """The entry of `CheckPlan.bounds` that tests the access; None if none does."""
        return MEMORY if self.is_loaded else self.tensor


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """The key to a checked kernel's reports.

    Attributes:
        sites: the check sites, by number.
        bounds: the parameters whose tensors' bounds the kernel takes, in that order; `MEMORY` for
            the map of memory.
        module: the Tile IR, whose ops carry the numbers of their sites.
        watches: values that are looked at, by number.
        watch_bytes: memory for a launch's records of watched values, or of its log of accesses.
        timeline: the plan to read its timelines by; None without.
        tests: how each site is tested, one of `TESTS`; "" for a site that is no access, or not
            tested.
    """

    sites: tuple[CheckSite, ...]
    bounds: tuple[str, ...]
    module: Module
    watches: tuple[WatchSite, ...] = ()
    watch_bytes: int = 0
    timeline: TimelinePlan | None = None
    tests: tuple[str, ...] = ()

    @property
    def table_bytes(self) -> int:
        """Size of a launch's memory: the sites' slots, then a counter for each watched value.

        For a kernel with timelines, it is the size of the timelines alone.
        """
        if self.timeline is not None:
            return self.timeline.size_bytes
        return table_bytes(len(self.sites)) + WORD_BYTES * len(self.watches)

    @property
    def takes_table(self) -> bool:
        """Whether the kernel takes the table's address."""
        return bool(self.sites) or self.timeline is not None

    @property
    def takes_map(self) -> bool:
        """Whether the kernel takes the map of memory."""
        return MEMORY in self.bounds

    @property
    def watch_places(self) -> tuple[int, int]:
        """The places of counters and records, after the table's addresses and the bounds."""
        first = 2 + PLACES * len(self.bounds)
        return first, first + 1

    @property
    def has_blocks(self) -> bool:
        """Whether the kernel accesses blocks of tensors through descriptors."""
        known = self.module.derived.get(tt.DescriptorBlockAccess)
        if known is None:
            known = any(tt.DescriptorBlockAccess.matches(op) for op in self.module.walk())
            self.module.derived[tt.DescriptorBlockAccess] = known
        return bool(known)

    @property
    def site_texts(self) -> tuple[SiteText, ...]:
        """Kinds and places of the sites, in the order of their slots."""
        found: dict[int, Operation] = {}
        for op in self.module.walk():
            for number in (OpView(op).site, OpView(op).value_site):
                if number is not None:
                    found.setdefault(number, op)
        places = (found.get(site.number, self.module.function) for site in self.sites)
        return tuple(
            SiteText(cast("FaultKind", site.kind), op.location.frames, site.tensor)
            for site, op in zip(self.sites, places, strict=True)
        )

    def op_of(self, site: CheckSite) -> Operation:
        """The Tile IR op of a site."""
        return next(op for op in self.module.walk() if OpView(op).site == site.number)

    def value_op_of(self, site: CheckSite) -> Operation:
        """The Tile IR op of a site for stored values."""
        return next(op for op in self.module.walk() if OpView(op).value_site == site.number)


def check_sites(function: Operation) -> tuple[CheckSite, ...]:
    """The sites of a kernel, in the order of their numbers; none for a kernel without checks.

    Raises:
        IRError: the kernel's list cannot be read.
    """
    return read_sites(CheckSite, tt.Func(function).check_sites, "check_sites")


def check_bounds(function: Operation) -> tuple[str, ...]:
    """The parameters whose bounds a kernel takes, in the order in which it does."""
    return tt.Func(function).check_bounds
