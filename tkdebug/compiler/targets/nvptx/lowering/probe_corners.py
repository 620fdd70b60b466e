"""Whether a whole tile of pointers lies in its tensor, by a few scalars instead of each element.

Offsets that are sums and products of ranges and of what is the same in the whole tile reach from
one number to another, both of which scalars give. What does not change in a loop is computed before
it, by LLVM. Where numbers could have wrapped, or an op's reach is not known, elements are tested.

Invariant: the test may fail for a tile that lies inside, and never holds for one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.analysis.data_flow import source_of
from tkdebug.compiler.dialects import arith, scf, tt, ttg
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import PointerType, TensorType, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.probe_reaches import CarriedReach, Reach

_VIEWS = names_of(tt.Rearrangement, tt.Hint, ttg.ConvertLayout)
_POINTER_VIEWS = _VIEWS | names_of(tt.Bitcast)
_INT32 = 32
# Products are refused beyond this many bits: so no sum of bytes wraps.
_PRODUCT_BITS = 44
_MOST_OPS = 40


class _UnknownReachError(Exception):
    """The values of a tile are not known to lie between two scalars."""


@dataclass(frozen=True, slots=True)
class TileTest:
    """A test of a whole tile.

    Attributes:
        inside: i1, the same in all threads: whether the tile certainly lies in its tensor.
        is_before_loop: whether nothing of it changes in the innermost loop around the access,
            before which LLVM moves it.
    """

    inside: LLVMValue
    is_before_loop: bool


def tile_is_inside(
    ctx: Lowering,
    op: Operation,
    pointer: Value,
    size_bytes: int,
    first: LLVMValue,
    end: LLVMValue,
) -> TileTest | None:
    """The test of a tile of pointers.

    Args:
        ctx: the kernel.
        op: the access.
        pointer: the tile.
        size_bytes: of an element.
        first: address of the tensor's first byte, i64.
        end: the one behind its last, i64.

    Returns:
        None where elements have to be tested.
    """
    if not isinstance(pointer.type, TensorType):
        return None
    try:
        corners = _Corners(ctx)
        reach = corners.addresses(pointer)
    except _UnknownReachError:
        return None
    emit = ctx.emit
    # How many bytes the tile spans is the same in all iterations of a loop that moves it, and so
    # are the places where it may begin: a loop has one comparison. As unsigned numbers: what lies
    # before the tensor lies very far behind it.
    size = emit.binary("sub", end, first)
    spanned = emit.add(emit.binary("sub", reach.high, reach.low), size_bytes)
    places = emit.add(emit.binary("sub", size, spanned), 1)
    places = emit.select(emit.icmp("ule", spanned, size), places, integer("i64", 0))
    inside = emit.icmp("ult", emit.binary("sub", reach.low, first), places)
    # All conditions first: the accesses of a tensor have them in common.
    inside = emit.bit_and(corners.all_conditions(), inside)
    loop = _loop_around(op)
    is_before = loop is not None and not any(_is_in(value, loop) for value in corners.scalars)
    return TileTest(inside, is_before)


def _loop_around(op: Operation) -> Operation | None:
    """The innermost loop that an op is in."""
    around = None if op.block is None else op.block.parent_op
    while around is not None and not scf.Loop.matches(around):
        around = None if around.block is None else around.block.parent_op
    return around


def _is_in(value: Value, loop: Operation) -> bool:
    """Whether a value is of a loop's body."""
    owner = value.owner
    block = owner.block if isinstance(owner, Operation) else owner
    while block is not None and (around := block.parent_op) is not None:
        if around is loop:
            return True
        block = around.block
    return False


def may_wrap(ctx: Lowering, value: Value) -> LLVMValue | None:
    """i1, the same in all threads: whether some element of a tile of sums and products may wrap.

    Args:
        ctx: the kernel.
        value: the tile, of integers.

    Returns:
        None where elements have to be looked at.
    """
    try:
        corners = _Corners(ctx)
        corners.fitting(value)
    except _UnknownReachError:
        return None
    return ctx.emit.xor(corners.all_conditions(), 1)


def reach_before(ctx: Lowering, value: Value) -> CarriedReach | None:
    """Where a tile of pointers or integers lies before a loop carries it; None if unknown."""
    corners = _Corners(ctx)
    try:
        is_pointer = isinstance(element_of(value.type), PointerType)
        reach = corners.addresses(value) if is_pointer else corners.integers(value)
    except _UnknownReachError:
        return None
    span = ctx.emit.binary("sub", reach.high, reach.low)
    return CarriedReach(reach.low, span, tuple(corners.conditions))


