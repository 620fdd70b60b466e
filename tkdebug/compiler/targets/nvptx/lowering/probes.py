"""What checked kernels add to an access: its test, and a report where elements are bad.

Where a few scalars show that a whole tile lies inside, no element is tested (`probe_corners`).
Otherwise an access is tested a vector at a time. A thread whose vectors all lie inside does what it
does in a bare kernel; any other calls a routine that reports, and touches the good elements one by
one. So neither vectors nor asynchronous copies become narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.layouts import REGISTER
from tkdebug.compiler.probes import table
from tkdebug.compiler.probes.sites import ProbeSite, probe_bounds, probe_sites
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.probe_corners import tile_is_inside
from tkdebug.compiler.targets.nvptx.lowering.probe_routine import (
    COPY,
    FRAME_BYTES,
    MASKED_OFF,
    NAME,
    REGISTERS,
    REPORT_NAME,
    Field,
    Mode,
    definition,
    report_definition,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Registers

# The table's address, and the bounds of a tensor.
TABLE_PARAMETER = "ptr addrspace(1) align 64"
BOUND_PARAMETER = "i64"
# Copies of sites that one clock tick tells apart.
_COPY_BITS = 16


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first byte of a tensor, and how many it has; i64."""

    first: LLVMValue
    size: LLVMValue


class Probes:
    """The probes of one kernel.

    Args:
        function: the `tt.func`.
        ctx: the kernel on its way to LLVM IR.
        parameters: the table, then the bounds.
    """

    def __init__(self, function: Operation, ctx: Lowering, parameters: Sequence[LLVMValue]) -> None:
        self._ctx = ctx
        self._sites = probe_sites(function)
        self._table, *ends = parameters
        self._ends = dict(
            zip(probe_bounds(function), zip(ends[::2], ends[1::2], strict=True), strict=True)
        )
        self._bounds: dict[str, Bounds] = {}
        self._limits: dict[tuple[str, int], LLVMValue] = {}
        self._clock: LLVMValue | None = None
        self._copies = 0
        self._arrays: dict[str, int] = {}
        self._actions: set[int] = set()

    def site_of(self, op: Operation) -> ProbeSite | None:
        """The site that an op is; None of any other op."""
        number = OpView(op).probe
        return None if number is None else self._sites[number]

    def value_site_of(self, op: Operation) -> ProbeSite | None:
        """The site of the values that an op stores; None of any other op."""
        number = OpView(op).value_probe
        return None if number is None else self._sites[number]

    def tested(self, op: Operation) -> ProbeSite | None:
        """The site of an access that is to be tested; None of any other op."""
        site = self.site_of(op)
        return None if site is None or site.tensor is None else site

    def is_outside(self, site: ProbeSite, pointer: LLVMValue, size_bytes: int) -> LLVMValue:
        """i1: whether any of `size_bytes` bytes from `pointer` on are not the tensor's."""
        emit = self._ctx.emit
        offset = self._offset(site, pointer)
        return emit.icmp("uge", offset, self.limit(site, size_bytes))

    def _offset(self, site: ProbeSite, pointer: LLVMValue) -> LLVMValue:
        emit = self._ctx.emit
        return emit.binary("sub", emit.cast("ptrtoint", pointer, "i64"), self.bounds(site).first)

    def bounds(self, site: ProbeSite) -> Bounds:
        """Of the tensor that a site's access must stay in."""
        assert site.tensor is not None
        if site.tensor not in self._bounds:
            first, end = self._ends[site.tensor]
            with self._ctx.emit.in_entry():
                size = self._ctx.emit.binary("sub", end, first)
            self._bounds[site.tensor] = Bounds(first, size)
        return self._bounds[site.tensor]

    def limit(self, site: ProbeSite, size_bytes: int) -> LLVMValue:
        """Below which offset so many bytes may begin; 0 where the tensor has fewer."""
        assert site.tensor is not None
        key = site.tensor, size_bytes
        if key not in self._limits:
            size, emit = self.bounds(site).size, self._ctx.emit
            with emit.in_entry():
                places = emit.binary("sub", size, integer("i64", size_bytes - 1))
                is_any = emit.icmp("sgt", places, 0)
                self._limits[key] = emit.select(is_any, places, integer("i64", 0))
        return self._limits[key]

    # Reports

    def time(self) -> LLVMValue:
        """When the program is here, i64: in the text, copies are in the order of iterations."""
        self._copies += 1
        assert self._copies < 1 << _COPY_BITS
        emit = self._ctx.emit
        clock = emit.cast("zext", emit.load("i32", self._clock_place(), 4), "i64")
        return emit.binary("or", emit.shl(clock, _COPY_BITS), integer("i64", self._copies))

    def slot(self, site: ProbeSite) -> LLVMValue:
        """Where a site reports to."""
        return self._ctx.emit.gep(self._table, "i8", site.number * table.SLOT_BYTES)

    def array(self, name: str, size_bytes: int) -> LLVMValue:
        """Local memory of the routine's arguments, which all calls share."""
        self._arrays[name] = max(self._arrays.get(name, 0), size_bytes)
        return LLVMValue("ptr", f"%probe.{name}")

    def finish(self) -> None:
        """Make the arrays and the routine; called when everything else is written."""
        emit = self._ctx.emit
        with emit.in_entry():
            for name, size in self._arrays.items():
                emit.local(f"%probe.{name}", size)
        if self._arrays:
            emit.define(REPORT_NAME, report_definition(), REGISTERS)
        if self._actions:
            emit.define(NAME, definition(self._actions), ())

    def calls(self, action: int) -> None:
        """The routine is called, for what to do at good elements."""
        self._actions.add(action)

    # Time

    def tick(self, loop: Operation) -> None:
        """An iteration of a loop ends; what is not probed in it has no time."""
        views = map(OpView, loop.walk())
        if all(view.probe is None and view.value_probe is None for view in views):
            return
        emit, clock = self._ctx.emit, self._clock_place()
        emit.store(emit.add(emit.load("i32", clock, 4), 1), clock, 4)

    def _clock_place(self) -> LLVMValue:
        """Where the count of iterations is, which LLVM keeps in a register."""
        if self._clock is None:
            emit = self._ctx.emit
            with emit.in_entry():
                self._clock = emit.raw("ptr", "alloca i32, align 4")
                emit.store(integer("i32", 0), self._clock, 4)
        return self._clock


