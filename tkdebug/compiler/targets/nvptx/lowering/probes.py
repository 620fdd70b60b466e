"""What checked kernels add to an access: its test, and a report where elements are bad.

Where a few scalars show that a whole tile lies inside, no element is tested (`probe_corners`).
Otherwise an access is tested a vector at a time. A thread whose vectors all lie inside does what it
does in a bare kernel; any other calls a routine that reports, and touches the good elements one by
one. So neither vectors nor asynchronous copies become narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    MASKED_OFF,
    NAME,
    REGISTERS,
    Mode,
    definition,
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

    def tested(self, op: Operation) -> ProbeSite | None:
        """The site of an access that is to be tested; None of any other op."""
        number = OpView(op).probe
        if number is None or self._sites[number].tensor is None:
            return None
        return self._sites[number]

    def is_outside(self, site: ProbeSite, pointer: LLVMValue, size_bytes: int) -> LLVMValue:
        """i1: whether any of `size_bytes` bytes from `pointer` on are not the tensor's."""
        emit = self._ctx.emit
        offset = self._offset(site, pointer)
        return emit.icmp("uge", offset, self._limit(site, size_bytes))

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

    def _limit(self, site: ProbeSite, size_bytes: int) -> LLVMValue:
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
        """When the program is here, i64: in the text, copies stand in the order of iterations."""
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
        """Make the arrays; called when everything else is written."""
        with self._ctx.emit.in_entry():
            for name, size in self._arrays.items():
                self._ctx.emit.local(f"%probe.{name}", size)

    # Time

    def tick(self, loop: Operation) -> None:
        """An iteration of a loop ends; what is not probed in it has no time."""
        if not any(OpView(op).probe is not None for op in loop.walk()):
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
    """

    site: ProbeSite
    op: Operation
    pointers: Registers
    mask: Registers | None
    group: int


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
    astray: Callable[[], Registers],
) -> Registers:
    """What `usual` gives, or in threads that have bad elements, what `astray` does.

    Args:
        ctx: the kernel.
        access: what is tested.
        usual: writes the access as it is without probes.
        astray: writes it with a report.
    """
    emit = ctx.emit
    far, near, after = (
        emit.new_block(stem) for stem in ("probe.astray", "probe.inside", "probe.after")
    )
    whole = _tile_is_inside(ctx, access)
    if whole is not None:
        elements = emit.new_block("probe.elements")
        emit.branch_if(whole, near, elements)
        emit.start(elements)
    emit.branch_if(_any_outside(ctx, access), far, near)
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
    if len(access.pointers) == access.group:
        return None  # a single test in any case
    assert ctx.probes is not None
    bounds, pointer = ctx.probes.bounds(access.site), PointerAccess(access.op).pointer
    return tile_is_inside(ctx, pointer, access.site.element_bytes, bounds.first, bounds.size)


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


def load_astray(ctx: Lowering, access: TestedAccess, type_: str, fill: Registers) -> Registers:
    """Report, and load what is good.

    Args:
        ctx: the kernel.
        access: a load.
        type_: LLVM type of an element.
        fill: what the others give.
    """
    values = _Values(ctx, access.site.element_bytes, len(fill))
    values.write(fill)
    _call(ctx, access, Mode.LOAD, values)
    return values.read(type_)


def store_astray(ctx: Lowering, access: TestedAccess, stored: Registers) -> Registers:
    """Report, and store what is good; gives nothing."""
    values = _Values(ctx, access.site.element_bytes, len(stored))
    values.write(stored)
    _call(ctx, access, Mode.STORE, values)
    return []


def report_astray(ctx: Lowering, access: TestedAccess) -> Registers:
    """Report; i1 of each register: whether it is masked on and good."""
    count = len(access.pointers)
    values = _Values(ctx, 1, count)
    values.write([integer("i8", 0)] * count)
    _call(ctx, access, Mode.ASK, values)
    return values.read("i1")


class _Values:
    """An element for each register, in local memory."""

    def __init__(self, ctx: Lowering, width_bytes: int, count: int) -> None:
        assert ctx.probes is not None
        self._ctx = ctx
        self._width = width_bytes
        self._count = count
        self.place = ctx.probes.array("values", width_bytes * count)

    def write(self, values: Registers) -> None:
        """Fill it."""
        emit, bits = self._ctx.emit, 8 * self._width
        for index, value in enumerate(values):
            whole = emit.cast("zext", self._ctx.to_bits(value), f"i{bits}")
            emit.store(whole, emit.gep(self.place, "i8", index * self._width), self._width)

    def read(self, type_: str) -> Registers:
        """What is in it."""
        emit, memory = self._ctx.emit, f"i{8 * self._width}"
        found = []
        for index in range(self._count):
            place = emit.gep(self.place, "i8", index * self._width)
            bits = emit.load(memory, place, self._width)
            if type_ == "i1":
                found.append(emit.icmp("ne", bits, 0))
            else:
                found.append(self._ctx.from_bits(bits, type_))
        return found


def _call(ctx: Lowering, access: TestedAccess, mode: Mode, values: _Values) -> None:
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
    step = 1
    if access.group > 1:
        step = _step_between(ctx, pointer)
    bounds = probes.bounds(site)
    sizes = (len(firsts), access.group, step, site.element_bytes, int(mode))
    acting = _acting(ctx, pointer)
    emit.define(NAME, definition(), REGISTERS)
    arguments = (
        probes.slot(site),
        probes.time(),
        bounds.first,
        bounds.size,
        pointers,
        places,
        values.place,
        *(integer("i32", size) for size in sizes),
        integer("i1", 1) if acting is None else acting,
    )
    emit.call_defined(NAME, arguments)


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
