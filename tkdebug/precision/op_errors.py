"""The errors of ops while a launch runs in fp64 beside itself: local and carried, and by cause.

An op's local error is its result less what fp64 makes of the operands that it got; its carried
error is what fp64 makes of these less what it makes of exact ones. Both are relative: to each
element, or to a hundredth of the tile's root mean square where that is more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import tkdebug
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules import run_alone
from tkdebug.interpreter.tiles.forms import ELEMENT_DTYPES
from tkdebug.interpreter.tiles.side_by_side import SideBySide
from tkdebug.interpreter.tiles.values import TileValue
from tkdebug.precision.error_causes import (
    Cause,
    cause_of,
    fma_of,
    is_fixed,
    known_error,
    may_cancel,
)

# Of the root mean square: elements below it count as that large. Where numbers cancel, all that a
# tile has are small: a difference that is small by chance is none.
_FLOOR, _CANCELLED_FLOOR = 0.01, 0.1
# How much larger the relative error of a sum has to be than that of its operands for it to count as
# the difference of nearly equal numbers.
CANCELS = 8.0
_TF32_BITS = -8192
_SIGN_BIT = 20
_PACKAGE = str(Path(tkdebug.__file__).parent)


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
class AsFp32:
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


World = Source | Flow | AsFp32 | Known | Unrounded


@dataclass(slots=True)
class OpError:
    """The errors of an op's results in a run.

    Attributes:
        elements: how many results there were.
        local, carried: sums of squares of relative errors.
        brought: the same of its operands' errors, where it adds up.
        amplified: the most by which its operands' relative error grew.
        low, high: exponents of the smallest and largest number that is not 0; None without one.
        not_finite: results that are, where fp64 has a number.
        absorbs: the least ratio of the smaller term of an addition to the larger one.
        downward, moved: of those that were rounded, how many toward 0, and how many there are.
    """

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

    def note_range(self, values: Tensor) -> None:
        """Widen the range of exponents."""
        size = values.abs()
        size = size[(size > 0) & size.isfinite()]
        if not size.numel():
            return
        low, high = (math.frexp(float(each))[1] - 1 for each in size.aminmax())
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)


@dataclass(slots=True)
class OpErrors:
    """The errors of all ops of a launch, by op.

    Attributes:
        tried: lines of which it is measured what they would do in fp32.
    """

    tried: frozenset[Place] = frozenset()
    by_op: dict[Operation, OpError] = field(default_factory=dict)
    _causes: dict[Operation, tuple[Place, Cause]] = field(default_factory=dict)
    _known_errors: dict[Operation, float] = field(default_factory=dict)

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
            place: of the result.
            sides: of its operands.
            result: on all sides but for its own errors.
            own: what fp64 makes of the operands that the op got.
        """
        type_ = op.results[place].type
        actual, exact = result.widened(run, type_), result.exact
        assert exact is not None
        local = _difference(actual, own)
        noted = self._noted(op)
        known = self._known(op)
        noted.elements += actual.numel()
        noted.note_range(actual)
        carries = exact is not own
        makes = bool(local.any())
        if not carries and not makes and not known:
            result.exact = None  # as the kernel has it
            return
        worlds = dict(result.worlds)
        if known:
            # To either side, as their signs are not known: by a bit of the number.
            sides_of_bits = ((own.view(torch.int64) >> _SIGN_BIT) & 1) * 2 - 1
            worlds[Known(self._cause(op)[0])] = exact + known * own * sides_of_bits
        if carries:
            brought = _difference(own, exact)
            noted.carried += _mean_square(brought, exact) * actual.numel()
            if may_cancel(op):
                after = _mean_square(brought, exact, _CANCELLED_FLOOR)
                self._note_cancellation(run, op, sides, after, actual.numel(), noted)
                if noted.amplified >= CANCELS:
                    worlds[Flow(self._cause(op)[0])] = own
        if makes:
            noted.local += _mean_square(local, own) * actual.numel()
            noted.not_finite += int((~actual.isfinite() & own.isfinite()).sum())
            self._note_sides(noted, local, own)
            is_sum = arith.AddF.matches(op) or arith.SubF.matches(op)
            if is_sum and not any(map(is_fixed, op.operands)):
                _note_terms(noted, *(side.widened(run, type_) for side in sides))
            for world, part in self._parts(run, op, twin, sides, type_, actual, own, local):
                worlds[world] = worlds.get(world, exact) + part
            for tried in self.tried:
                part = own.float().double() - own if tried == self._cause(op)[0] else local
                worlds[AsFp32(tried)] = worlds.get(AsFp32(tried), exact) + part
        result.worlds = worlds

    def loaded(self, run: Evaluator, op: Operation, type_: ir.Type, result: SideBySide) -> None:
        """Note what was loaded from memory that the launch wrote."""
        noted, exact = self._noted(op), result.exact
        assert exact is not None
        actual = result.widened(run, type_)
        noted.elements += actual.numel()
        noted.carried += _mean_square(_difference(actual, exact), exact) * actual.numel()
        noted.note_range(actual)

    def of_memory(self, op: Operation, own: Tensor) -> dict[World, Tensor]:
        """Return the worlds of the errors that an atomic makes in memory."""
        own = torch.nan_to_num(own)
        if not bool(own.any()):
            return {}
        source = Source(*self._cause(op))
        found: dict[World, Tensor] = {source: own}
        found |= {AsFp32(place): own for place in self.tried if place != source.place}
        return found

    def _noted(self, op: Operation) -> OpError:
        noted = self.by_op.get(op)
        if noted is None:
            noted = self.by_op[op] = OpError()
        return noted

    def _cause(self, op: Operation) -> tuple[Place, Cause]:
        found = self._causes.get(op)
        if found is None:
            cause = cause_of(op)
            # Of two products the fma has rounded one, and not the other.
            at = fma_of(op) if cause == "contraction" else op
            found = self._causes[op] = place_of(at or op), cause
        return found

    def _known(self, op: Operation) -> float:
        found = self._known_errors.get(op)
        if found is None:
            found = self._known_errors[op] = known_error(op)
        return found

    def _note_cancellation(
        self,
        run: Evaluator,
        op: Operation,
        sides: Sequence[SideBySide],
        after: float,
        elements: int,
        noted: OpError,
    ) -> None:
        before = 0.0
        for side, value in zip(sides, op.operands, strict=True):
            if side.exact is not None:
                error = _difference(side.widened(run, value.type), side.exact)
                before = max(before, _mean_square(error, side.exact, _CANCELLED_FLOOR))
        noted.brought += before * elements
        if before > 0:
            noted.amplified = max(noted.amplified, math.sqrt(after / before))

    def _note_sides(self, noted: OpError, local: Tensor, own: Tensor) -> None:
        signs = torch.sign(local) * torch.sign(own)
        noted.moved += int((signs != 0).sum())
        noted.downward += int((signs < 0).sum())

    def _parts(
        self,
        run: Evaluator,
        op: Operation,
        twin: Operation,
        sides: Sequence[SideBySide],
        type_: ir.Type,
        actual: Tensor,
        own: Tensor,
        local: Tensor,
    ) -> list[tuple[World, Tensor]]:
        """The op's own errors, apart by cause."""
        line, cause = self._cause(op)
        found: list[tuple[World, Tensor]] = []
        limits = _limits(str(ir.element_of(type_)))
        if limits is not None:
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


