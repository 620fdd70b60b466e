"""The errors of ops while a launch runs in fp64 beside itself: local and carried, and by cause.

An op's local error is its result less what fp64 makes of the operands that it got; its carried
error is what fp64 makes of these less what it makes of exact ones. Both are relative: to each
element, or to a hundredth of the tile's root mean square where that is more.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import fact_of
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules import run_alone
from tkdebug.interpreter.tiles.forms import ELEMENT_DTYPES
from tkdebug.interpreter.tiles.side_by_side import AsActual, SideBySide
from tkdebug.interpreter.tiles.values import TileValue
from tkdebug.precision.error_causes import (
    Cause,
    cause_of,
    fma_of,
    is_fixed,
    known_error,
    may_cancel,
)

# Parts of a tile's root mean square: smaller elements count as that large. The second is for
# cancellation, which makes all of a tile's numbers small: a few that are small by chance are none.
_FLOOR, _CANCELLED_FLOOR = 0.01, 0.1
# How much larger the relative error of a sum has to be than that of its operands for it to count as
# the difference of nearly equal numbers.
CANCELS = 8.0
_TF32_BITS = -8192
# Worlds that make less than this of a tile's error count together, where there are many of them.
_NEGLIGIBLE, _FEW_WORLDS, _MANY_ELEMS = 1e-4, 4, 2048
_SIGN_BIT = 20
# So many first runs of an op are all measured, and of later ones every so many.
_ALL_MEASURED = 8
_PACKAGE = str(Path(__file__).parents[1])


class Place(NamedTuple):
    """A line of a kernel's source."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Source:
    """A world: the errors of one cause that the ops of a line make."""

    place: Place
    cause: Cause


@dataclass(frozen=True, slots=True)
class Flow:
    """A world: the errors that the operands of a line's sums bring, and no others."""

    place: Place


@dataclass(frozen=True, slots=True)
class AsFp32(AsActual):
    """A world: all errors as they are, but those of a line, which has the errors of fp32."""

    place: Place


@dataclass(frozen=True, slots=True)
class Known:
    """A world: the errors that a line's approximations have on a GPU, and not here."""

    place: Place


@dataclass(frozen=True, slots=True)
class Unrounded:
    """A world: numbers that a line rounds to integers toward one side stay as they are."""

    place: Place


@dataclass(frozen=True, slots=True)
class Rest:
    """A world: all errors that are far smaller than others which the same numbers have."""


REST = Rest()
World = Rest | Source | Flow | AsFp32 | Known | Unrounded


@dataclass(slots=True)
class OpError:
    """The errors of an op's results in a run.

    Attributes:
        times: how often it ran.
        elements: how many results were measured.
        local, carried: sums of squares of relative errors.
        brought: the same of its operands' errors, for ops that may cancel.
        amplified: the largest factor by which its operands' relative error grew.
        low, high: exponents of the smallest and largest number that is not 0; None without one.
        not_finite: the number of infinite or NaN results where fp64 has a number.
        absorbs: the least ratio of the smaller term of an addition to the larger one.
        downward, moved: the numbers of results that were rounded toward 0, and rounded at all.
    """

    times: int = 0
    elements: int = 0
    local: float = 0.0
    carried: float = 0.0
    brought: float = 0.0
    amplified: float = 0.0
    low: int | None = None
    high: int | None = None
    not_finite: int = 0
    absorbs: float = 1.0
    downward: int = 0
    moved: int = 0

    def note_range(self, span: _Span) -> None:
        """Widen the range of exponents."""
        if span.top > 0:
            low, high = (math.frexp(each)[1] - 1 for each in (span.least, span.top))
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def is_measured(self) -> bool:
        """Count a run; return whether to measure its results: the first ones, and some others."""
        self.times += 1
        return self.times <= _ALL_MEASURED or self.times % _ALL_MEASURED == 0


class _Span:
    """The range of a tile's numbers.

    Attributes:
        least, top: the smallest number that is not 0 and the largest finite one; 0 without one.
        has_zero: whether there is a 0.
        is_finite: whether all are finite.
    """

    __slots__ = ("has_zero", "is_finite", "least", "top")

    def __init__(self, values: Tensor) -> None:
        size = values.abs()
        self.least, self.top = _limits_of(size)
        self.is_finite = math.isfinite(self.top)
        if not self.is_finite:
            size = torch.nan_to_num(size, nan=0.0, posinf=0.0)
            self.least, self.top = _limits_of(size)
        self.has_zero = not self.least
        if self.has_zero and self.top:
            self.least = float(size.masked_fill_(size == 0, math.inf).amin())

    def is_within(self, largest: float, smallest: float) -> bool:
        """Whether all numbers are well within two limits."""
        return self.is_finite and self.top < largest / 2 and self.least > 2 * smallest


