"""What creating tiles and changing their shape does to contiguity, divisibility and constancy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tkdebug.compiler.analysis.axis_facts import (
    AxisInfo,
    extents,
    join,
    largest_divisor,
    unit_of,
    unknown,
)
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Operation

Infos = Sequence[AxisInfo]


def splat_info(info: AxisInfo, shape: tuple[int, ...]) -> AxisInfo:
    """A scalar in every element of a tile."""
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
    """Row-major: each axis of the result steps through the source from some axis on, outwards."""
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
    """How `size` steps of `step` elements through a row-major tile go.

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
    """What holds in both tiles."""
    a, b = operands
    return join(a, b, unit_of(op.result.type))


SHAPE_RULES: dict[str, Callable[[Operation, Infos], AxisInfo]] = {
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
}