def _note_terms(noted: OpError, a: Tensor, b: Tensor) -> None:
    a, b = a.abs(), b.abs()
    larger = float(torch.maximum(a, b).nan_to_num(0.0, 0.0, 0.0).mean())
    smaller = float(torch.minimum(a, b).nan_to_num(0.0, 0.0, 0.0).mean())
    if larger:
        noted.absorbs = min(noted.absorbs, smaller / larger)


def place_of(op: Operation) -> Place:
    """Return the line of an op: where it is in a function of tkdebug's, the line that calls it."""
    frames = op.location.frames
    for frame in reversed(frames):
        if not frame.file.startswith(_PACKAGE):
            return Place(frame.file, frame.line)
    return Place(frames[0].file, frames[0].line)


def relative_error(error: Tensor, exact: Tensor) -> float:
    """Return the root mean square of the relative errors of finite elements."""
    return math.sqrt(_mean_square(error, exact))


def weights(exact: Tensor, least: float = _FLOOR) -> Tensor:
    """Return the factors that make absolute errors relative."""
    size = torch.nan_to_num(exact, nan=0.0, posinf=0.0, neginf=0.0).abs()
    floor = least * float(size.square().mean().sqrt())
    return 1.0 / (size + floor) if floor else torch.ones_like(size)


def _mean_square(error: Tensor, exact: Tensor, least: float = _FLOOR) -> float:
    if not error.numel():
        return 0.0
    error = torch.nan_to_num(error, nan=0.0, posinf=0.0, neginf=0.0)
    return float((error * weights(exact, least)).square().mean())


def _difference(a: Tensor, b: Tensor) -> Tensor:
    """Return a - b, 0 if both are the same infinity or NaN."""
    difference = a - b
    if bool(torch.isfinite(difference.sum())):
        return difference
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, torch.zeros_like(difference), difference)


@cache
def _limits(element: str) -> tuple[float, float] | None:
    """The largest number of a type, and the smallest that has all its digits."""
    if element == "f64":
        return None
    if element == "f8E4M3B11FNUZ":
        return 1.75, 2.0**-14
    info = torch.finfo(ELEMENT_DTYPES[element])
    return info.max, info.smallest_normal


def _tf32_error(
    run: Evaluator, op: Operation, twin: Operation, sides: Sequence[SideBySide], own: Tensor
) -> Tensor | None:
    """Return what a dot loses as tensor cores read the upper bits of its factors; None for 0."""
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
