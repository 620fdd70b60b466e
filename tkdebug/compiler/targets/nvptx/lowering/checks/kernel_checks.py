"""Bounds, slots and clock that all checks of one kernel share.

`access` writes the tests of accesses with them, `reports` the reports to the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tkdebug.compiler.analysis.global_memory import loaded_root
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.sites import table
from tkdebug.compiler.sites.checks import (
    BOUNDS_KINDS,
    TESTS,
    CheckSite,
    check_bounds,
    check_sites,
)
from tkdebug.compiler.sites.live_memory import ENTRY_BYTES, GONE, LIVE, LOWEST, MEMORY
from tkdebug.compiler.sites.table import END_BYTES, PLACES
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.checks.corners import CarriedReach
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX

_SCRATCH = "check_scratch"

# Copies of sites that differ by a clock tick.
COPY_BITS = 16
_FARTHEST: Final = (1 << 63) - 1
# $0 first address of the interval, $1 its end, $2 its state; $3 the address, $4 the map. Of the
# intervals that begin at the address or before it, it is the last.
SEARCH: Final = f"""{{
.reg .pred more, here;
.reg .b64 low, high, at, first;
mov.u64 low, 0;
ld.global.u64 high, [$4];
CHECK_HALF:
add.u64 at, low, high;
shr.u64 at, at, 1;
mad.lo.u64 $2, at, {ENTRY_BYTES}, $4;
ld.global.u64 first, [$2+{ENTRY_BYTES}];
setp.le.u64 here, first, $3;
selp.u64 low, at, low, here;
selp.u64 high, high, at, here;
sub.u64 at, high, low;
setp.gt.u64 more, at, 1;
@more bra CHECK_HALF;
mad.lo.u64 at, low, {ENTRY_BYTES}, $4;
ld.global.u64 high, [$4];
ld.global.u64 $0, [at+{ENTRY_BYTES}];
ld.global.u64 $2, [at+{ENTRY_BYTES + 8}];
add.u64 low, low, 1;
setp.lt.u64 more, low, high;
mov.u64 $1, -1;
@more ld.global.u64 $1, [at+{2 * ENTRY_BYTES}];
}}"""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of the map of memory, i64 each."""

    first: LLVMValue
    end: LLVMValue
    state: LLVMValue


