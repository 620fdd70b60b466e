"""How bad elements reach the table: by a flag, or by a report that says which they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.layouts import REGISTER
from tkdebug.compiler.probes.sites import ProbeSite
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.probes.routine import (
    FLAG,
    REPORT,
    REPORT_WITHOUT_REDUX,
    at_site,
    with_origin,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Registers
from tkdebug.compiler.targets.target import REDUX

_NONE = -1


@dataclass(frozen=True, slots=True)
class Tally:
    """What a thread has to say of its elements of a tile, i32 each.

    Attributes:
        count: bad ones.
        least: place in the tile of the least of them, -1 without any.
        payload: its address, i64.
        masked: those that the mask leaves out.
    """

    count: LLVMValue
    least: LLVMValue
    payload: LLVMValue
    masked: LLVMValue

    @staticmethod
    def empty() -> Tally:
        """Of no elements."""
        zero = integer("i32", 0)
        return Tally(zero, integer("i32", _NONE), integer("i64", 0), zero)


def flag(ctx: Lowering, site: ProbeSite, is_bad: LLVMValue) -> None:
    """Say of a site that this program has bad elements there, where this thread has any."""
    assert ctx.probes is not None
    address, offset = ctx.probes.place(site, shown=True)
    slot = ctx.emit.binary("add", address, integer("i64", offset))
    ctx.emit.asm(FLAG, "l,b,~{memory}", "void", (slot, is_bad))


def report(
    ctx: Lowering,
    site: ProbeSite,
    tally: Tally,
    reports: LLVMValue,
    is_complete: bool,
    origin: LLVMValue | None = None,
) -> None:
    """Report what threads have found, where `reports` holds in them.

    Args:
        ctx: the kernel.
        site: where.
        tally: what was found.
        reports: i1.
        is_complete: whether all threads report where one of them has bad elements.
        origin: of a loaded pointer, i64: what the tile's pointers are offsets from.
    """
    probes, emit = ctx.probes, ctx.emit
    assert probes is not None
    bad, after = emit.new_block("probe.report"), emit.new_block("probe.reported")
    emit.branch_rarely(reports, bad, after)
    emit.start(bad)
    slot = emit.cast("ptrtoint", probes.slot(site), "i64")
    complete = integer("i32", int(is_complete))
    found = (tally.count, tally.least, tally.masked, tally.payload)
    arguments: tuple[LLVMValue, ...] = (slot, complete, probes.time(), *found)
    constraints = "l,r,l,r,r,r,l"
    if origin is not None:
        arguments = (*arguments, origin)
        constraints += ",l"
    text = report_text(ctx, site, has_origin=origin is not None)
    emit.asm(text, f"{constraints},~{{memory}}", "void", arguments)
    emit.branch(after)
    emit.start(after)


def in_any_thread(ctx: Lowering, predicate: str) -> str:
    """The instruction by which a predicate holds in all threads of the block if it does in one."""
    if ctx.num_warps > 1:
        return f"barrier.cta.red.or.pred {predicate}, 0, {predicate};"
    return f"vote.sync.any.pred {predicate}, {predicate}, -1;"


def report_text(ctx: Lowering, site: ProbeSite, *, has_origin: bool) -> str:
    """The PTX of a report, with operands as `routine` has them."""
    text = at_site(REPORT if ctx.target.has(REDUX) else REPORT_WITHOUT_REDUX, site.number)
    return with_origin(text) if has_origin else text


def report_elements(
    ctx: Lowering,
    op: Operation,
    value: Value,
    bad: Registers,
    *,
    site: ProbeSite | None = None,
    at: Registers | None = None,
) -> bool:
    """Report the elements of a tile, or the scalar, that are bad; whether `op` is a site.

    Args:
        ctx: the kernel.
        op: what is tested.
        value: in whose layout the elements lie.
        bad: i1 of each register.
        site: where it is reported, if not to the op's own.
        at: pointer of each register's element.
    """
    probes, emit = ctx.probes, ctx.emit
    if site is None and probes is not None:
        site = probes.site_of(op)
    if site is None or probes is None:
        return False
    counted = counted_registers(ctx, value)
    found = integer("i1", 0)
    for register in sorted(counted):
        found = emit.binary("or", found, bad[register])
    acting = acting_thread(ctx, value)
    if acting is not None:
        found = emit.bit_and(found, acting)
    far, after = emit.new_block("probe.bad"), emit.new_block("probe.after")
    emit.branch_rarely(found, far, after)
    emit.start(far)
    tally, places = Tally.empty(), linear_places(ctx, value)
    ones = {register: emit.cast("zext", bad[register], "i32") for register in sorted(counted)}
    here = {register: places[register] for register in ones}
    addresses = {register: ctx.to_bits(at[register]) for register in ones} if at else {}
    tally = tallied(ctx, tally, ones, here, addresses)
    report(ctx, site, tally, integer("i1", 1), is_complete=False)
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
    """A tally with what some registers hold.

    Args:
        ctx: the kernel.
        tally: what was found before.
        bad: how many elements of each register, or of those it stands for, are bad, i32.
        places: of the first bad one of these in the tile, i32.
        payloads: of that one, i64.
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


def acting_thread(ctx: Lowering, value: Value) -> LLVMValue | None:
    """i1: whether this thread acts for its elements of `value`; None when all do."""
    if isinstance(value.type, TensorType):
        return ctx.owner(ctx.layout(value))
    return ctx.is_first_thread


def counted_registers(ctx: Lowering, pointer: Value) -> set[int]:
    """The registers that hold no copies of what an earlier one does."""
    if not isinstance(pointer.type, TensorType):
        return {0}
    layout = ctx.layout(pointer)
    copies = layout.free_masks.get(REGISTER, 0)
    return {register for register in range(layout.in_size(REGISTER)) if not register & copies}


def linear_places(ctx: Lowering, value: Value) -> list[LLVMValue]:
    """Row-major position in the tile of each register's element, i32."""
    if not isinstance(value.type, TensorType):
        return [integer("i32", 0)]
    emit, layout = ctx.emit, ctx.layout(value)
    places = []
    for coordinates in ctx.coordinates(layout):
        place = integer("i32", 0)
        for coordinate, (_, size) in zip(coordinates, layout.outs, strict=True):
            place = emit.add(emit.mul(place, size), coordinate)
        places.append(place)
    return places
