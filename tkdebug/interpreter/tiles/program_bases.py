"""The bases of affine tiles, one offset per program, and the patterns in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Base:
    """An int64 tensor (P or 1, then tile axes) with its range, computed once when first needed.

    Attributes:
        tensor: the values.
        bounds: (smallest, largest), or a wider range that is known to hold.
    """

    __slots__ = ("_bounds", "_exact", "_pattern", "_repeats", "tensor")

    def __init__(self, tensor: Tensor, bounds: tuple[int, int] | None = None) -> None:
        self.tensor = tensor
        self._bounds = bounds
        self._exact = False
        self._pattern: ProgramPattern | None = None
        self._repeats: Repeats | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """A range that holds all values; may be wider than needed until `exact_bounds`."""
        if self._bounds is None:
            return self.exact_bounds
        return self._bounds

    @property
    def exact_bounds(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        if not self._exact:
            if self.tensor.numel() == 0:
                self._bounds = (0, 0)
            else:
                low, high = self.tensor.aminmax()
                self._bounds = (int(low), int(high))
            self._exact = True
        assert self._bounds is not None
        return self._bounds

    @property
    def is_per_program(self) -> bool:
        """Whether all tile axes have extent 1."""
        return self.tensor.numel() == self.tensor.shape[0]

    def reshaped(self, tensor: Tensor) -> Base:
        """The same values under another shape."""
        out = Base(tensor, self._bounds)
        out._exact = self._exact
        out._pattern = self._pattern
        return out

    def pattern(self) -> ProgramPattern:
        """How the values step from program to program (per-program bases only)."""
        if self._pattern is None:
            self._pattern = find_pattern(self.tensor.reshape(-1))
        return self._pattern

    def repeats(self) -> Repeats:
        """Which programs have the same value (per-program bases only)."""
        if self._repeats is None:
            self._repeats = find_repeats(self)
        return self._repeats


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Per-program bases of which several are the same.

    Attributes:
        distinct: each value once.
        places: (P,) which of them each program has.
        run_places: (P / run,) the same of runs: the first `run` programs have the same value, the
            next, and so on.
    """

    distinct: Base
    places: Tensor
    run_places: Tensor
    _within_runs: dict[Repeats, Tensor] = field(default_factory=dict)

    @property
    def run(self) -> int:
        """Programs of a run."""
        return self.places.shape[0] // self.run_places.shape[0]

    def within_runs_of(self, other: Repeats) -> Tensor:
        """The places in each run of `other`, once for as many runs in a row as have the same.

        The result is (blocks, run): a block is that many runs.
        """
        known = self._within_runs.get(other)
        if known is None:
            rows = self.places.reshape(-1, other.run)
            changes = (rows[1:] != rows[:-1]).any(1).nonzero().reshape(-1) + 1
            known = rows[:: math.gcd(rows.shape[0], *changes.tolist())].contiguous()
            self._within_runs[other] = known
        return known


def find_repeats(base: Base) -> Repeats:
    """Which of the per-program bases are the same."""
    values = base.tensor.reshape(-1)
    distinct, places = values.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    changes = (places[1:] != places[:-1]).nonzero().reshape(-1) + 1
    run = math.gcd(values.shape[0], *changes.tolist())
    shape = (-1, *(1,) * (base.tensor.dim() - 1))
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