class _Scale:
    """The sizes that a tile's errors are relative to."""

    __slots__ = ("_known", "_rms", "_size")

    def __init__(self, exact: Tensor) -> None:
        self._known: dict[float, Tensor] = {}
        self._size = exact.abs()
        self._rms = math.sqrt(float(self._size.square().mean())) if exact.numel() else 0.0
        if not math.isfinite(self._rms):
            self._size = _finite(exact).abs()
            self._rms = math.sqrt(float(self._size.square().mean()))

    def weights(self, least: float = _FLOOR) -> Tensor:
        """Return the factors that make absolute errors relative."""
        found = self._known.get(least)
        if found is None:
            found = (
                (self._size + least * self._rms).reciprocal_()
                if self._rms
                else torch.ones_like(self._size)
            )
            self._known[least] = found
        return found

    def mean_square(self, error: Tensor, least: float = _FLOOR) -> float:
        """Return the mean square of relative errors, of finite elements."""
        if not error.numel():
            return 0.0
        found = float((self.weights(least) * error).square_().mean())
        if math.isfinite(found):
            return found
        return float((self.weights(least) * _finite(error)).square_().mean())


def _limits_of(values: Tensor) -> tuple[float, float]:
    """Return the least and the largest number of a tile; NaN for both where there is one."""
    if not values.numel():
        return 0.0, 0.0
    least, top = values.aminmax()
    return float(least), float(top)


def _finite(values: Tensor) -> Tensor:
    if math.isfinite(float(values.sum())):
        return values
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(slots=True)
class OpSources:
    """Causes of the errors of a kernel's ops, each found when it is first asked for.

    Attributes:
        causes: by op, the line and the cause.
        known: by op, its largest relative error on a GPU that it has not here.
    """

    causes: dict[Operation, tuple[Place, Cause]] = field(default_factory=dict)
    known: dict[Operation, float] = field(default_factory=dict)

    @classmethod
    def of(cls, module: Module) -> OpSources:
        """Return the sources of a module's ops, the same object for all its launches."""
        return fact_of(module, cls, lambda _: cls())