class _Corners:
    """The scalars of one tile.

    Attributes:
        conditions: under which they are right.
        scalars: the values of the kernel that they are computed from.
    """

    def __init__(self, ctx: Lowering) -> None:
        self._ctx = ctx
        self._ops = 0
        self._known: dict[Value, Reach] = {}
        self.conditions: list[LLVMValue] = []
        self.scalars: list[Value] = []

    def all_conditions(self) -> LLVMValue:
        """i1: whether all of them hold."""
        hold = integer("i1", 1)
        for condition in dict.fromkeys(self.conditions):
            hold = self._ctx.emit.bit_and(hold, condition)
        return hold

    def addresses(self, pointer: Value) -> Reach:
        """Of a tile of pointers: the first bytes of its elements."""
        carried = self._carried(pointer)
        if carried is not None:
            return carried
        if not isinstance(pointer.type, TensorType):
            self.scalars.append(pointer)
            address = self._ctx.to_bits(self._ctx.values[pointer][0])
            return Reach(address, address, True)
        op = self._next_op(pointer)
        if tt.Splat.matches(op):
            return self.addresses(tt.Splat(op).source)
        source = source_of(pointer, _POINTER_VIEWS)
        if source is not None:
            return self.addresses(source)
        if not tt.AddPtr.matches(op):
            raise _UnknownReachError
        add = tt.AddPtr(op)
        base, offset = self.addresses(add.pointer), self.fitting(add.offset)
        size = integer("i64", unit_of(pointer.type))
        emit = self._ctx.emit
        low, high = (emit.binary("mul", part, size) for part in (offset.low, offset.high))
        return Reach(emit.add(base.low, low), emit.add(base.high, high), True)

    def _carried(self, value: Value) -> Reach | None:
        """Of what a loop carries."""
        assert self._ctx.probes is not None
        carried = self._ctx.probes.carried.get(value)
        if carried is None:
            return None
        self.conditions += carried.conditions
        self.scalars.append(value)
        high = self._ctx.emit.add(carried.low, carried.span)
        return Reach(carried.low, high, isinstance(element_of(value.type), PointerType))

    def _next_op(self, value: Value) -> Operation:
        op = value.defining_op
        self._ops += 1
        if op is None or self._ops > _MOST_OPS:
            raise _UnknownReachError
        return op

    def fitting(self, value: Value) -> Reach:
        """Of integers, on condition that none has wrapped."""
        reach = self.integers(value)
        if not reach.fits and element_of(value.type).bits <= _INT32:
            self._bounded(reach, element_of(value.type).bits)
        return reach

    def _bounded(self, reach: Reach, bits: int) -> None:
        """Make it a condition that a reach fits a signed integer of so many bits."""
        emit, half = self._ctx.emit, 1 << bits - 1
        for value, predicate, limit in (
            (reach.low, "sge", -half),
            (reach.high, "slt", half),
        ):
            known = value.constant
            if known is None:
                self.conditions.append(emit.icmp(predicate, value, limit))
            elif not -half <= known < half:
                raise _UnknownReachError

    def integers(self, value: Value) -> Reach:
        """Of a tile of integers, or of one, as if none wrapped."""
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._find_integers(value)
        return known

    def _find_integers(self, value: Value) -> Reach:
        number = constant_value(value)
        if isinstance(number, int):
            constant = integer("i64", int(number))
            return Reach(constant, constant, True)
        if not isinstance(value.type, TensorType):
            self.scalars.append(value)
            wide = self._ctx.emit.cast("sext", self._ctx.values[value][0], "i64")
            return Reach(wide, wide, True)
        carried = self._carried(value)
        if carried is not None:
            return carried
        op = self._next_op(value)
        source = source_of(value, _VIEWS)
        if source is not None:
            return self.integers(source)
        if tt.MakeRange.matches(op):
            span = tt.MakeRange(op)
            return Reach(integer("i64", span.start), integer("i64", span.end - 1), True)
        if arith.ExtSI.matches(op):
            return replace(self.fitting(arith.ExtSI(op).source), fits=True)
        if arith.AddI.matches(op) or arith.SubI.matches(op):
            return self._sum(op)
        if arith.MulI.matches(op):
            return self._product(op)
        if arith.RemSI.matches(op):
            return self._remainder(op)
        if arith.MinSI.matches(op) or arith.MaxSI.matches(op):
            return self._extremum(op)
        raise _UnknownReachError

    def _sum(self, op: Operation) -> Reach:
        a, b = (self.integers(value) for value in op.operands)
        emit = self._ctx.emit
        if arith.AddI.matches(op):
            return Reach(emit.add(a.low, b.low), emit.add(a.high, b.high), False)
        return Reach(emit.binary("sub", a.low, b.high), emit.binary("sub", a.high, b.low), False)

    def _product(self, op: Operation) -> Reach:
        """Of a range and what is the same in the whole tile."""
        a, b = (self.fitting(value) for value in op.operands)
        if a.low == a.high:
            a, b = b, a
        if b.low != b.high:
            raise _UnknownReachError
        emit = self._ctx.emit
        for value, reach in zip(op.operands, (a, b), strict=True):
            if element_of(value.type).bits > _INT32:
                self._bounded(reach, _INT32)
        ends = [emit.binary("mul", end, b.low) for end in (a.low, a.high)]
        turns = emit.icmp("slt", b.low, 0) if b.low.constant is None else None
        if turns is not None:
            low, high = emit.select(turns, ends[1], ends[0]), emit.select(turns, ends[0], ends[1])
        else:
            low, high = ends if (b.low.constant or 0) >= 0 else reversed(ends)
        found = Reach(low, high, False)
        self._bounded(found, _PRODUCT_BITS)
        return found

    def _remainder(self, op: Operation) -> Reach:
        """What is not negative, modulo what is positive and the same in the whole tile."""
        a, b = (self.fitting(value) for value in op.operands)
        if b.low != b.high:
            raise _UnknownReachError
        emit = self._ctx.emit
        self.conditions.append(emit.icmp("sge", a.low, 0))
        self.conditions.append(emit.icmp("sgt", b.low, 0))
        return Reach(integer("i64", 0), emit.add(b.low, -1), True)

    def _extremum(self, op: Operation) -> Reach:
        a, b = (self.fitting(value) for value in op.operands)
        emit = self._ctx.emit
        predicate = "slt" if arith.MinSI.matches(op) else "sgt"
        low, high = (
            emit.select(emit.icmp(predicate, x, y), x, y)
            for x, y in ((a.low, b.low), (a.high, b.high))
        )
        return Reach(low, high, True)