@dataclass(frozen=True, slots=True)
class TestedAccess:
    """An access that is tested.

    Attributes:
        site: what is tested.
        op: the access.
        pointers: of the tile's registers; only the first of each group is looked at.
        mask: of the registers, None without one.
        group: registers of one instruction.
        is_complete: whether all threads report where one of them has bad elements.
    """

    site: ProbeSite
    op: Operation
    pointers: Registers
    mask: Registers | None
    group: int
    is_complete: bool = False


def tested_access(
    ctx: Lowering, op: Operation, pointers: Registers, mask: Registers | None, group: int
) -> TestedAccess | None:
    """How access `op` is tested; None where it is not."""
    site = None if ctx.probes is None else ctx.probes.tested(op)
    return None if site is None else TestedAccess(site, op, pointers, mask, group)


def either_way(
    ctx: Lowering,
    access: TestedAccess,
    usual: Callable[[], Registers],
    astray: Callable[[TestedAccess], Registers],
) -> Registers:
    """What `usual` gives, or in threads that have bad elements, what `astray` does.

    Args:
        ctx: the kernel.
        access: what is tested.
        usual: writes the access as it is without probes.
        astray: writes it with a report; gets the access as it is tested.
    """
    emit = ctx.emit
    far, near, after = (
        emit.new_block(stem) for stem in ("probe.astray", "probe.inside", "probe.after")
    )
    whole = _tile_is_inside(ctx, access)
    if whole is not None:
        elements = emit.new_block("probe.elements")
        emit.branch_rarely(emit.xor(whole, 1), elements, near)
        emit.start(elements)
    outside = _any_outside(ctx, access)
    if whole is not None and _runs_together(access.op):
        # Those that have no bad element tell what their mask leaves out.
        outside = _in_any_thread(ctx, outside)
        access = replace(access, is_complete=True)
        astray = partial(astray, access)
    else:
        astray = partial(astray, access)
    emit.branch_rarely(outside, far, near)
    ends: list[tuple[Registers, str]] = []
    for block, write in ((near, usual), (far, astray)):
        emit.start(block)
        results = write()
        ends.append((results, emit.block))
        emit.branch(after)
    emit.start(after)
    phis = [emit.phi(value.type) for value in ends[0][0]]
    for results, block in ends:
        for phi, value in zip(phis, results, strict=True):
            phi.add_incoming(value, block)
    return [phi.value for phi in phis]