@dataclass(slots=True)
class OpErrors:
    """The errors of all ops of a launch, by op.

    Attributes:
        sources: the causes of the errors of the kernel's ops.
        tried: the lines for which the error with fp32 is measured, too.
    """

    sources: OpSources = field(default_factory=OpSources)
    tried: frozenset[Place] = frozenset()
    by_op: dict[Operation, OpError] = field(default_factory=dict)

    def made(
        self,
        run: Evaluator,
        op: Operation,
        twin: Operation,
        place: int,
        sides: Sequence[SideBySide],
        result: SideBySide,
        own: Tensor,
    ) -> None:
        """Note what an op does to a result, and give the result the worlds of its own errors.

        Args:
            run: the programs.
            op: the op.
            twin: the op in fp64.
            place: the number of the result.
            sides: its operands on all sides.
            result: the result on all sides, without the op's own errors.
            own: the result in fp64 on the operands that the op got.
        """
        type_ = op.results[place].type
        actual, exact = result.widened(run, type_), result.exact
        assert exact is not None
        local = _difference(actual, own)
        noted = self._noted(op)
        known = self._known(op)
        span = _Span(actual)
        noted.note_range(span)
        is_measured = noted.is_measured()
        if is_measured:
            noted.elements += actual.numel()
        carries = exact is not own
        makes = bool(local.any())
        if not carries and not makes and not known:
            result.exact = None  # as the kernel has it
            return
        worlds = dict(result.worlds)
        if known:
            # The signs of these errors are not known: a bit of the number decides.
            sides_of_bits = ((own.view(torch.int64) >> _SIGN_BIT) & 1) * 2 - 1
            worlds[Known(self.source(op)[0])] = exact + known * own * sides_of_bits
        if is_measured:
            self._measure(run, op, sides, type_, result, own, local if makes else None, span)
        if carries and noted.amplified >= CANCELS:
            worlds[Flow(self.source(op)[0])] = own
        if makes:
            for world, part in self._parts(run, op, twin, sides, span, actual, own, local):
                worlds[world] = worlds.get(world, exact) + part
            for tried in self.tried:
                world = AsFp32(tried)
                if tried == self.source(op)[0]:
                    worlds[world] = worlds.get(world, own) + (own.float().double() - own)
                elif world in worlds:
                    worlds[world] = worlds[world] + local
        if len(worlds) > _FEW_WORLDS and actual.numel() >= _MANY_ELEMS:
            _merge_small(worlds, actual, exact)
        result.worlds = worlds

    def _measure(
        self,
        run: Evaluator,
        op: Operation,
        sides: Sequence[SideBySide],
        type_: ir.Type,
        result: SideBySide,
        own: Tensor,
        local: Tensor | None,
        span: _Span,
    ) -> None:
        """Note how large an op's errors are, made here (`local`, None for none) and carried."""
        actual, exact, noted = result.widened(run, type_), result.exact, self._noted(op)
        assert exact is not None
        scale, count = _Scale(exact), actual.numel()
        if local is not None:
            noted.local += scale.mean_square(local) * count
        if not span.is_finite:
            noted.not_finite += int((~actual.isfinite() & own.isfinite()).sum())
        if local is not None and self.source(op)[1] == "storage":
            signs = torch.sign(local) * torch.sign(own)
            noted.moved += int(signs.count_nonzero())
            noted.downward += int((signs < 0).sum())
        is_sum = arith.AddF.matches(op) or arith.SubF.matches(op)
        if is_sum and not any(map(is_fixed, op.operands)):
            _note_terms(noted, *(side.widened(run, type_) for side in sides))
        if exact is own:
            return
        brought = _difference(own, exact)
        noted.carried += scale.mean_square(brought) * count
        if not may_cancel(op):
            return
        before = 0.0
        for side, value in zip(sides, op.operands, strict=True):
            if side.exact is not None:
                error = _difference(side.widened(run, value.type), side.exact)
                before = max(before, _Scale(side.exact).mean_square(error, _CANCELLED_FLOOR))
        noted.brought += before * count
        if before > 0:
            after = scale.mean_square(brought, _CANCELLED_FLOOR)
            noted.amplified = max(noted.amplified, math.sqrt(after / before))

    def loaded(self, run: Evaluator, op: Operation, type_: ir.Type, result: SideBySide) -> None:
        """Note what was loaded from memory that the launch wrote."""
        noted, exact = self._noted(op), result.exact
        assert exact is not None
        actual = result.widened(run, type_)
        noted.note_range(_Span(actual))
        if noted.is_measured():
            noted.elements += actual.numel()
            difference = _difference(actual, exact)
            noted.carried += _Scale(exact).mean_square(difference) * actual.numel()

    def of_memory(
        self, op: Operation, own: Tensor, known: Iterable[Hashable]
    ) -> dict[World, Tensor]:
        """Return the errors that an atomic adds to memory, by world.

        Args:
            op: the atomic.
            own: the errors that it makes.
            known: the worlds in which memory, or the added number, differs.
        """
        own = torch.nan_to_num(own)
        if not bool(own.any()):
            return {}
        source = Source(*self.source(op))
        found: dict[World, Tensor] = {source: own}
        found |= {world: own for world in known if isinstance(world, AsFp32)}
        if source.place in self.tried:
            found[AsFp32(source.place)] = torch.zeros_like(own)
        return found

    def _noted(self, op: Operation) -> OpError:
        noted = self.by_op.get(op)
        if noted is None:
            noted = self.by_op[op] = OpError()
        return noted

    def source(self, op: Operation) -> tuple[Place, Cause]:
        """Return the line that makes an op's errors, and their cause."""
        found = self.sources.causes.get(op)
        if found is None:
            cause = cause_of(op)
            # Of two products the fma has rounded one, and not the other.
            at = fma_of(op) if cause == "contraction" else op
            found = self.sources.causes[op] = place_of(at or op), cause
        return found

    def _known(self, op: Operation) -> float:
        found = self.sources.known.get(op)
        if found is None:
            found = self.sources.known[op] = known_error(op)
        return found

    def _parts(
        self,
        run: Evaluator,
        op: Operation,
        twin: Operation,
        sides: Sequence[SideBySide],
        span: _Span,
        actual: Tensor,
        own: Tensor,
        local: Tensor,
    ) -> list[tuple[World, Tensor]]:
        """The op's own errors, split by cause, each with its world."""
        line, cause = self.source(op)
        found: list[tuple[World, Tensor]] = []
        limits = _limits(str(ir.element_of(op.results[0].type)))
        if limits is not None and not (span.is_within(*limits) and _keeps_zeros(span, actual, own)):
            largest, smallest = limits
            beyond = (own.abs() > largest) & (local != 0)
            beyond |= ~actual.isfinite() & own.isfinite()
            below = (own.abs() < smallest) & (local != 0) & (own != 0)
            outside: list[tuple[Cause, Tensor]] = [("overflow", beyond), ("underflow", below)]
            for out, where in outside:
                if bool(where.any()):
                    zero = torch.zeros_like(local)
                    found.append((Source(line, out), torch.where(where, local, zero)))
                    local = torch.where(where, zero, local)
        cut = _tf32_error(run, op, twin, sides, own)
        if cut is not None:
            found.append((Source(line, "tf32"), cut))
            local = local - cut
        if bool(local.any()):
            found.append((Source(line, cause), local))
        return found


