"""`AxisInfo`: contiguity, divisibility and constancy of a value along each of its axes."""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.ir.types import I1, PointerType, TensorType, Type, element_of, shape_of

# The divisor of 0, and the largest that is noted.
MAX_DIVISIBILITY = 1 << 40


@dataclass(frozen=True, slots=True)
class AxisInfo:
    """Facts about a value, one number per axis (a scalar has one axis of extent 1).

    Attributes:
        contiguity: along the axis, aligned groups of so many elements are x, x + 1, x + 2, …
            (for pointers: consecutive elements in memory).
        divisibility: the first element of each such group is a multiple of this; for pointers in
            bytes.
        constancy: along the axis, aligned groups of so many elements are equal.
        constant: the value of every element, if known.
        non_negative: no element is negative, read as a signed integer.
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    non_negative: bool = False

    def first_divisor(self, axis: int, group: int, unit: int = 1) -> int:
        """A divisor of the first element of each aligned group of `group` elements along `axis`.

        Args:
            axis: the axis.
            group: a power of two.
            unit: the step between elements of a run: the element's bytes for pointers.
        """
        if group >= self.contiguity[axis]:
            return self.divisibility[axis]
        return max(min(self.divisibility[axis], group * unit), self.every_divisor(unit))

    def every_divisor(self, unit: int = 1) -> int:
        """A divisor of every element."""
        return max(
            divisor if run == 1 else min(divisor, unit)
            for run, divisor in zip(self.contiguity, self.divisibility, strict=True)
        )

    def run(self, axis: int, unit: int = 1) -> int:
        """Length of the runs along `axis` that begin at a multiple of their own length."""
        return max(1, min(self.contiguity[axis], self.divisibility[axis] // unit))


def largest_divisor(number: int) -> int:
    """The largest power of two that divides `number`, at most `MAX_DIVISIBILITY`."""
    return MAX_DIVISIBILITY if number == 0 else min(number & -number, MAX_DIVISIBILITY)


def extents(type_: Type) -> tuple[int, ...]:
    """The extent of each axis of a value's `AxisInfo`."""
    return shape_of(type_) or (1,)


def unit_of(type_: Type) -> int:
    """The step between elements of a run: the bytes of the element a pointer points to, else 1."""
    element = element_of(type_)
    return max(1, element.pointee.bits // 8) if isinstance(element, PointerType) else 1


def unknown(type_: Type, divisor: int = 1, non_negative: bool = False) -> AxisInfo:
    """The facts about any value of `type_` whose elements are all multiples of `divisor`."""
    ones = (1,) * len(extents(type_))
    return AxisInfo(ones, (divisor,) * len(ones), ones, None, non_negative)


def uniform(type_: Type, constant: int) -> AxisInfo:
    """The facts about a value whose elements all are `constant`."""
    shape = extents(type_)
    return AxisInfo(
        (1,) * len(shape),
        (largest_divisor(constant),) * len(shape),
        shape,
        constant,
        constant >= 0 and element_of(type_) != I1,
    )


def join(a: AxisInfo, b: AxisInfo, unit: int) -> AxisInfo:
    """The facts that hold for values with facts `a` and also for values with facts `b`."""
    runs = tuple(map(min, a.contiguity, b.contiguity))
    return AxisInfo(
        runs,
        tuple(
            min(a.first_divisor(axis, run, unit), b.first_divisor(axis, run, unit))
            for axis, run in enumerate(runs)
        ),
        tuple(map(min, a.constancy, b.constancy)),
        a.constant if a.constant == b.constant else None,
        a.non_negative and b.non_negative,
    )


def is_tile(type_: Type) -> bool:
    """Whether a type is a tile with at least one axis."""
    return isinstance(type_, TensorType) and bool(type_.shape)