def _tile_is_inside(ctx: Lowering, access: TestedAccess) -> LLVMValue | None:
    """i1: whether all of the tile is the tensor's; None where only elements can tell."""
    assert ctx.probes is not None
    bounds, pointer = ctx.probes.bounds(access.site), PointerAccess(access.op).pointer
    return tile_is_inside(ctx, pointer, access.site.element_bytes, bounds.first, bounds.size)


def _runs_together(op: Operation) -> bool:
    """Whether all threads of a block are at an access in the same iteration.

    A `while` may go on by what another program wrote, which threads see at different times.
    """
    block = op.block
    while block is not None and (around := block.parent_op) is not None:
        if scf.While.matches(around):
            return False
        block = around.block
    return True


def _in_any_thread(ctx: Lowering, condition: LLVMValue) -> LLVMValue:
    """i1: whether the condition holds in any thread of the block."""
    vote = "vote.sync.any.pred p, p, -1;"
    if ctx.num_warps > 1:
        vote = "barrier.cta.red.or.pred p, 0, p;"
    text = f"{{\n.reg .pred p;\nsetp.ne.u32 p, $1, 0;\n{vote}\nselp.u32 $0, 1, 0, p;\n}}"
    number = ctx.emit.cast("zext", condition, "i32")
    found = ctx.emit.asm(text, "=r,r,~{memory}", "i32", (number,), convergent=True)
    return ctx.emit.icmp("ne", found, 0)


def _any_outside(ctx: Lowering, access: TestedAccess) -> LLVMValue:
    emit, probes, group = ctx.emit, ctx.probes, access.group
    assert probes is not None
    found = integer("i1", 0)
    for first in range(0, len(access.pointers), group):
        size = group * access.site.element_bytes
        outside = probes.is_outside(access.site, access.pointers[first], size)
        if access.mask is not None:
            outside = emit.bit_and(outside, access.mask[first])
        found = emit.binary("or", found, outside)
    return found


# What threads do whose elements are bad


def load_astray(ctx: Lowering, fills: Sequence[Registers], access: TestedAccess) -> Registers:
    """Report, and load what is good: all words of the tile.

    Args:
        ctx: the kernel.
        fills: for each instruction the words of what is not loaded.
        access: a load.
    """
    place = _written(ctx, fills)
    _call(ctx, access, Mode.LOAD, place)
    return _read(ctx, place, fills)


def store_astray(ctx: Lowering, packed: Sequence[Registers], access: TestedAccess) -> Registers:
    """Report, and store what is good of each instruction's words; gives nothing."""
    _call(ctx, access, Mode.STORE, _written(ctx, packed))
    return []


def report_astray(ctx: Lowering, access: TestedAccess) -> Registers:
    """Report; i1 of each register: whether it is masked on and good."""
    flags = [[integer("i8", 0)] for _ in access.pointers]
    place = _written(ctx, flags)
    _call(ctx, access, Mode.ASK, place)
    return [ctx.emit.icmp("ne", flag, 0) for flag in _read(ctx, place, flags)]


def _written(ctx: Lowering, groups: Sequence[Registers]) -> LLVMValue:
    """Local memory with the words of each instruction, in the order of their elements."""
    assert ctx.probes is not None
    size = _group_bytes(groups[0])
    place = ctx.probes.array("values", size * len(groups))
    for index, group in enumerate(groups):
        whole = group[0] if len(group) == 1 else ctx.emit.vector(group)
        ctx.emit.store(whole, ctx.emit.gep(place, "i8", index * size), size)
    return place


def _read(ctx: Lowering, place: LLVMValue, like: Sequence[Registers]) -> Registers:
    """All words that lie there as `like` was written."""
    emit, size, first = ctx.emit, _group_bytes(like[0]), like[0]
    found: Registers = []
    for index in range(len(like)):
        at = emit.gep(place, "i8", index * size)
        if len(first) == 1:
            found.append(emit.load(first[0].type, at, size))
            continue
        whole = emit.load(f"<{len(first)} x {first[0].type}>", at, size)
        found += emit.elements(whole, len(first), first[0].type)
    return found


def _group_bytes(group: Registers) -> int:
    return len(group) * int(group[0].type[1:]) // 8