def _keeps_zeros(span: _Span, actual: Tensor, own: Tensor) -> bool:
    """Whether results that are 0 are 0 in fp64, too."""
    return not span.has_zero or not bool(((actual == 0) & (own != 0)).any())


def _merge_small(worlds: dict[Hashable, Tensor], actual: Tensor, exact: Tensor) -> None:
    """Merge worlds with a negligible part of a tile's error into `REST`."""
    norm = torch.linalg.vector_norm
    least = _NEGLIGIBLE * float(norm(actual - exact))
    if not math.isfinite(least) or not least:
        return
    for world in [world for world in worlds if isinstance(world, Source)]:
        part = worlds[world] - exact
        if float(norm(part)) < least:
            del worlds[world]
            worlds[REST] = worlds.get(REST, exact) + part


def _note_terms(noted: OpError, a: Tensor, b: Tensor) -> None:
    a, b = a.abs(), b.abs()
    larger = float(_finite(torch.maximum(a, b)).mean())
    smaller = float(_finite(torch.minimum(a, b)).mean())
    if larger:
        noted.absorbs = min(noted.absorbs, smaller / larger)


def place_of(op: Operation) -> Place:
    """Return the line of an op; for an op in a function of tkdebug, the line that calls that."""
    frames = op.location.frames
    for frame in reversed(frames):
        if not frame.file.startswith(_PACKAGE):
            return Place(frame.file, frame.line)
    return Place(frames[0].file, frames[0].line)


def relative_error(error: Tensor, exact: Tensor) -> float:
    """Return the root mean square of the relative errors of finite elements."""
    return math.sqrt(_Scale(exact).mean_square(error))


def weights(exact: Tensor) -> Tensor:
    """Return the factors that make absolute errors relative to the exact numbers."""
    return _Scale(exact).weights()


def _difference(a: Tensor, b: Tensor) -> Tensor:
    """Return a - b, 0 if both are the same infinity or NaN."""
    difference = a - b
    if math.isfinite(float(difference.sum())):
        return difference
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, torch.zeros_like(difference), difference)


@cache
def _limits(element: str) -> tuple[float, float] | None:
    """The largest number of a type and its smallest normal one; None for f64."""
    if element == "f64":
        return None
    if element == "f8E4M3B11FNUZ":
        return 1.75, 2.0**-14
    info = torch.finfo(ELEMENT_DTYPES[element])
    return info.max, info.smallest_normal


def _tf32_error(
    run: Evaluator, op: Operation, twin: Operation, sides: Sequence[SideBySide], own: Tensor
) -> Tensor | None:
    """Return the error of a dot whose factors are cut to tf32, or None if they are not cut."""
    dot = tt.Dot.cast(op)
    if dot is None or run.strict_ieee or ir.element_of(dot.a.type) != ir.F32:
        return None
    if dot.input_precision not in (None, "tf32"):
        return None
    a, b, total = sides
    operands: list[TileValue] = [
        _cut(run.dense(side.actual, factor.type))
        for side, factor in zip((a, b), dot.factors, strict=True)
    ]
    operands.append(total.widened(run, dot.accumulator.type))
    followers, run.followers = run.followers, ()
    try:
        (result,) = run_alone(run, twin, operands)
    finally:
        run.followers = followers
    return _difference(run.dense(result, twin.result.type), own)


def _cut(tensor: Tensor) -> Tensor:
    return (tensor.contiguous().view(torch.int32) & _TF32_BITS).view(torch.float32).double()
