"""Scalar bounds of a tile's elements, for offsets and for pointers.

The least and the greatest of offsets that are sums and products of ranges and of values uniform in
the tile follow from scalars. LLVM computes values that do not change in a loop before it. Where
numbers could have wrapped, bounds hold under a condition; results of some ops have no bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import ceil, floor
from typing import TypeVar

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.analysis.data_flow import backward, source_of
from tkdebug.compiler.dialects import arith, tt, ttg
from tkdebug.compiler.dialects.interfaces import PointerAccess, SameElements
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import forwarded_operands, tied_values
from tkdebug.compiler.ir.op_view import OpView, names_of
from tkdebug.compiler.ir.types import PointerType, ScalarType, TensorType, element_of
from tkdebug.compiler.targets.nvptx.emitter import Emitter, LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering

_SAME = names_of(tt.Hint, ttg.ConvertLayout)
_VIEWS = SameElements.names
_POINTER_VIEWS = _VIEWS | names_of(tt.Bitcast)
_LINEAR = names_of(arith.WrappingBinary, arith.ExtSI)
_INT32 = 32
# Products are refused beyond this many bits: so no sum of bytes wraps.
_PRODUCT_BITS = 44
_MOST_OPS = 40
_ZERO = integer("i64", 0)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reach:
    """The bounds between which the elements of a tile lie, i64.

    Attributes:
        low: a lower bound of the elements.
        span: an upper bound of the greatest element minus `low`, 0 or more; mostly a constant.
        fits: whether the elements are known to fit the tile's type.
    """

    low: LLVMValue
    span: LLVMValue
    fits: bool


@dataclass(frozen=True, slots=True)
class CarriedReach:
    """The reach of a tile that a loop carries, and that an iteration moves as a whole.

    Attributes:
        low: a lower bound of the elements, i64.
        span: an upper bound of the greatest element minus `low`, in all iterations.
        conditions: the conditions under which the bounds hold, i1.
    """

    low: LLVMValue
    span: LLVMValue
    conditions: tuple[LLVMValue, ...]


CarriedReaches = Mapping[Value, CarriedReach]


def carried_offsets(loop: Operation) -> Iterator[tuple[int, tuple[Value, ...]]]:
    """Yield tiles that a loop carries and moves as a whole, if tested accesses depend on them.

    Args:
        loop: an `scf.for`.

    Yields:
        The index of the iter arg, and the values by which an iteration moves the tile: each is
            the same in all of a tile.
    """
    body = loop.regions[0].block
    accesses = [op for op in loop.walk() if OpView(op).site is not None]
    pointers = [PointerAccess(op).pointer for op in accesses if PointerAccess.matches(op)]
    needed = backward(pointers, _sources)
    for index, argument in enumerate(body.arguments[1:]):
        if argument in needed and _is_index(argument):
            steps = _steps(argument, forwarded_operands(body.terminator)[index])
            if steps is not None:
                yield index, steps


def step_bytes(ctx: Lowering, argument: Value, step: Value) -> LLVMValue:
    """Return the distance that a step moves an iter arg, i64: in bytes for pointers."""
    emit, source = ctx.emit, _scalar(step)
    assert source is not None
    if isinstance(source, int):
        return integer("i64", source * unit_of(argument.type))
    wide = emit.cast("sext", ctx.values[source][0], "i64")
    return emit.mul(wide, unit_of(argument.type))


def _sources(value: Value) -> Iterator[Value]:
    tied = tied_values(value)
    if tied is not None:
        yield from tied.sources
    elif isinstance(value.owner, Operation):
        yield from value.owner.operands


def _is_index(value: Value) -> bool:
    """Whether a value is a tile of pointers or integers."""
    element = element_of(value.type)
    is_integer = isinstance(element, ScalarType) and element.is_integer
    return isinstance(value.type, TensorType) and (is_integer or isinstance(element, PointerType))


def _steps(argument: Value, value: Value) -> tuple[Value, ...] | None:
    """Return the values that an iteration adds to an argument; None if it changes otherwise."""
    steps = list[Value]()
    while value is not argument:
        op = value.defining_op
        if op is None:
            return None
        source = source_of(value, _SAME)
        if source is not None:
            value = source
        elif tt.AddPtr.matches(op) or arith.AddI.matches(op):
            value, step = op.operands
            if _scalar(step) is None:
                return None
            steps.append(step)
        else:
            return None
    return tuple(steps)


def _scalar(value: Value) -> Value | int | None:
    """Return the number or scalar value that fills a tile; None if elements may differ."""
    while True:
        number = constant_value(value)
        if isinstance(number, int):
            return int(number)
        if not isinstance(value.type, TensorType):
            return value
        source = source_of(value, _VIEWS)
        if source is None:
            return None
        value = source


class UnknownReachError(Exception):
    """The values of a tile are not known to lie between two scalars."""


def may_wrap(ctx: Lowering, carried: CarriedReaches, value: Value) -> LLVMValue | None:
    """Test by scalar bounds whether an element of a tile of sums and products may wrap.

    Args:
        ctx: the kernel.
        carried: the reaches of tiles that the loops around it carry.
        value: the tile, of integers.

    Returns:
        i1, the same in all threads: whether one may; None if elements have to be tested.
    """
    try:
        corners = Corners(ctx, carried)
        corners.fitting(value)
    except UnknownReachError:
        return None
    return ctx.emit.xor(corners.all_conditions(), 1)


def reach_before(ctx: Lowering, carried: CarriedReaches, value: Value) -> CarriedReach | None:
    """Return the reach of a tile before a loop carries it; None if it is unknown."""
    corners = Corners(ctx, carried)
    try:
        is_pointer = isinstance(element_of(value.type), PointerType)
        reach = corners.addresses(value) if is_pointer else corners.integers(value)
    except UnknownReachError:
        return None
    return CarriedReach(reach.low, reach.span, tuple(corners.conditions))


class Corners:
    """Computes the bounds of tiles, and collects the conditions under which they hold.

    Args:
        ctx: the kernel.
        carried: the reaches of tiles that the loops around carry.
        trusts_scalars: whether scalars that the kernel computes are taken without a test. Otherwise
            it is a condition that none of their 32-bit sums and products wraps.

    Attributes:
        conditions: the conditions under which the bounds hold, i1.
        scalars: the values of the kernel that the bounds are computed from.
    """

    def __init__(
        self, ctx: Lowering, carried: CarriedReaches, *, trusts_scalars: bool = True
    ) -> None:
        self._ctx = ctx
        self._carried_reaches = carried
        self._trusts_scalars = trusts_scalars
        self._ops = 0
        self._known: dict[Value, Reach] = {}
        self._fitting: set[Value] = set()
        self.conditions: list[LLVMValue] = []
        self.scalars: list[Value] = []

    def tried(self, find: Callable[[], _T]) -> _T | None:
        """Return the result of `find`, or None if it raises UnknownReachError.

        Conditions that a failing `find` has added are removed.
        """
        before = self._ops, dict(self._known), set(self._fitting), len(self.conditions)
        self._ops = 0
        try:
            return find()
        except UnknownReachError:
            # Values found on the way depend on conditions that nothing else uses.
            self._ops, self._known, self._fitting, count = before
            del self.conditions[count:]
            return None

    def all_conditions(self) -> LLVMValue:
        """i1: whether all conditions hold."""
        conditions = dict.fromkeys(self.conditions)
        return reduce(self._ctx.emit.bit_and, conditions) if conditions else integer("i1", 1)

    def addresses(self, pointer: Value) -> Reach:
        """Return the bounds of the addresses of a tile's elements, of their first bytes.

        Raises:
            UnknownReachError: the pointers are not scalars plus offsets with known bounds.
        """
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
            raise UnknownReachError
        add = tt.AddPtr(op)
        base, offset = self.addresses(add.pointer), self.fitting(add.offset)
        emit, size = self._ctx.emit, unit_of(pointer.type)
        low, span = (emit.mul(part, size) for part in (offset.low, offset.span))
        return Reach(emit.add(base.low, low), emit.add(base.span, span), True)

    def _scalar(self, value: Value) -> LLVMValue:
        """Return the register of a scalar, and note the scalar in `scalars`.

        Raises:
            UnknownReachError: the scalar is not lowered yet.
        """
        registers = self._ctx.values.get(value)
        if registers is None:
            raise UnknownReachError
        self.scalars.append(value)
        return registers[0]

    def wide(self, value: Value) -> LLVMValue:
        """Return a scalar as i64, on condition that it has not wrapped unless `trusts_scalars`."""
        if not self._trusts_scalars:
            self._require_no_wrap(value)
        return self._ctx.emit.cast("sext", self._scalar(value), "i64")

    def _require_no_wrap(self, value: Value) -> None:
        """Add the conditions that no 32-bit sum or product in a scalar's computation wraps."""
        op = value.defining_op
        if op is None or value in self._fitting:
            return
        self._fitting.add(value)
        if op.name not in _LINEAR:
            return
        if op.name != arith.ExtSI.name and element_of(value.type).bits <= _INT32:
            a, b, result = map(self._scalar, (*op.operands, value))
            wrapped = wraps(self._ctx.emit, op.name, a, b, result)
            self.conditions.append(self._ctx.emit.xor(wrapped, 1))
        for operand in op.operands:
            self._require_no_wrap(operand)

    def _carried(self, value: Value) -> Reach | None:
        """Return the reach of a tile that a loop carries; None for any other."""
        carried = self._carried_reaches.get(value)
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
            raise UnknownReachError
        return op

    def fitting(self, value: Value) -> Reach:
        """Return the reach of integers, on condition that none has wrapped."""
        reach = self.integers(value)
        if not (reach.fits or value in self._fitting) and element_of(value.type).bits <= _INT32:
            self._bounded(reach, element_of(value.type).bits)
            self._fitting.add(value)
        return reach

    def _bounded(self, reach: Reach, bits: int) -> None:
        """Add the condition that a reach fits a signed integer of the given width."""
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
            raise UnknownReachError

    def integers(self, value: Value) -> Reach:
        """Return the reach of a tile of integers, or of a scalar, as if no value wrapped."""
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._find_integers(value)
        return known

    def _find_integers(self, value: Value) -> Reach:
        number = constant_value(value)
        if isinstance(number, int):
            return Reach(integer("i64", int(number)), _ZERO, True)
        if not isinstance(value.type, TensorType):
            return Reach(self.wide(value), _ZERO, True)
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
        raise UnknownReachError

    def _sum(self, op: Operation) -> Reach:
        a, b = (self.integers(value) for value in op.operands)
        emit, is_sum = self._ctx.emit, arith.AddI.matches(op)
        low = emit.add(a.low, b.low) if is_sum else emit.binary("sub", a.low, self._high(b))
        return Reach(low, emit.add(a.span, b.span), False)

    def _product(self, op: Operation) -> Reach:
        """Return the reach of a range times a uniform value of the tile."""
        a, b = (self.fitting(value) for value in op.operands)
        for value, reach in zip(op.operands, (a, b), strict=True):
            if element_of(value.type).bits > _INT32:
                self._bounded(reach, _INT32)
        if _is_uniform(a):
            a, b = b, a
        if not _is_uniform(b):
            raise UnknownReachError
        emit = self._ctx.emit
        low, span = emit.mul(a.low, b.low), emit.mul(a.span, b.low)
        found = Reach(low, span, False)
        if not _is_uniform(a) and (b.low.constant is None or b.low.constant < 0):
            # Times a negative number the greatest becomes the least.
            is_known = b.low.constant is not None
            turns = integer("i1", 1) if is_known else emit.icmp("slt", b.low, 0)
            low = emit.add(low, emit.select(turns, span, _ZERO))
            span = emit.select(turns, emit.binary("sub", _ZERO, span), span)
            found = Reach(low, span, False)
        self._bounded(found, _PRODUCT_BITS)
        return found

    def _remainder(self, op: Operation) -> Reach:
        """Return the reach of non-negative values modulo a positive uniform number."""
        a, b = (self.fitting(value) for value in op.operands)
        if not _is_uniform(b):
            raise UnknownReachError
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
        """Upper bound of the elements."""
        return self._ctx.emit.add(reach.low, reach.span)