def _call(ctx: Lowering, access: TestedAccess, mode: Mode, values: LLVMValue) -> None:
    emit, probes, site = ctx.emit, ctx.probes, access.site
    assert probes is not None
    firsts = range(0, len(access.pointers), access.group)
    pointers, places = (
        probes.array(name, size * len(firsts)) for name, size in (("pointers", 8), ("places", 4))
    )
    pointer = PointerAccess(access.op).pointer
    linear, counted = linear_places(ctx, pointer), _counted_registers(ctx, pointer)
    for group, first in enumerate(firsts):
        address = emit.cast("ptrtoint", access.pointers[first], "i64")
        if access.mask is not None:
            address = emit.select(access.mask[first], address, integer("i64", MASKED_OFF))
        emit.store(address, emit.gep(pointers, "i8", 8 * group), 8)
        place = linear[first] if first in counted else integer("i32", COPY)
        emit.store(place, emit.gep(places, "i8", 4 * group), 4)
    acting = _acting(ctx, pointer)
    is_silent = mode == Mode.STORE and acting is not None
    action = integer("i32", int(mode) + site.element_bytes)
    if is_silent and acting is not None:
        action = emit.select(acting, action, integer("i32", -1))
    frame = probes.array("frame", FRAME_BYTES)
    step = _step_between(ctx, pointer) if access.group > 1 else 1
    numbers = {
        Field.ELEMENT: -1,
        Field.COUNT: 0,
        Field.MASKED: 0,
        Field.GROUPS: len(firsts),
        Field.ELEMS: access.group,
        Field.STEP: step,
        Field.BYTES: site.element_bytes,
        Field.COMPLETE: int(access.is_complete or not access.site.shape),
        Field.WIDTH: 1 if mode == Mode.ASK else site.element_bytes,
    }
    fields = {
        **_where_and_when(probes, site),
        Field.FIRST: probes.bounds(site).first,
        Field.LIMIT: probes.limit(site, site.element_bytes),
        Field.POINTERS: pointers,
        Field.PLACES: places,
        Field.VALUES: values,
        Field.ACTION: action,
        **{field: integer("i32", number) for field, number in numbers.items()},
    }
    _fill_frame(ctx, frame, fields)
    probes.calls(int(mode) + site.element_bytes)
    emit.call_defined(NAME, (frame, integer("i1", 1) if acting is None else acting))


def _where_and_when(probes: Probes, site: ProbeSite) -> dict[Field, LLVMValue]:
    return {Field.SLOT: probes.slot(site), Field.TIME: probes.time()}


def _fill_frame(ctx: Lowering, frame: LLVMValue, fields: Mapping[Field, LLVMValue]) -> None:
    for field, value in fields.items():
        ctx.emit.store(ctx.to_bits(value), ctx.emit.gep(frame, "i8", field.offset), field.bytes)


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
    counted = _counted_registers(ctx, value)
    found = integer("i1", 0)
    for register in sorted(counted):
        found = emit.binary("or", found, bad[register])
    acting = _acting(ctx, value)
    if acting is not None:
        found = emit.bit_and(found, acting)
    far, after = emit.new_block("probe.bad"), emit.new_block("probe.after")
    emit.branch_rarely(found, far, after)
    emit.start(far)
    count, least = integer("i32", 0), integer("i32", -1)
    address = integer("i64", 0)
    places = linear_places(ctx, value)
    for register in sorted(counted):
        count = emit.binary("add", count, emit.cast("zext", bad[register], "i32"))
        place = emit.select(bad[register], places[register], integer("i32", -1))
        is_less = emit.icmp("ult", place, least)
        least = emit.select(is_less, place, least)
        if at is not None:
            address = emit.select(is_less, ctx.to_bits(at[register]), address)
    frame = probes.array("frame", FRAME_BYTES)
    others = {Field.MASKED: integer("i32", 0), Field.AT: address}
    fields = {**_where_and_when(probes, site), **others, Field.COUNT: count, Field.ELEMENT: least}
    _fill_frame(ctx, frame, fields)
    emit.call_defined(REPORT_NAME, (frame,))
    emit.branch(after)
    emit.start(after)
    return True


def _step_between(ctx: Lowering, pointer: Value) -> int:
    """How far apart the first two registers' elements are in the tile, in row-major places."""
    layout, step = ctx.layout(pointer), 0
    moved = layout.unpack_out(layout.packed_bases(REGISTER)[0])
    for name, size in layout.outs:
        step = step * size + moved[name]
    return step


def _acting(ctx: Lowering, value: Value) -> LLVMValue | None:
    """i1: whether this thread acts for its elements of `value`; None when all do."""
    if isinstance(value.type, TensorType):
        return ctx.owner(ctx.layout(value))
    return ctx.is_first_thread


def _counted_registers(ctx: Lowering, pointer: Value) -> set[int]:
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
