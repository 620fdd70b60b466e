"""Tests of accesses, and their handling of bad elements.

Where a few scalars show that a whole tile lies inside (`corners`), no element is tested. Otherwise
each vector is: before the access if there are no such scalars, else on the slow path. The slow path
is a copy of the access, out of line and under a narrower mask, so that the fast path keeps its
vectors and asynchronous copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.layouts import REGISTER
from tkdebug.compiler.sites.checks import CheckSite
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.checks.kernel_checks import KernelChecks
from tkdebug.compiler.targets.nvptx.lowering.checks.places import (
    PlaceOrder,
    acting_thread,
    counted_registers,
    linear_places,
)
from tkdebug.compiler.targets.nvptx.lowering.checks.reports import (
    Tally,
    flag,
    in_any_thread,
    report,
    tallied,
)
from tkdebug.compiler.targets.nvptx.lowering.checks.tile_tests import Tile, tile_is_inside
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Good, Registers


@dataclass(frozen=True, slots=True)
class TestedAccess:
    """An access that is tested.

    Attributes:
        checks: the checks of the kernel.
        site: the tested site.
        op: the access.
        pointers: the pointers of the tile's registers; only the first of each group is looked at.
        mask: the mask of the registers, None without one.
        group: registers of one instruction.
        order: the order of the reported elements; None if they are only flagged, or if threads have
            them in different orders.
        is_searched: whether each pointer is looked up in the map of memory.
    """

    checks: KernelChecks
    site: CheckSite
    op: Operation
    pointers: Registers
    mask: Registers | None
    group: int
    order: PlaceOrder | None
    is_searched: bool = False

    @property
    def is_short(self) -> bool:
        """Whether the access can be written as one piece of PTX."""
        if self.is_searched:
            return False
        return self.site.is_recomputed or self.order is not None

    @property
    def firsts(self) -> range:
        """The first register of each group."""
        return range(0, len(self.pointers), self.group)


_WORD_BITS = 32


def tested_access(
    checks: KernelChecks,
    op: Operation,
    pointers: Registers,
    mask: Registers | None,
    group: int,
) -> TestedAccess | None:
    """Return the test of access `op` of a checked kernel, or None if it is not tested."""
    site = checks.tested(op)
    if site is None:
        return None
    order = None if site.is_recomputed else PlaceOrder.of(checks.ctx, PointerAccess(op).pointer)
    is_searched = site.is_loaded and not checks.pointers.are_related(op)
    return TestedAccess(checks, site, op, pointers, mask, group, order, is_searched)


def either_way(
    access: TestedAccess,
    usual: Callable[[], Registers],
    narrowed: Callable[[Good], Registers],
) -> Registers:
    """Write an access as `usual`, and as `narrowed` in case elements are bad; return its results.

    Args:
        access: the tested access.
        usual: writes the access as it is without checks.
        narrowed: writes it for the good elements alone.
    """
    emit = access.checks.ctx.emit
    far, near, after = (
        emit.new_block(stem) for stem in ("check.outside", "check.inside", "check.after")
    )
    whole = tile_is_whole(access)
    outside, good = None, None
    if whole is None:
        if access.is_searched:
            good = _good_elements(access)
        outside = _any_outside(access, good)
        emit.branch_rarely(outside, far, near)
    else:
        emit.branch_rarely(emit.xor(whole, 1), far, near)
    ends: list[tuple[Registers, str]] = []
    emit.start(near)
    ends.append((usual(), emit.block))
    emit.branch(after)
    emit.start(far)
    if good is None:
        good = _good_elements(access)
    if outside is None:
        outside = _any_outside(access, good)
    _tell(access, good, outside, of_tile=whole is not None)
    ends.append((narrowed(good), emit.block))
    emit.branch(after)
    emit.start(after)
    phis = [emit.phi(value.type) for value in ends[0][0]]
    for results, block in ends:
        for phi, value in zip(phis, results, strict=True):
            phi.add_incoming(value, block)
    return [phi.value for phi in phis]


def tile_is_whole(access: TestedAccess) -> LLVMValue | None:
    """Return i1: whether the whole tile lies in its tensor; None if elements have to be tested.

    Also notes how the site is tested.
    """
    checks = access.checks
    early = checks.tested_early.get(access.op)
    if early is not None:
        checks.note_test(access.site, "tile")
        return early
    test = None
    if not access.is_searched:
        test = tile_is_inside(checks, tile_of(checks, access.op, access.site))
    if test is None:
        checks.note_test(access.site, "element")
        return None
    checks.note_test(access.site, "before-loop" if test.is_before_loop else "tile")
    return test.inside


def tile_of(checks: KernelChecks, op: Operation, site: CheckSite) -> Tile:
    """Return the tile that access `op` of a site reaches, and the tensor that it must stay in."""
    pointer, ends = PointerAccess(op).pointer, checks.ends(site, op)
    return Tile(op, pointer, site.element_bytes, *ends, checks.elements(site))


def _any_outside(access: TestedAccess, good: Good | None) -> LLVMValue:
    """Return i1: whether this thread has bad elements; `good` is needed if `is_searched`."""
    emit, checks = access.checks.ctx.emit, access.checks
    found = integer("i1", 0)
    if access.is_searched:
        assert good is not None
        for first, count in zip(access.firsts, good, strict=True):
            outside = emit.icmp("ne", count, access.group)
            if access.mask is not None:
                outside = emit.bit_and(outside, access.mask[first])
            found = emit.binary("or", found, outside)
        return found
    limit = checks.limit(access.site, access.op, access.group * access.site.element_bytes)
    for first in access.firsts:
        outside = emit.icmp(
            "uge", checks.offset(access.site, access.op, access.pointers[first]), limit
        )
        if access.mask is not None:
            outside = emit.bit_and(outside, access.mask[first])
        found = emit.binary("or", found, outside)
    return found


def _good_elements(access: TestedAccess) -> Good:
    emit, checks, site = access.checks.ctx.emit, access.checks, access.site
    if access.is_searched:
        found = [checks.pointers.may_access(access.pointers[first]) for first in access.firsts]
        if access.mask is not None:
            masks = [access.mask[first] for first in access.firsts]
            found = [emit.bit_and(*pair) for pair in zip(found, masks, strict=True)]
        # A vector lies within 16 bytes, and so does mapped memory.
        group = integer("i32", access.group)
        return [emit.select(one, group, integer("i32", 0)) for one in found]
    good = []
    limit = checks.limit(site, access.op, site.element_bytes)
    for first in access.firsts:
        offset = checks.offset(site, access.op, access.pointers[first])
        inside = emit.icmp("ult", offset, limit)
        if access.mask is not None:
            inside = emit.bit_and(inside, access.mask[first])
        if access.group == 1:
            good.append(emit.cast("zext", inside, "i32"))
            continue
        left = emit.add(emit.binary("sub", limit, offset), site.element_bytes - 1)
        left = emit.lshr(left, site.element_bytes.bit_length() - 1)
        whole = integer("i64", access.group)
        left = emit.select(emit.icmp("ult", left, whole), left, whole)
        count = emit.cast("trunc", left, "i32")
        good.append(emit.select(inside, count, integer("i32", 0)))
    return good


# Reports of bad elements


def result_words(access: TestedAccess) -> int:
    """Count the words that have a bit for each element that is reported."""
    return 0 if access.order is None else -(-len(access.order.registers) // _WORD_BITS)


def _tell(access: TestedAccess, good: Good, outside: LLVMValue, *, of_tile: bool) -> None:
    """Flag or report the bad elements; `of_tile`: all threads of the block are here."""
    if access.site.is_recomputed:
        flag(access.checks, access.site, outside)
        return
    ctx, pointer = access.checks.ctx, PointerAccess(access.op).pointer
    emit = ctx.emit
    is_complete = of_tile and runs_together(access.op)
    if is_complete:
        # Threads without a bad element report the elements that their mask leaves out.
        outside = _in_any_thread(ctx, outside)
    tally = _tally(access, good)
    found = tally.count
    if is_complete:
        found = emit.binary("or", found, tally.masked)
    reports = emit.bit_and(outside, emit.icmp("ne", found, 0))
    acting = acting_thread(ctx, pointer)
    if acting is not None:
        reports = emit.bit_and(reports, acting)
    _report(access, tally, reports, is_complete)


def _report(access: TestedAccess, tally: Tally, reports: LLVMValue, is_complete: bool) -> None:
    checks, site = access.checks, access.site
    origin = checks.pointers.origin(access.op) if site.is_loaded else None
    report(checks, site, tally, reports, is_complete or not site.shape, origin)


def _tally(access: TestedAccess, good: Good) -> Tally:
    """Count the bad elements of this thread; registers that are copies of others do not count."""
    ctx, pointer = access.checks.ctx, PointerAccess(access.op).pointer
    emit = ctx.emit
    counted, linear = counted_registers(ctx, pointer), linear_places(ctx, pointer)
    step = _step_between(access)
    zero, whole = integer("i32", 0), integer("i32", access.group)
    masked, bad, places, payloads = zero, {}, {}, {}
    for first, count in zip(access.firsts, good, strict=True):
        if first not in counted:
            continue
        bad[first] = emit.binary("sub", whole, count)
        if access.mask is not None:
            on = access.mask[first]
            bad[first] = emit.select(on, bad[first], zero)
            masked = emit.binary("add", masked, emit.select(on, zero, whole))
        places[first] = emit.add(linear[first], emit.mul(count, step))
        moved = emit.mul(emit.cast("zext", count, "i64"), access.site.element_bytes)
        payloads[first] = emit.add(ctx.to_bits(access.pointers[first]), moved)
    tally = tallied(ctx, Tally.empty(), bad, places, payloads)
    return Tally(tally.count, tally.least, tally.payload, masked)


def _step_between(access: TestedAccess) -> int:
    """Return the row-major distance of a group's consecutive elements; 1 for groups of one."""
    if access.group == 1:
        return 1
    layout, step = access.checks.ctx.layout(PointerAccess(access.op).pointer), 0
    moved = layout.unpack_out(layout.packed_bases(REGISTER)[0])
    for name, size in layout.outs:
        step = step * size + moved[name]
    return step


def runs_together(op: Operation) -> bool:
    """Whether all threads of a block are at an access in the same iteration.

    A `while` may depend on another program's writes, which threads see at different times.
    """
    return not any(map(scf.While.matches, op.ancestors()))


def _in_any_thread(ctx: Lowering, condition: LLVMValue) -> LLVMValue:
    """i1: whether the condition holds in any thread of the block."""
    vote = in_any_thread(ctx, "p")
    text = f"{{\n.reg .pred p;\nsetp.ne.u32 p, $1, 0;\n{vote}\nselp.u32 $0, 1, 0, p;\n}}"
    number = ctx.emit.cast("zext", condition, "i32")
    found = ctx.emit.asm(text, "=r,r,~{memory}", "i32", (number,), convergent=True)
    return ctx.emit.icmp("ne", found, 0)
