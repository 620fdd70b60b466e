"""The bases of affine tiles, one offset per program, and the patterns in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Base:
    """One int64 number per program, or a tile of them: shape (P or 1, then tile axes).

    A base that is made of a pattern becomes a tensor when `tensor` is first asked for.
    """

    __slots__ = ("_bounds", "_device", "_exact", "_pattern", "_repeats", "_shape", "_tensor")

    def __init__(self, tensor: Tensor, bounds: tuple[int, int] | None = None) -> None:
        self._tensor: Tensor | None = tensor
        self._shape: tuple[int, ...] = ()
        self._device: torch.device | None = None
        self._bounds = bounds
        self._exact = False
        self._pattern: ProgramPattern | None = None
        self._repeats: Repeats | None = None

    @classmethod
    def of_pattern(
        cls, pattern: ProgramPattern, shape: tuple[int, ...], device: torch.device | None
    ) -> Base:
        """The numbers of a regular pattern in program order, as (P, 1, …)."""
        out = object.__new__(cls)
        out._tensor = None
        out._shape = shape
        out._device = device
        out._bounds = pattern.bounds
        out._exact = True
        out._pattern = pattern
        out._repeats = None
        return out

    @property
    def tensor(self) -> Tensor:
        """The numbers, modulo 2**64."""
        if self._tensor is None:
            assert self._pattern is not None
            self._tensor = self._pattern.numbers(self._device).reshape(self._shape)
        return self._tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `tensor`."""
        return self._shape if self._tensor is None else self._tensor.shape

    @property
    def bounds(self) -> tuple[int, int]:
        """A range that holds all values; may be wider than needed until `exact_bounds`."""
        if self._bounds is None:
            return self.exact_bounds
        return self._bounds

    @property
    def exact_bounds(self) -> tuple[int, int]:
        """The minimum and the maximum value."""
        if not self._exact:
            tensor = self.tensor
            if tensor.numel() == 0:
                self._bounds = (0, 0)
            else:
                low, high = tensor.aminmax()
                self._bounds = (int(low), int(high))
            self._exact = True
        assert self._bounds is not None
        return self._bounds

    @property
    def is_per_program(self) -> bool:
        """Whether all tile axes have extent 1."""
        return self._tensor is None or self._tensor.numel() == self._tensor.shape[0]

    def reshaped(self, shape: tuple[int, ...]) -> Base:
        """Return a base with the same values in the same order, under another shape."""
        if self._tensor is None:
            assert self._pattern is not None
            return Base.of_pattern(self._pattern, shape, self._device)
        return self._of(self._tensor.reshape(shape))

    def permuted(self, order: Sequence[int]) -> Base:
        """Return a base with the same values, with their tile axes in another order."""
        if self._tensor is None:
            return self  # whose tile axes have extent 1
        return self._of(self._tensor.permute(0, *(axis + 1 for axis in order)))

    def _of(self, tensor: Tensor) -> Base:
        """Return a base with the same bounds and pattern, whose values are in `tensor`."""
        out = Base(tensor, self._bounds)
        out._exact = self._exact
        out._pattern = self._pattern
        return out

    def times(self, factor: int) -> Base:
        """Every number times `factor`, with bounds that may not fit 64 bits."""
        low, high = self.bounds
        low, high = (low * factor, high * factor) if factor >= 0 else (high * factor, low * factor)
        if self._tensor is None and _fit(low, high):
            assert self._pattern is not None
            return Base.of_pattern(self._pattern.times(factor), self._shape, self._device)
        return Base(self.tensor * factor, (low, high))

    def times_modulo(self, factor: int) -> Base:
        """Every number times `factor`, modulo 2**64."""
        low, high = self.bounds
        if _fit(low * factor, high * factor):
            return self.times(factor)
        return Base(self.tensor * factor)

    def plus(self, other: Base) -> Base:
        """Return the sums of two bases with equally many axes; bounds may not fit 64 bits."""
        (low, high), (low2, high2) = self.bounds, other.bounds
        low, high = low + low2, high + high2
        is_made = self._tensor is not None or other._tensor is not None
        if not is_made and self._shape == other._shape and _fit(low, high):
            assert self._pattern is not None
            assert other._pattern is not None
            total = self._pattern.plus(other._pattern)
            if total is not None:
                return Base.of_pattern(total, self._shape, self._device)
        return Base(self.tensor + other.tensor, (low, high))

    def pattern(self) -> ProgramPattern:
        """Return how the values step from program to program (per-program bases only)."""
        if self._pattern is None:
            self._pattern = find_pattern(self.tensor.reshape(-1))
        return self._pattern

    def repeats(self) -> Repeats:
        """Return the programs that have the same value (per-program bases only)."""
        if self._repeats is None:
            self._repeats = find_repeats(self)
        return self._repeats


