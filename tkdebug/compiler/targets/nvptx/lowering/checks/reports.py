"""Reports of bad elements to the table: a flag, or a report that says which they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.sites import table
from tkdebug.compiler.sites.checks import CheckSite
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.checks.kernel_checks import KernelChecks
from tkdebug.compiler.targets.nvptx.lowering.checks.places import (
    acting_thread,
    counted_registers,
    linear_places,
)
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Registers
from tkdebug.compiler.targets.target import REDUX

# A lock that is never given back was not free before the launch; no thread waits for it forever.
_MOST_TRIES: Final = 1 << 24

_SUMS: Final = """redux.sync.add.u32 count, $3, active;
redux.sync.add.u32 m, $5, active;
redux.sync.min.u32 least, $4, active;
"""
# The same before sm_80: the lanes that are here go through each other's values together.
_SUMS_BY_LANE: Final = """mov.u32 count, 0;
mov.u32 m, 0;
mov.u32 least, -1;
mov.b32 l, active;
CHECK_LANE:
brev.b32 e, l;
clz.b32 e, e;
shfl.sync.idx.b32 tries, $3, e, 31, active;
add.u32 count, count, tries;
shfl.sync.idx.b32 tries, $5, e, 31, active;
add.u32 m, m, tries;
shfl.sync.idx.b32 tries, $4, e, 31, active;
min.u32 least, least, tries;
sub.u32 e, l, 1;
and.b32 l, l, e;
setp.ne.u32 more, l, 0;
@more bra CHECK_LANE;
mov.u32 tries, 0;
"""

# `p`: the number of the program in the grid, x fastest.
_PROGRAM: Final = """mov.u32 l, %ctaid.z;
mov.u32 e, %nctaid.y;
mul.wide.u32 p, l, e;
mov.u32 e, %ctaid.y;
cvt.u64.u32 t, e;
add.u64 p, p, t;
mov.u32 e, %nctaid.x;
cvt.u64.u32 t, e;
mul.lo.u64 p, p, t;
mov.u32 e, %ctaid.x;
cvt.u64.u32 t, e;
add.u64 p, p, t;"""

_WORDS: Final = (table.COUNT, table.PROGRAM, table.TIME, table.PAYLOAD, table.BAD, table.ORIGIN)
_HALF_WORDS: Final = (table.ELEMENT, table.COMPLETE)
# A copy of the slot for the host, at t: its version is odd until all of it has arrived. ptxas takes
# a fifth less time for a branch around it than where each instruction is predicated.
_SHOWN: Final = "\n".join(
    (
        "@!seen bra CHECK_UNSEEN;",
        f"ld.relaxed.gpu.global.u32 e, [$0+{table.VERSION}];",
        "add.u32 e, e, 1;",
        f"st.relaxed.sys.global.u32 [t+{table.VERSION}], e;",
        "fence.acq_rel.sys;",
        *(
            line
            for place in _WORDS
            for line in (
                f"ld.relaxed.gpu.global.u64 p, [$0+{place}];",
                f"st.relaxed.sys.global.u64 [t+{place}], p;",
            )
        ),
        "add.u32 e, e, 1;",
        f"st.relaxed.gpu.global.u32 [$0+{table.VERSION}], e;",
        *(
            line
            for place in _HALF_WORDS
            for line in (
                f"ld.relaxed.gpu.global.u32 half, [$0+{place}];",
                f"st.relaxed.sys.global.u32 [t+{place}], half;",
            )
        ),
        "fence.acq_rel.sys;",
        f"st.relaxed.sys.global.u32 [t+{table.VERSION}], e;",
        "CHECK_UNSEEN:",
        "",
    )
)

# $0 slot, $1 whether all threads report where one of them has bad elements, $2 time, $3 bad
# elements of this thread, $4 the place of the least of them in the tile, $5 elements that the mask
# leaves out, $6 the least one's address or value; `me` is the program's number plus one.
# One lane reports for all that are here from the same site at the same time, the one with their
# least element: lanes that had nothing to report may have gone on, and be here from a later site.
# It looks whether its report matters each time before it tries to take the lock: where all programs
# have faults, most find a lesser program there, and never take it. What is done with the lock does
# not wait, so the lane gives it back in the same turn, and lanes that want it too sleep meanwhile.
REPORT: Final = f"""{{
.reg .pred more, mine, less, same, first, lead, seen;
.reg .b64 p, t, me;
.reg .b32 l, e, m, tries, active, count, least, half;
{_PROGRAM}
add.u64 me, p, 1;
mov.u32 tries, 0;
activemask.b32 active;
match.any.sync.b64 l, $0, active;
match.any.sync.b64 e, $2, active;
and.b32 active, l, e;
{_SUMS}setp.eq.u32 lead, $4, least;
vote.sync.ballot.b32 l, lead, active;
brev.b32 l, l;
clz.b32 l, l;
mov.u32 e, %laneid;
setp.eq.u32 lead, e, l;
cvt.u64.u32 p, count;
@lead red.relaxed.gpu.global.add.u64 [$0+{table.COUNT}], p;
CHECK_AGAIN:
ld.acquire.gpu.global.u64 p, [$0+{table.PROGRAM}];
ld.acquire.gpu.global.u64 t, [$0+{table.TIME}];
setp.gt.u64 less, p, me;
setp.eq.or.u64 more, p, 0, less;
setp.ge.u64 same, t, $2;
setp.eq.and.u64 same, p, me, same;
or.pred more, more, same;
and.pred more, more, lead;
mov.u32 l, 1;
@more atom.acquire.gpu.global.cas.b32 l, [$0+{table.LOCK}], 0, 1;
setp.eq.and.u32 mine, l, 0, more;
mov.u64 p, 0;
mov.u64 t, 0;
@mine ld.relaxed.gpu.global.u64 p, [$0+{table.PROGRAM}];
@mine ld.relaxed.gpu.global.u64 t, [$0+{table.TIME}];
setp.eq.u64 first, p, 0;
setp.gt.or.u64 first, p, me, first;
setp.eq.u64 same, p, me;
setp.gt.and.u64 less, t, $2, same;
or.pred first, first, less;
setp.eq.and.u64 same, t, $2, same;
and.pred first, first, mine;
and.pred same, same, mine;
@first st.relaxed.gpu.global.u64 [$0+{table.TIME}], $2;
@first st.relaxed.gpu.global.u32 [$0+{table.ELEMENT}], -1;
@first st.relaxed.gpu.global.u32 [$0+{table.BAD}], 0;
@first st.relaxed.gpu.global.u32 [$0+{table.MASKED}], 0;
@first st.relaxed.gpu.global.u32 [$0+{table.COMPLETE}], $1;
@first st.release.gpu.global.u64 [$0+{table.PROGRAM}], me;
or.pred same, same, first;
mov.u64 t, 0;
@same ld.global.u64 t, [$0+HEADER];
setp.ne.and.u64 seen, t, 0, same;
add.u64 t, t, $0;
mov.u32 e, 0;
@same ld.relaxed.gpu.global.u32 e, [$0+{table.BAD}];
add.u32 e, e, count;
@same st.relaxed.gpu.global.u32 [$0+{table.BAD}], e;
@same ld.relaxed.gpu.global.u32 e, [$0+{table.MASKED}];
add.u32 e, e, m;
@same st.relaxed.gpu.global.u32 [$0+{table.MASKED}], e;
@same ld.relaxed.gpu.global.u32 e, [$0+{table.ELEMENT}];
setp.lt.and.u32 same, least, e, same;
@same st.relaxed.gpu.global.u32 [$0+{table.ELEMENT}], least;
@same st.relaxed.gpu.global.u64 [$0+{table.PAYLOAD}], $6;
{_SHOWN}@mine st.release.gpu.global.u32 [$0+{table.LOCK}], 0;
setp.ne.and.u32 more, l, 0, more;
add.u32 tries, tries, 1;
setp.lt.and.u32 more, tries, {_MOST_TRIES}, more;
@more nanosleep.u32 100;
@more bra CHECK_AGAIN;
}}"""

REPORT_WITHOUT_REDUX: Final = REPORT.replace(_SUMS, _SUMS_BY_LANE)

_PAYLOAD: Final = f"@same st.relaxed.gpu.global.u64 [$0+{table.PAYLOAD}], $6;"


def with_origin(text: str) -> str:
    """Return a report's PTX that also stores the base of the tile's pointers, $7."""
    assert _PAYLOAD in text
    origin = f"@same st.relaxed.gpu.global.u64 [$0+{table.ORIGIN}], $7;"
    return text.replace(_PAYLOAD, f"{_PAYLOAD}\n{origin}")


# $0 the slot that the host sees, $1 whether this thread has bad elements. Half of the count is
# enough, and takes fewer registers.
FLAG: Final = f"@$1 st.relaxed.sys.global.u32 [$0+{table.COUNT}], 1;"


def at_site(text: str, number: int) -> str:
    """Return a report's PTX with the header's offset from the slot of site `number` filled in."""
    return text.replace("HEADER", str(-number * table.SLOT_BYTES - table.HEADER_BYTES))


_NONE = -1


@dataclass(frozen=True, slots=True)
class Tally:
    """The bad elements of a tile in one thread: their count and the least, i32 each.

    Attributes:
        count: the number of bad elements.
        least: the place in the tile of the least bad element, -1 without any.
        payload: the address of that element, i64.
        masked: the number of elements that the mask leaves out.
    """

    count: LLVMValue
    least: LLVMValue
    payload: LLVMValue
    masked: LLVMValue

    @staticmethod
    def empty() -> Tally:
        """Return the tally of no elements."""
        zero = integer("i32", 0)
        return Tally(zero, integer("i32", _NONE), integer("i64", 0), zero)


def flag(checks: KernelChecks, site: CheckSite, is_bad: LLVMValue) -> None:
    """Set a site's flag, in the table's copy for the host, if this thread has bad elements."""
    address, offset = checks.place(site, shown=True)
    emit = checks.ctx.emit
    slot = emit.binary("add", address, integer("i64", offset))
    emit.asm(FLAG, "l,b,~{memory}", "void", (slot, is_bad))


def report(
    checks: KernelChecks,
    site: CheckSite,
    tally: Tally,
    reports: LLVMValue,
    is_complete: bool,
    origin: LLVMValue | None = None,
) -> None:
    """Report the bad elements of threads in which `reports` holds.

    Args:
        checks: the checks of the kernel.
        site: the site of the report.
        tally: the bad elements.
        reports: i1: whether a thread reports.
        is_complete: whether all threads report where one of them has bad elements.
        origin: for a loaded pointer, i64: the base of the tile's pointers.
    """
    emit = checks.ctx.emit
    bad, after = emit.new_block("check.report"), emit.new_block("check.reported")
    emit.branch_rarely(reports, bad, after)
    emit.start(bad)
    slot = emit.cast("ptrtoint", checks.slot(site), "i64")
    complete = integer("i32", int(is_complete))
    found = (tally.count, tally.least, tally.masked, tally.payload)
    arguments: tuple[LLVMValue, ...] = (slot, complete, checks.time(), *found)
    constraints = "l,r,l,r,r,r,l"
    if origin is not None:
        arguments = (*arguments, origin)
        constraints += ",l"
    text = report_text(checks.ctx, site, has_origin=origin is not None)
    emit.asm(text, f"{constraints},~{{memory}}", "void", arguments)
    emit.branch(after)
    emit.start(after)


def in_any_thread(ctx: Lowering, predicate: str) -> str:
    """Return the instruction that sets a predicate in all threads of a block if one has it set."""
    if ctx.num_warps > 1:
        return f"barrier.cta.red.or.pred {predicate}, 0, {predicate};"
    return f"vote.sync.any.pred {predicate}, {predicate}, -1;"


def report_text(ctx: Lowering, site: CheckSite, *, has_origin: bool) -> str:
    """The PTX of a report, with operands as `REPORT` has them."""
    text = at_site(REPORT if ctx.target.has(REDUX) else REPORT_WITHOUT_REDUX, site.number)
    return with_origin(text) if has_origin else text


def report_elements(
    checks: KernelChecks,
    op: Operation,
    value: Value,
    bad: Registers,
    *,
    site: CheckSite | None = None,
    at: Registers | None = None,
) -> bool:
    """Report the bad elements of a tile, or the bad scalar; return whether `op` is a site.

    Args:
        checks: the checks of the kernel.
        op: the tested op.
        value: the value whose layout the elements have.
        bad: i1 of each register.
        site: the site that reports them, if it is not the op's own.
        at: pointer of each register's element.
    """
    ctx, emit = checks.ctx, checks.ctx.emit
    site = site or checks.site_of(op)
    if site is None:
        return False
    counted = counted_registers(ctx, value)
    found = integer("i1", 0)
    for register in sorted(counted):
        found = emit.binary("or", found, bad[register])
    acting = acting_thread(ctx, value)
    if acting is not None:
        found = emit.bit_and(found, acting)
    far, after = emit.new_block("check.bad"), emit.new_block("check.after")
    emit.branch_rarely(found, far, after)
    emit.start(far)
    tally, places = Tally.empty(), linear_places(ctx, value)
    ones = {register: emit.cast("zext", bad[register], "i32") for register in sorted(counted)}
    here = {register: places[register] for register in ones}
    addresses = {register: ctx.to_bits(at[register]) for register in ones} if at else {}
    tally = tallied(ctx, tally, ones, here, addresses)
    report(checks, site, tally, integer("i1", 1), is_complete=False)
    emit.branch(after)
    emit.start(after)
    return True


def tallied(
    ctx: Lowering,
    tally: Tally,
    bad: Mapping[int, LLVMValue],
    places: Mapping[int, LLVMValue],
    payloads: Mapping[int, LLVMValue],
) -> Tally:
    """Return a tally with the bad elements of some registers added.

    Args:
        ctx: the kernel.
        tally: the bad elements before.
        bad: the number of bad elements in each register, or in those it represents, i32.
        places: the place in the tile of the first bad element of each, i32.
        payloads: the address of that element, i64.
    """
    emit = ctx.emit
    count, least, payload = tally.count, tally.least, tally.payload
    for register, number in bad.items():
        count = emit.binary("add", count, number)
        here = emit.select(emit.icmp("ne", number, 0), places[register], integer("i32", _NONE))
        is_less = emit.icmp("ult", here, least)
        least = emit.select(is_less, here, least)
        if register in payloads:
            payload = emit.select(is_less, payloads[register], payload)
    return Tally(count, least, payload, tally.masked)
