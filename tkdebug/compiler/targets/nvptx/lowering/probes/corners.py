"""Whether a whole tile of pointers lies in its tensor, by a few scalars instead of each element.

Offsets that are sums and products of ranges and of what is the same in the whole tile reach from
one number to another, both of which scalars give. What does not change in a loop is computed before
it, by LLVM. Where numbers could have wrapped, or an op's reach is not known, elements are tested.

Invariant: the test may fail for a tile that lies inside, and never holds for one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.analysis.data_flow import source_of
from tkdebug.compiler.dialects import arith, scf, tt, ttg
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import PointerType, TensorType, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX
from tkdebug.compiler.targets.nvptx.lowering.probes.reaches import CarriedReach, Reach

_VIEWS = names_of(tt.Rearrangement, tt.Hint, ttg.ConvertLayout)
_POINTER_VIEWS = _VIEWS | names_of(tt.Bitcast)
_INT32 = 32
# Products are refused beyond this many bits: so no sum of bytes wraps.
_PRODUCT_BITS = 44
_MOST_OPS = 40
_ZERO = integer("i64", 0)
# Of one tile, by the signs of its distances from the ends of its tensor.
_SIGNS = (
    "mov.b64 {t, h}, begin;",
    "or.b32 before, before, h;",
    "mov.b64 {t, h}, left;",
    "or.b32 $0, $0, h;",
)
# Make $0 negative where one of them is. What begins 2**62 bytes behind its tensor counts as
# negative, too: from there `left` may wrap.
_EITHER_SIGN = ("shl.b32 h, before, 1;", "or.b32 before, before, h;", "or.b32 $0, $0, before;")


class _UnknownReachError(Exception):
    """The values of a tile are not known to lie between two scalars."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of pointers of an access, and the tensor that it has to lie in.

    Attributes:
        op: the access.
        pointer: the tile.
        size_bytes: of an element.
        first: address of the tensor's first byte, i64.
        end: the one behind its last, i64.
    """

    op: Operation
    pointer: Value
    size_bytes: int
    first: LLVMValue
    end: LLVMValue


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


def tile_is_inside(ctx: Lowering, tile: Tile) -> TileTest | None:
    """The test of a tile of pointers; None where elements have to be tested."""
    loop = _loop_around(tile.op)
    if loop is None:
        _, inside = tiles_are_inside(ctx, (tile,))
        return None if inside is None else TileTest(inside, is_before_loop=False)
    corners = _Corners(ctx)
    reach = corners.of_tile(tile)
    if reach is None:
        return None
    emit = ctx.emit
    size = emit.binary("sub", tile.end, tile.first)
    last = emit.add(reach.span, tile.size_bytes - 1)
    begin = emit.binary("sub", reach.low, tile.first)
    # How many bytes the tile spans is the same in all iterations of a loop that moves it, and so
    # are the places where it may begin: a loop has one comparison. As unsigned numbers: what lies
    # before the tensor lies very far behind it.
    places = emit.binary("sub", size, last)
    places = emit.select(emit.icmp("ult", last, size), places, integer("i64", 0))
    # All conditions first: the accesses of a tensor have them in common.
    inside = emit.bit_and(corners.all_conditions(), emit.icmp("ult", begin, places))
    return TileTest(inside, not any(_is_in(value, loop) for value in corners.scalars))


def tiles_are_inside(
    ctx: Lowering, tiles: Sequence[Tile]
) -> tuple[list[Operation], LLVMValue | None]:
    """One test of several tiles, by what is known before the first of their accesses.

    Returns:
        The accesses whose tiles are tested, and i1, the same in all threads: whether all of these
        certainly lie in their tensors; None where no tile can be tested.
    """
    corners, tested = _Corners(ctx), []
    # One number for all: negative where a tile begins before its tensor or ends behind it.
    text = InlinePTX(("i32",))
    text.put("{", ".reg .b64 begin, left;", ".reg .b32 before, h, t;")
    text.put("mov.b32 $0, 0;", "mov.b32 before, 0;")
    for tile in tiles:
        reach = corners.of_tile(tile)
        if reach is not None:
            tested.append(tile.op)
            bytes_ = ctx.emit.add(reach.span, tile.size_bytes)
            low, first, end = map(text.use, (reach.low, tile.first, tile.end))
            taken = text.use(bytes_) if bytes_.constant is None else str(bytes_.constant)
            text.put(
                f"sub.s64 begin, {low}, {first};",
                f"sub.s64 left, {end}, {low};",
                f"sub.s64 left, left, {taken};",
                *_SIGNS,
            )
    text.put(*_EITHER_SIGN, "}")
    if not tested:
        return tested, None
    # LLVM would think about it for as long as about the rest of a small kernel.
    (sign,) = text.emit(ctx, side_effects=False)
    ends = ctx.emit.icmp("sge", sign, 0)
    return tested, ctx.emit.bit_and(corners.all_conditions(), ends)


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
    return CarriedReach(reach.low, reach.span, tuple(corners.conditions))


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
        self._fitting: set[Value] = set()
        self.conditions: list[LLVMValue] = []
        self.scalars: list[Value] = []

    def of_tile(self, tile: Tile) -> Reach | None:
        """Of the pointers of a tile; None where it is not known."""
        if not isinstance(tile.pointer.type, TensorType):
            return None
        before = self._ops, dict(self._known), set(self._fitting), len(self.conditions)
        self._ops = 0
        try:
            return self.addresses(tile.pointer)
        except _UnknownReachError:
            # What was found on the way stands on conditions of which nobody else has need.
            self._ops, self._known, self._fitting, count = before
            del self.conditions[count:]
            return None

    def all_conditions(self) -> LLVMValue:
        """i1: whether all of them hold."""
        conditions = dict.fromkeys(self.conditions)
        return reduce(self._ctx.emit.bit_and, conditions) if conditions else integer("i1", 1)

    def addresses(self, pointer: Value) -> Reach:
        """Of a tile of pointers: the first bytes of its elements."""
        carried = self._carried(pointer)
        if carried is not None:
            return carried
        if not isinstance(pointer.type, TensorType):
            return Reach(self._ctx.to_bits(self._scalar(pointer)), _ZERO, True)
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
        emit, size = self._ctx.emit, unit_of(pointer.type)
        low, span = (emit.mul(part, size) for part in (offset.low, offset.span))
        return Reach(emit.add(base.low, low), emit.add(base.span, span), True)

    def _scalar(self, value: Value) -> LLVMValue:
        """One that is computed before the test."""
        registers = self._ctx.values.get(value)
        if registers is None:
            raise _UnknownReachError
        self.scalars.append(value)
        return registers[0]

    def _carried(self, value: Value) -> Reach | None:
        """Of what a loop carries."""
        assert self._ctx.probes is not None
        carried = self._ctx.probes.carried.get(value)
        if carried is None:
            return None
        self.conditions += carried.conditions
        self.scalars.append(value)
        is_pointer = isinstance(element_of(value.type), PointerType)
        return Reach(carried.low, carried.span, is_pointer)

    def _next_op(self, value: Value) -> Operation:
        op = value.defining_op
        self._ops += 1
        if op is None or self._ops > _MOST_OPS:
            raise _UnknownReachError
        return op

    def fitting(self, value: Value) -> Reach:
        """Of integers, on condition that none has wrapped."""
        reach = self.integers(value)
        if not (reach.fits or value in self._fitting) and element_of(value.type).bits <= _INT32:
            self._bounded(reach, element_of(value.type).bits)
            self._fitting.add(value)
        return reach

    def _bounded(self, reach: Reach, bits: int) -> None:
        """Make it a condition that a reach fits a signed integer of so many bits."""
        half, span = 1 << bits - 1, reach.span.constant
        self._require(reach.low, "sge", -half)
        if span is None:
            self._require(self._high(reach), "slt", half)
        else:
            self._require(reach.low, "slt", half - span)

    def _require(self, value: LLVMValue, predicate: str, limit: int) -> None:
        known = value.constant
        if known is None:
            self.conditions.append(self._ctx.emit.icmp(predicate, value, limit))
        elif (known < limit) != (predicate == "slt"):
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
            return Reach(integer("i64", int(number)), _ZERO, True)
        if not isinstance(value.type, TensorType):
            wide = self._ctx.emit.cast("sext", self._scalar(value), "i64")
            return Reach(wide, _ZERO, True)
        carried = self._carried(value)
        if carried is not None:
            return carried
        op = self._next_op(value)
        source = source_of(value, _VIEWS)
        if source is not None:
            return self.integers(source)
        if tt.MakeRange.matches(op):
            start, end = tt.MakeRange(op).start, tt.MakeRange(op).end
            return Reach(integer("i64", start), integer("i64", end - 1 - start), True)
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
        emit, is_sum = self._ctx.emit, arith.AddI.matches(op)
        low = emit.add(a.low, b.low) if is_sum else emit.binary("sub", a.low, self._high(b))
        return Reach(low, emit.add(a.span, b.span), False)

    def _product(self, op: Operation) -> Reach:
        """Of a range and what is the same in the whole tile."""
        a, b = (self.fitting(value) for value in op.operands)
        for value, reach in zip(op.operands, (a, b), strict=True):
            if element_of(value.type).bits > _INT32:
                self._bounded(reach, _INT32)
        if _is_uniform(a):
            a, b = b, a
        if not _is_uniform(b):
            raise _UnknownReachError
        emit = self._ctx.emit
        low, span = emit.mul(a.low, b.low), emit.mul(a.span, b.low)
        found = Reach(low, span, False)
        if not _is_uniform(a) and (b.low.constant is None or b.low.constant < 0):
            # Times what is negative the greatest becomes the least.
            is_known = b.low.constant is not None
            turns = integer("i1", 1) if is_known else emit.icmp("slt", b.low, 0)
            low = emit.add(low, emit.select(turns, span, _ZERO))
            span = emit.select(turns, emit.binary("sub", _ZERO, span), span)
            found = Reach(low, span, False)
        self._bounded(found, _PRODUCT_BITS)
        return found

    def _remainder(self, op: Operation) -> Reach:
        """What is not negative, modulo what is positive and the same in the whole tile."""
        a, b = (self.fitting(value) for value in op.operands)
        if not _is_uniform(b):
            raise _UnknownReachError
        emit = self._ctx.emit
        self.conditions.append(emit.icmp("sge", a.low, 0))
        self.conditions.append(emit.icmp("sgt", b.low, 0))
        return Reach(integer("i64", 0), emit.add(b.low, -1), True)

    def _extremum(self, op: Operation) -> Reach:
        a, b = (self.fitting(value) for value in op.operands)
        emit = self._ctx.emit
        predicate = "slt" if arith.MinSI.matches(op) else "sgt"

        def of_two(x: LLVMValue, y: LLVMValue) -> LLVMValue:
            return emit.select(emit.icmp(predicate, x, y), x, y)

        low = of_two(a.low, b.low)
        if _is_uniform(a) and _is_uniform(b):
            return Reach(low, _ZERO, True)
        high = of_two(self._high(a), self._high(b))
        return Reach(low, emit.binary("sub", high, low), True)

    def _high(self, reach: Reach) -> LLVMValue:
        """The greatest element, or more."""
        return self._ctx.emit.add(reach.low, reach.span)


def _is_uniform(reach: Reach) -> bool:
    """Whether all elements are known to be the same."""
    return reach.span.constant == 0
