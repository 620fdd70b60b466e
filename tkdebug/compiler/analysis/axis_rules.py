"""Rules for the contiguity, divisibility and constancy of each op's results.

A rule takes the op and the facts about its operands, and returns the facts about its results. The
definitions are `axis_facts.AxisInfo`'s; each rule must hold for wrapping arithmetic as far as
`AxisInfo.run` reaches. Nothing is known of the results of an op without a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tkdebug.compiler.analysis.axis_facts import (
    MAX_DIVISIBILITY,
    AxisInfo,
    extents,
    is_tile,
    join,
    largest_divisor,
    uniform,
    unit_of,
    unknown,
)
from tkdebug.compiler.dialects import arith, tt, ttg
from tkdebug.compiler.dialects.interfaces import Cast
from tkdebug.compiler.dialects.table import FOLDING, OPS
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.ir.types import I1, PointerType, ScalarType, Type, element_of

Infos = Sequence[AxisInfo]
Rule = Callable[[Operation, Infos], AxisInfo]


def infer(op: Operation, operands: Infos) -> AxisInfo | None:
    """The facts about each result of `op`; None if nothing is known."""
    folded = _fold(op, operands)
    if folded is not None:
        return folded
    rule = RULES.get(op.name)
    if rule is not None:
        return rule(op, operands)
    if op.name.startswith(("arith.", "math.")) and operands:
        return _elementwise(op, operands)
    return None


def _fold(op: Operation, operands: Infos) -> AxisInfo | None:
    """The facts about an op with constant integer operands, or None if it cannot be folded."""
    if op.name not in FOLDING or not operands or len(op.results) != 1:
        return None
    element = element_of(op.result.type)
    numbers = [info.constant for info in operands]
    if not isinstance(element, ScalarType) or not element.is_integer or None in numbers:
        return None
    if op.name in arith.IntegerDivision.names and numbers[1] == 0:
        return None
    folded = OPS[op.name](op).fold(numbers)
    return uniform(op.result.type, int(folded)) if isinstance(folded, int) else None


def _spread(op: Operation, operands: Infos) -> list[AxisInfo]:
    """The facts about the operands; scalars beside tiles count as tiles of one value."""
    shape = extents(op.result.type)
    if not is_tile(op.result.type):
        return list(operands)
    return [
        info if is_tile(value.type) else splat_info(info, shape)
        for value, info in zip(op.operands, operands, strict=True)
    ]


def _equal(infos: Infos) -> tuple[int, ...]:
    """The size of the groups along each axis in which all operands are constant."""
    return tuple(min(sizes) for sizes in zip(*(i.constancy for i in infos), strict=True))


def _make(
    runs: Sequence[int],
    divisors: Sequence[int],
    equal: Sequence[int],
    non_negative: bool = False,
) -> AxisInfo:
    capped = tuple(min(divisor, MAX_DIVISIBILITY) for divisor in divisors)
    return AxisInfo(tuple(runs), capped, tuple(equal), None, non_negative)


def _loose(divisor: int, equal: Sequence[int], non_negative: bool = False) -> AxisInfo:
    """The facts about elements in no order, each a multiple of `divisor`."""
    ones = (1,) * len(equal)
    return _make(ones, (divisor,) * len(ones), equal, non_negative)


def _elementwise(op: Operation, operands: Infos) -> AxisInfo:
    return _loose(1, _equal(_spread(op, operands)))


# Sums and products.


def _sum(a: AxisInfo, b: AxisInfo, b_runs: bool, unit: int, scale: int) -> AxisInfo:
    """The facts of `a` plus `scale` times `b`; runs of b make runs if `b_runs`."""
    axes = range(len(a.contiguity))
    runs = [
        max(
            min(a.contiguity[axis], b.constancy[axis]),
            min(a.constancy[axis], b.contiguity[axis]) if b_runs else 1,
        )
        for axis in axes
    ]
    divisors = [
        min(a.first_divisor(axis, runs[axis], unit), b.first_divisor(axis, runs[axis]) * scale)
        for axis in axes
    ]
    return _make(runs, divisors, _equal((a, b)))


def _add(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    non_negative = a.non_negative and b.non_negative
    return replace(_sum(a, b, True, 1, 1), non_negative=non_negative)


def _subtract(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    return _sum(a, b, False, 1, 1)


def _add_pointer(op: Operation, operands: Infos) -> AxisInfo:
    pointer, offset = _spread(op, operands)
    unit = unit_of(op.result.type)
    return _sum(pointer, offset, True, unit, unit)


def _multiply(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    for one, other in ((a, b), (b, a)):
        if one.constant == 1 and element_of(op.result.type) != I1:
            return replace(other, constant=None)
    return _scaled(a, b.every_divisor(), _equal((a, b)), a.non_negative and b.non_negative)


def _scaled(a: AxisInfo, factor: int, equal: Sequence[int], non_negative: bool) -> AxisInfo:
    return _loose(a.every_divisor() * factor, equal, non_negative)


# Quotients and remainders. In a run that begins at a multiple of its length, groups as long as
# the divisor's own divisor have one quotient, and remainders that run.


def _cut(a: AxisInfo, b: AxisInfo, axis: int, is_exact: bool) -> int:
    """Length of the groups along `axis` of `a` in which no multiple of `b` lies but the first."""
    if not is_exact:
        return 1
    return min(a.run(axis), b.every_divisor(), b.constancy[axis])


def _divide(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    if b.constant == 1:
        return replace(a, constant=None)
    # Signed division rounds toward zero: groups of negative numbers begin one element later.
    is_exact = arith.DivUI.matches(op) or a.non_negative
    return _quotient(a, b, is_exact, a.non_negative and (b.constant is None or b.constant > 0))


def _quotient(a: AxisInfo, b: AxisInfo, is_exact: bool, non_negative: bool) -> AxisInfo:
    power = b.constant is not None and b.constant > 0 and b.every_divisor() == b.constant
    divisors, equal = [], []
    for axis, both in enumerate(_equal((a, b))):
        group = _cut(a, b, axis, is_exact)
        equal.append(max(both, group))
        divisor = a.every_divisor()
        if group == a.contiguity[axis]:
            # Every run as a whole has one quotient, that of its first element.
            divisor = max(divisor, a.divisibility[axis])
        divisors.append(max(1, divisor // b.constant) if power and b.constant else 1)
    return _make((1,) * len(equal), divisors, equal, non_negative)


def _remainder(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    is_signed = arith.RemSI.matches(op)
    is_exact = not is_signed or a.non_negative
    non_negative = a.non_negative or (not is_signed and b.non_negative)
    return _rest(a, b, is_exact, non_negative)


def _rest(a: AxisInfo, b: AxisInfo, is_exact: bool, non_negative: bool) -> AxisInfo:
    runs = [_cut(a, b, axis, is_exact) for axis in range(len(a.contiguity))]
    divisors = [min(a.first_divisor(axis, run), b.every_divisor()) for axis, run in enumerate(runs)]
    return _make(runs, divisors, _equal((a, b)), non_negative)


# Bits.


def _and(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    if a.constant is not None:
        a, b = b, a
    equal, mask = _equal((a, b)), b.constant
    non_negative = a.non_negative or b.non_negative
    if element_of(op.result.type) == I1:
        return _loose(1, equal)
    if mask is not None and mask > 0 and mask & (mask + 1) == 0:
        return _rest(a, uniform(op.result.type, mask + 1), True, non_negative)
    if mask is not None and mask < 0 and -mask == largest_divisor(mask):
        rounded = _quotient(a, uniform(op.result.type, -mask), True, non_negative)
        return _scaled(rounded, -mask, rounded.constancy, non_negative)
    return _loose(max(a.every_divisor(), b.every_divisor()), equal, non_negative)


def _or(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    divisor = min(a.every_divisor(), b.every_divisor())
    return _loose(divisor, _equal((a, b)), a.non_negative and b.non_negative)


def _shift_left(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    factor = 1 << b.constant if b.constant is not None and 0 <= b.constant < 64 else 1
    return _scaled(a, factor, _equal((a, b)), a.non_negative)


def _shift_right(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    bits = element_of(op.result.type).bits
    if b.constant is None or not 0 < b.constant < bits - 1:
        is_signed = arith.ShRSI.matches(op)
        return _loose(1, _equal((a, b)), a.non_negative and is_signed)
    step = uniform(op.result.type, 1 << b.constant)
    # A shift rounds toward minus infinity (or is unsigned): exact for negative numbers too.
    return _quotient(a, step, True, a.non_negative or arith.ShRUI.matches(op))


# Choices.


def _extremum(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    signs = (a.non_negative, b.non_negative)
    either = op.name in (arith.MaxSI.name, arith.MinUI.name)
    groups: Sequence[int] = a.contiguity
    if op.name in (arith.MaxUI.name, arith.MinUI.name) and not all(signs):
        # -1 is the largest number without sign; no aligned run goes from it to 0.
        groups = [min(a.run(axis), b.run(axis)) for axis in range(len(groups))]
    return _one_of(a, b, groups, any(signs) if either else all(signs))


def _select(op: Operation, operands: Infos) -> AxisInfo:
    condition, a, b = _spread(op, operands)
    if condition.constant is not None:
        return a if condition.constant else b
    if a.constant is not None and a.constant == b.constant:
        return a
    chosen = _one_of(
        a, b, condition.constancy, a.non_negative and b.non_negative, unit_of(op.result.type)
    )
    return replace(chosen, constancy=_equal((condition, chosen)))


def _one_of(
    a: AxisInfo, b: AxisInfo, groups: Sequence[int], non_negative: bool, unit: int = 1
) -> AxisInfo:
    """The facts about `a` or `b`, where each group takes all its elements from the same one."""
    runs = [min(sizes) for sizes in zip(a.contiguity, b.contiguity, groups, strict=True)]
    divisors = [
        min(a.first_divisor(axis, run, unit), b.first_divisor(axis, run, unit))
        for axis, run in enumerate(runs)
    ]
    return _make(runs, divisors, _equal((a, b)), non_negative)


def _compare(op: Operation, operands: Infos) -> AxisInfo:
    a, b = _spread(op, operands)
    predicate = arith.Compare(op).predicate
    equal = list(_equal((a, b)))
    for axis in range(len(equal)):
        # x < n and x >= n change only where x is a multiple of n's divisor.
        if predicate in ("slt", "sge", "ult", "uge"):
            equal[axis] = max(equal[axis], _cut(a, b, axis, True))
        if predicate in ("sgt", "sle", "ugt", "ule"):
            equal[axis] = max(equal[axis], _cut(b, a, axis, True))
        equal[axis] = max(equal[axis], min(a.run(axis), b.run(axis)))
    return _loose(1, equal)


# Conversions, assumptions, memory.


def _extend(op: Operation, operands: Infos) -> AxisInfo:
    (a,) = operands
    if element_of(Cast(op).source.type) == I1:
        return _loose(1, a.constancy, arith.ExtUI.matches(op))
    return replace(a, non_negative=a.non_negative or arith.ExtUI.matches(op))


def _truncate(op: Operation, operands: Infos) -> AxisInfo:
    (a,) = operands
    if element_of(op.result.type) == I1:
        return _loose(1, a.constancy)
    return replace(a, constant=None, non_negative=False)


def _reinterpret(op: Operation, operands: Infos) -> AxisInfo:
    """The facts about a bit cast, or a conversion of pointers to or from integers."""
    (a,) = operands
    source, target = Cast(op).source.type, op.result.type
    if not _is_index(source) or not _is_index(target):
        return _loose(1, a.constancy)
    before, after = unit_of(source), unit_of(target)
    if before == after:
        return replace(a, constant=None, non_negative=False)
    return _loose(a.every_divisor(before), a.constancy)


def _is_index(type_: Type) -> bool:
    element = element_of(type_)
    return isinstance(element, PointerType) or element.is_integer


def _hint(op: Operation, operands: Infos) -> AxisInfo:
    (a,) = operands
    values = tt.Hint(op).values
    assumed = [largest_divisor(v) if v else 1 for v in values]
    shape = extents(op.result.type)
    if len(assumed) != len(shape) or tt.Hint(op).kind == tt.BLOCK_START:
        return a
    within = tuple(map(min, assumed, shape))
    match tt.Hint(op).kind:
        case "divisibility":
            return replace(a, divisibility=tuple(map(max, a.divisibility, assumed)))
        case "contiguity":
            return replace(a, contiguity=tuple(map(max, a.contiguity, within)))
        case _:
            return replace(a, constancy=tuple(map(max, a.constancy, within)))


def _load(op: Operation, operands: Infos) -> AxisInfo:
    """The facts about a load: elements at equal addresses are equal."""
    if tt.Load(op).volatile:
        return unknown(op.result.type)
    return _loose(1, _equal(_spread(op, operands)))


def _constant(op: Operation, operands: Infos) -> AxisInfo:
    value, type_ = arith.Constant(op).value, op.result.type
    element = element_of(type_)
    if isinstance(value, int) and isinstance(element, ScalarType) and element.is_integer:
        return uniform(type_, int(value))
    return replace(unknown(type_), constancy=extents(type_))


def _program(op: Operation, operands: Infos) -> AxisInfo:
    return unknown(op.result.type, non_negative=True)


def _same(op: Operation, operands: Infos) -> AxisInfo:
    return operands[0]


# Tiles that are made, and whose shape changes.


def splat_info(info: AxisInfo, shape: tuple[int, ...]) -> AxisInfo:
    """The facts about a tile of `shape` whose elements all are a scalar with facts `info`."""
    rank = len(shape)
    return replace(
        info, contiguity=(1,) * rank, divisibility=info.divisibility[:1] * rank, constancy=shape
    )


def _make_range(op: Operation, operands: Infos) -> AxisInfo:
    start = tt.MakeRange(op).start
    (extent,) = extents(op.result.type)
    return AxisInfo((extent,), (largest_divisor(start),), (1,), None, start >= 0)


def _splat(op: Operation, operands: Infos) -> AxisInfo:
    return splat_info(operands[0], extents(op.result.type))


def _unsplat(op: Operation, operands: Infos) -> AxisInfo:
    divisor = operands[0].every_divisor(unit_of(op.result.type))
    return AxisInfo((1,), (divisor,), (1,), operands[0].constant, operands[0].non_negative)


def _expand_dims(op: Operation, operands: Infos) -> AxisInfo:
    (a,) = operands
    axis = tt.ExpandDims(op).axis

    def insert(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
        return (*numbers[:axis], number, *numbers[axis:])

    return replace(
        a,
        contiguity=insert(a.contiguity, 1),
        divisibility=insert(a.divisibility, a.every_divisor(unit_of(op.result.type))),
        constancy=insert(a.constancy, 1),
    )


def _broadcast(op: Operation, operands: Infos) -> AxisInfo:
    (a,) = operands
    source, target = extents(tt.Broadcast(op).source.type), extents(op.result.type)
    equal = tuple(
        size if size != before else same
        for size, before, same in zip(target, source, a.constancy, strict=True)
    )
    return replace(a, constancy=equal)


def _transpose(op: Operation, operands: Infos) -> AxisInfo:
    (a,) = operands
    order = tt.Trans(op).order

    def permuted(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(numbers[axis] for axis in order)

    return replace(
        a,
        contiguity=permuted(a.contiguity),
        divisibility=permuted(a.divisibility),
        constancy=permuted(a.constancy),
    )


def _reshape(op: Operation, operands: Infos) -> AxisInfo:
    """The facts about a row-major reshape; each axis of the result steps through the source."""
    (a,) = operands
    source, target = extents(tt.Reshape(op).source.type), extents(op.result.type)
    unit = unit_of(op.result.type)
    runs, divisors, equal = [], [], []
    for place, size in enumerate(target):
        step = prod(target[place + 1 :])
        run, same, first = _walk(a, source, step, size)
        runs.append(run)
        equal.append(same)
        divisor = a.every_divisor(unit)
        divisors.append(divisor if first is None else a.first_divisor(first, run, unit))
    return AxisInfo(tuple(runs), tuple(divisors), tuple(equal), a.constant, a.non_negative)


def _walk(
    a: AxisInfo, source: tuple[int, ...], step: int, size: int
) -> tuple[int, int, int | None]:
    """Follow `size` steps of `step` elements through a row-major tile of shape `source`.

    Returns:
        Length of runs, length of equal groups, and the axis along which each step is 1, if any.
    """
    axis = len(source) - 1
    while axis > 0 and step >= source[axis]:
        step //= source[axis]
        axis -= 1
    run = min(a.contiguity[axis], size) if step == 1 else 1
    first = axis if step == 1 else None
    same = min(max(1, a.constancy[axis] // step), size)
    # Where a whole axis is constant the walk goes on along the next one out.
    left = max(1, source[axis] // step)
    while same == left and same < size and axis > 0:
        axis -= 1
        same = min(same * a.constancy[axis], size)
        left *= source[axis]
    return run, same, first


def _join(op: Operation, operands: Infos) -> AxisInfo:
    a, b = operands
    unit = unit_of(op.result.type)
    shape = extents(op.result.type)
    both = join(a, b, unit)
    rank = len(shape) - 1
    every = min(a.every_divisor(unit), b.every_divisor(unit))
    same = 2 if tt.Pair(op).lhs is tt.Pair(op).rhs else 1
    return AxisInfo(
        (*both.contiguity[:rank], 1),
        (*both.divisibility[:rank], every),
        (*both.constancy[:rank], same),
        both.constant,
        both.non_negative,
    )


def _split(op: Operation, operands: Infos) -> AxisInfo:
    (a,) = operands
    rank = len(extents(op.results[0].type))
    if len(a.contiguity) == 1:
        return unknown(op.results[0].type, a.every_divisor(unit_of(op.results[0].type)))
    return replace(
        a,
        contiguity=a.contiguity[:rank],
        divisibility=a.divisibility[:rank],
        constancy=a.constancy[:rank],
    )


def _cat(op: Operation, operands: Infos) -> AxisInfo:
    """The facts that hold in both tiles."""
    a, b = operands
    return join(a, b, unit_of(op.result.type))


RULES: dict[str, Rule] = {
    tt.MakeRange.name: _make_range,
    tt.Splat.name: _splat,
    tt.Unsplat.name: _unsplat,
    tt.ExpandDims.name: _expand_dims,
    tt.Broadcast.name: _broadcast,
    tt.Trans.name: _transpose,
    tt.Reshape.name: _reshape,
    tt.Join.name: _join,
    tt.Split.name: _split,
    tt.Cat.name: _cat,
    arith.Constant.name: _constant,
    arith.AddI.name: _add,
    arith.SubI.name: _subtract,
    arith.MulI.name: _multiply,
    arith.DivSI.name: _divide,
    arith.DivUI.name: _divide,
    arith.RemSI.name: _remainder,
    arith.RemUI.name: _remainder,
    arith.AndI.name: _and,
    arith.OrI.name: _or,
    arith.XOrI.name: _or,
    arith.ShLI.name: _shift_left,
    arith.ShRSI.name: _shift_right,
    arith.ShRUI.name: _shift_right,
    arith.MinSI.name: _extremum,
    arith.MaxSI.name: _extremum,
    arith.MinUI.name: _extremum,
    arith.MaxUI.name: _extremum,
    arith.CmpI.name: _compare,
    arith.Select.name: _select,
    arith.ExtSI.name: _extend,
    arith.ExtUI.name: _extend,
    arith.TruncI.name: _truncate,
    tt.Bitcast.name: _reinterpret,
    tt.PtrToInt.name: _reinterpret,
    tt.IntToPtr.name: _reinterpret,
    tt.AddPtr.name: _add_pointer,
    tt.Load.name: _load,
    tt.Hint.name: _hint,
    tt.GetProgramId.name: _program,
    tt.GetNumPrograms.name: _program,
    ttg.ConvertLayout.name: _same,
}