def _fit(low: int, high: int) -> bool:
    """Whether both ends of a range, in any order, fit int64."""
    return _LEAST <= low <= _MOST and _LEAST <= high <= _MOST


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Per-program bases, of which several are equal.

    Attributes:
        distinct: each value once.
        places: (P,) the number of each program's base.
        run_places: (P / run,) the number of each run's base: each run of that many consecutive
            programs has one value.
    """

    distinct: Base
    places: Tensor
    run_places: Tensor
    _within_runs: dict[Repeats, Tensor] = field(default_factory=dict)

    @property
    def run(self) -> int:
        """The number of programs in a run."""
        return self.places.shape[0] // self.run_places.shape[0]

    def within_runs_of(self, other: Repeats) -> Tensor:
        """Return this object's places within the runs of `other`, (blocks, run).

        A block is a number of consecutive runs of `other` with equal places, listed once.
        """
        known = self._within_runs.get(other)
        if known is None:
            rows = self.places.reshape(-1, other.run)
            changes = (rows[1:] != rows[:-1]).any(1).nonzero().reshape(-1) + 1
            known = rows[:: math.gcd(rows.shape[0], *changes.tolist())].contiguous()
            self._within_runs[other] = known
        return known


def find_repeats(base: Base) -> Repeats:
    """Return the distinct values of per-program bases, and which program has which."""
    values = base.tensor.reshape(-1)
    distinct, places = values.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    changes = (places[1:] != places[:-1]).nonzero().reshape(-1) + 1
    run = math.gcd(values.shape[0], *changes.tolist())
    shape = (-1, *(1,) * (len(base.shape) - 1))
    once = Base(distinct.reshape(shape), base.bounds)
    return Repeats(once, places, places[::run].contiguous())


@dataclass(frozen=True, slots=True)
class ProgramPattern:
    """Per-program bases as a nest of up to two arithmetic progressions, or irregular.

    `start + i * steps[0] + j * steps[1]` over `sizes`, in program order, or in the order of
    `order` (a permutation of the programs) when that is not None.
    """

    start: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    regular: bool = True
    order: Tensor | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """The minimum and the maximum number of a regular pattern."""
        low, high = reach(self.sizes, self.steps)
        return self.start + low, self.start + high

    def numbers(self, device: torch.device | None) -> Tensor:
        """Return the numbers of a regular pattern in program order, (P,) int64."""
        out = torch.full((), self.start, dtype=torch.int64, device=device)
        for size, step in zip(self.sizes, self.steps, strict=True):
            moves = torch.arange(size, dtype=torch.int64, device=device) * step
            out = out.unsqueeze(-1) + moves
        return out.reshape(-1)

    def times(self, factor: int) -> ProgramPattern:
        """A regular pattern's numbers times `factor`."""
        steps = tuple(step * factor for step in self.steps)
        return ProgramPattern(self.start * factor, self.sizes, steps)

    def plus(self, other: ProgramPattern) -> ProgramPattern | None:
        """The sums of two regular patterns in program order, None if they nest differently."""
        if self.sizes != other.sizes:
            return None
        steps = tuple(a + b for a, b in zip(self.steps, other.steps, strict=True))
        return ProgramPattern(self.start + other.start, self.sizes, steps)


def reach(sizes: Sequence[int], steps: Sequence[int]) -> tuple[int, int]:
    """Return the minimum and the maximum sum of position x step, over all positions."""
    low = high = 0
    for size, step in zip(sizes, steps, strict=True):
        furthest = step * (size - 1)
        if furthest < 0:
            low += furthest
        else:
            high += furthest
    return low, high


def find_pattern(values: Tensor) -> ProgramPattern:
    """The pattern of a vector of per-program bases, without reordering."""
    count = values.shape[0]
    start = int(values[0])
    if count == 1:
        return ProgramPattern(start, (1,), (0,))
    differences = values[1:] - values[:-1]
    inner = int(differences[0])
    breaks = (differences != inner).nonzero()
    if breaks.shape[0] == 0:
        return ProgramPattern(start, (count,), (inner,))
    run = int(breaks[0, 0]) + 1
    if count % run == 0:
        rows = values.reshape(count // run, run)
        outer = rows[:, 0]
        steps = outer[1:] - outer[:-1]
        step = int(steps[0])
        line = rows[0] - rows[0, 0]
        if bool((steps == step).all()) and bool((rows - outer[:, None] == line).all()):
            return ProgramPattern(start, (count // run, run), (step, inner))
    return ProgramPattern(start, (count,), (0,), regular=False)


def find_sorted_pattern(values: Tensor) -> ProgramPattern:
    """The pattern of the bases when programs may be taken in another order."""
    order = values.argsort()
    found = find_pattern(values[order])
    return ProgramPattern(found.start, found.sizes, found.steps, found.regular, order)