def _is_uniform(reach: Reach) -> bool:
    """Whether all elements are known to be the same."""
    return reach.span.constant == 0


def wraps(emit: Emitter, name: str, a: LLVMValue, b: LLVMValue, result: LLVMValue) -> LLVMValue:
    """i1: whether the op wraps.

    Args:
        emit: the emitter.
        name: the name of the op: `arith.addi`, `arith.subi` or `arith.muli`, of signed numbers.
        a: the left operand.
        b: the right operand.
        result: the op's result.
    """
    if name == arith.MulI.name:
        number = b.constant if a.constant is None else a.constant
        if number is not None and a.type != "i64":
            return _leaves(emit, b if a.constant is not None else a, number)
        wide = [emit.cast("sext", x, "i64") for x in (a, b, result)]
        return emit.icmp("ne", emit.binary("mul", *wide[:2]), wide[2])
    other = result if name == arith.AddI.name else b
    signs = emit.bit_and(emit.xor(a, other), emit.xor(b if other is result else a, result))
    return emit.icmp("slt", signs, 0)


def _leaves(emit: Emitter, value: LLVMValue, number: int) -> LLVMValue:
    """i1: whether a value times a number does not fit the value's type."""
    half = 1 << int(value.type.removeprefix("i")) - 1
    if number == 0:
        return integer("i1", 0)
    ends = sorted((Fraction(-half, number), Fraction(half - 1, number)))
    least, most = max(-half, ceil(ends[0])), min(half - 1, floor(ends[1]))
    return emit.icmp("ugt", emit.add(value, -least), most - least)