class LoadedPointers:
    """The pointers that one kernel loads, and the memory to which the map of memory confines them.

    If all pointers of a tile are offsets from one loaded pointer, that one is looked up once, as
    soon as it is loaded, and the tile has to stay in the allocation that it points into, by the
    same tests as tiles of parameters. Otherwise each pointer is looked up. The map says which
    memory is live, gone or unknown (`compiler.sites.live_memory`).

    Args:
        function: the `tt.func`.
        ctx: the kernel on its way to LLVM IR.
        memory: first address and end of the map of memory, i64; None if the kernel takes none.
    """

    def __init__(
        self, function: Operation, ctx: Lowering, memory: tuple[LLVMValue, LLVMValue] | None
    ) -> None:
        self._ctx = ctx
        self._memory = memory
        sites = check_sites(function)
        self._bases: set[Value] = set()
        self._found: dict[Value, Interval] = {}
        if not any(site.is_loaded for site in sites):
            return
        for op in function.walk():
            number = OpView(op).site
            if number is not None and sites[number].is_loaded:
                base = loaded_root(op)
                if base is not None:
                    self._bases.add(base)

    def look_at(self, op: Operation) -> None:
        """Look up the base pointers that `op` has just made."""
        for result in op.results if self._bases else ():
            if result in self._bases:
                self._found[result] = self._search(self._ctx.to_bits(self._ctx.values[result][0]))

    def are_related(self, op: Operation) -> bool:
        """Whether all pointers of an access are offsets from one that was looked up."""
        return loaded_root(op) in self._found

    def ends(self, op: Operation) -> tuple[LLVMValue, LLVMValue]:
        """Return the first address and the end of the memory open to a related access, i64.

        Live memory is open within its interval, memory that is gone not at all, and unknown memory
        without bounds. An offset from a null pointer is an address, which may be anywhere but near
        null.
        """
        found, emit = self._of(op), self._ctx.emit
        is_live, is_gone = (emit.icmp("eq", found.state, state) for state in (LIVE, GONE))
        is_null = emit.icmp("eq", found.first, 0)
        first = emit.select(is_null, integer("i64", LOWEST), integer("i64", 0))
        is_nowhere = emit.bit_and(is_gone, emit.xor(is_null, 1))
        is_known = emit.binary("or", is_live, is_nowhere)
        first = emit.select(is_known, found.first, first)
        end = emit.select(is_live, found.end, integer("i64", _FARTHEST))
        return first, emit.select(is_nowhere, found.first, end)

    def origin(self, op: Operation) -> LLVMValue:
        """Return the base of an access's pointers, i64; 0 if they are unrelated."""
        if not self.are_related(op):
            return integer("i64", 0)
        root = loaded_root(op)
        assert root is not None
        return self._ctx.to_bits(self._ctx.values[root][0])

    def may_access(self, pointer: LLVMValue) -> LLVMValue:
        """i1: whether an address is outside memory that is certainly gone."""
        return self._ctx.emit.icmp("ne", self._search(self._ctx.to_bits(pointer)).state, GONE)

    def _of(self, op: Operation) -> Interval:
        root = loaded_root(op)
        assert root is not None
        return self._found[root]

    def _search(self, address: LLVMValue) -> Interval:
        text = InlinePTX(("i64", "i64", "i64"))
        assert self._memory is not None
        where, memory = text.use(address), text.use(self._memory[0])
        assert (where, memory) == ("$3", "$4")
        text.put(SEARCH)
        return Interval(*text.emit(self._ctx))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The address of a tensor's first byte, and the tensor's size in bytes; i64."""

    first: LLVMValue
    size: LLVMValue


def _untested(site: CheckSite) -> str:
    """Return the test that an untested site counts as; "" if it is no access.

    Bulk copies cannot leave their tensor.
    """
    return TESTS[0] if site.kind in BOUNDS_KINDS else ""


class KernelChecks:
    """The checks of one kernel.

    Args:
        function: the `tt.func`.
        ctx: the kernel on its way to LLVM IR.
        parameters: the table, its copy for the host, then the bounds of each tensor.
    """

    def __init__(self, function: Operation, ctx: Lowering, parameters: Sequence[LLVMValue]) -> None:
        self.ctx = ctx
        self._function = function
        self._sites = check_sites(function)
        self._table, self._shown, *passed = parameters
        self._addresses: dict[bool, LLVMValue] = {}
        of_each = zip(*(passed[part::PLACES] for part in range(PLACES)), strict=True)
        self._ends: dict[str, tuple[LLVMValue, LLVMValue]] = {}
        self._elements: dict[str, LLVMValue] = {}
        for name, (first, end, elements) in zip(check_bounds(function), of_each, strict=True):
            self._ends[name], self._elements[name] = (first, end), elements
        self._bounds: dict[str, Bounds] = {}
        self._limits: dict[tuple[str, int], LLVMValue] = {}
        self._clock: LLVMValue | None = None
        self._copies = 0
        self._scratch_bytes = 0
        self._tests: dict[int, str] = {}
        # i1 of accesses whose tiles are tested together: whether all of these lie inside.
        self.tested_early: dict[Operation, LLVMValue] = {}
        self.pointers = LoadedPointers(function, ctx, self._ends.get(MEMORY))
        # Tiles that loops around carry.
        self.carried: dict[Value, CarriedReach] = {}

    def site_of(self, op: Operation) -> CheckSite | None:
        """Return the site of an op, or None if it has none."""
        number = OpView(op).site
        return None if number is None else self._sites[number]

    def value_site_of(self, op: Operation) -> CheckSite | None:
        """Return the site of the values that an op loads; None for any other op."""
        number = OpView(op).value_site
        return None if number is None else self._sites[number]

    def tested(self, op: Operation) -> CheckSite | None:
        """Return the site of an access whose bounds are tested, or None for any other op."""
        site = self.site_of(op)
        return None if site is None or site.bound is None else site

    def offset(self, site: CheckSite, op: Operation, pointer: LLVMValue) -> LLVMValue:
        """Return a pointer's distance from the tensor's first byte, i64; before it: very large."""
        emit, first = self.ctx.emit, self.bounds(site, op).first
        return emit.binary("sub", emit.cast("ptrtoint", pointer, "i64"), first)

    def ends(self, site: CheckSite, op: Operation) -> tuple[LLVMValue, LLVMValue]:
        """Return the first address and the end of the tensor that access `op` must stay in."""
        if site.tensor is None:
            return self.pointers.ends(op)
        return self._ends[site.tensor]

    def elements(self, site: CheckSite) -> LLVMValue | None:
        """Return the number of elements of a site's tensor from the kernel's pointer on, i32.

        At most 2**31 - 1; None if the tensor is none of the kernel's arguments.
        """
        return None if site.tensor is None else self._elements[site.tensor]

    def bounds(self, site: CheckSite, op: Operation) -> Bounds:
        """Return the bounds of the tensor that access `op` of a site must stay in."""
        if site.tensor is None:
            first, end = self.pointers.ends(op)
            return Bounds(first, self.ctx.emit.binary("sub", end, first))
        if site.tensor not in self._bounds:
            first, end = self._ends[site.tensor]
            with self.ctx.emit.in_entry():
                size = self.ctx.emit.binary("sub", end, first)
            self._bounds[site.tensor] = Bounds(first, size)
        return self._bounds[site.tensor]

    def limit(self, site: CheckSite, op: Operation, size_bytes: int) -> LLVMValue:
        """Return the offset below which `size_bytes` may begin; 0 if the tensor is smaller."""
        if site.tensor is None:
            return self._limit(self.bounds(site, op).size, size_bytes)
        key = site.tensor, size_bytes
        if key not in self._limits:
            size = self.bounds(site, op).size
            with self.ctx.emit.in_entry():
                self._limits[key] = self._limit(size, size_bytes)
        return self._limits[key]

    def _limit(self, size: LLVMValue, size_bytes: int) -> LLVMValue:
        emit = self.ctx.emit
        places = emit.binary("sub", size, integer("i64", size_bytes - 1))
        return emit.select(emit.icmp("sgt", places, 0), places, integer("i64", 0))

    def slot(self, site: CheckSite) -> LLVMValue:
        """Return the address of a site's slot."""
        return self.ctx.emit.gep(self._table, "i8", site.number * table.SLOT_BYTES)

    def place(self, site: CheckSite, *, shown: bool = False) -> tuple[LLVMValue, int]:
        """Return a table's address, i64, and a site's slot's offset: PTX adds constants itself.

        Args:
            site: the tested site.
            shown: whether to take the table's copy for the host.
        """
        if shown not in self._addresses:
            first = self._shown if shown else self._table
            with self.ctx.emit.in_entry():
                self._addresses[shown] = self.ctx.emit.cast("ptrtoint", first, "i64")
        return self._addresses[shown], site.number * table.SLOT_BYTES

    @cached_property
    def has_loop(self) -> bool:
        """Whether the kernel has a loop."""
        return any(map(scf.Loop.matches, self._function.walk()))

    def is_in_loop(self, op: Operation) -> bool:
        """Whether an op may run more than once in a program."""
        return any(scf.loops_around(op))

    def begins_at_multiple(self, site: CheckSite, size_bytes: int) -> bool:
        """Whether a site's tensor is known to begin at a multiple of so many bytes."""
        function = tt.Func(self._function)
        divisors = dict(zip(function.arg_names, function.arg_divisibility or (), strict=False))
        return site.tensor is not None and divisors.get(site.tensor, 1) % size_bytes == 0

    def holds_whole_vectors(self, site: CheckSite, size_bytes: int) -> bool:
        """Whether it is known that no vector of so many bytes crosses an end of a site's tensor."""
        has_end = site.tensor in tt.Func(self._function).check_aligned_ends
        return has_end and END_BYTES % size_bytes == 0 and self.begins_at_multiple(site, size_bytes)

    def scratch(self, size_bytes: int) -> str:
        """Reserve local memory of so many bytes for one piece of inline PTX; return its name."""
        self._scratch_bytes = max(self._scratch_bytes, size_bytes)
        return _SCRATCH

    def finish(self) -> None:
        """Declare the local memory that the inline PTX uses, after all of it is written."""
        if self._scratch_bytes:
            memory = f".local .align 16 .b8 {_SCRATCH}[{self._scratch_bytes}];"
            with self.ctx.emit.in_entry():
                self.ctx.emit.asm(memory, "", "void", ())

    def note_test(self, site: CheckSite, test: str) -> None:
        """Note how a copy of a site is tested; if there are several, the costliest test counts."""
        known = self._tests.get(site.number, TESTS[0])
        self._tests[site.number] = max(known, test, key=TESTS.index)

    @property
    def tests(self) -> tuple[str, ...]:
        """Names of the sites' tests, in order; accesses by tensor maps stay in their tensor."""
        return tuple(
            self._tests.get(site.number, "" if site.tensor is None else _untested(site))
            for site in self._sites
        )

    # Time

    def time(self) -> LLVMValue:
        """Return the program's time here, i64: iterations so far, then the number of this copy.

        Copies of a site are in the order of iterations.
        """
        emit, (iterations, copy) = self.ctx.emit, self.clock()
        clock = emit.cast("zext", iterations, "i64")
        return emit.binary("or", emit.shl(clock, COPY_BITS), integer("i64", copy))

    def clock(self) -> tuple[LLVMValue, int]:
        """Return the parts of `time`: iterations, i32, and the number of this copy in the text."""
        self._copies += 1
        assert self._copies < 1 << COPY_BITS
        return self.ctx.emit.load("i32", self._clock_place(), 4), self._copies

    def tick(self, loop: Operation) -> None:
        """Count an iteration of a loop, unless no site in it reports by time."""
        sites = (s for op in loop.walk() for s in (self.site_of(op), self.value_site_of(op)))
        if all(site is None or site.is_recomputed for site in sites):
            return
        emit, clock = self.ctx.emit, self._clock_place()
        emit.store(emit.add(emit.load("i32", clock, 4), 1), clock, 4)

    def _clock_place(self) -> LLVMValue:
        """Return the place of the count of iterations, which LLVM keeps in a register."""
        if self._clock is None:
            emit = self.ctx.emit
            with emit.in_entry():
                self._clock = emit.raw("ptr", "alloca i32, align 4")
                emit.store(integer("i32", 0), self._clock, 4)
        return self._clock
