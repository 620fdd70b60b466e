"""From the errors of ops and the worlds of outputs to lines, shares and findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.causes.comparison import tolerances_of_type
from tkdebug.compiler.ir import Operation
from tkdebug.precision.error_causes import Cause
from tkdebug.precision.measured import (
    AgainstReference,
    Finding,
    KernelNumerics,
    LineErrors,
    Output,
    Share,
    Verdict,
)
from tkdebug.precision.op_errors import (
    CANCELS,
    REST,
    AsFp32,
    Flow,
    Known,
    OpError,
    OpErrors,
    Place,
    Source,
    Unrounded,
    place_of,
    relative_error,
    weights,
)
from tkdebug.process.named_files import source_line

if TYPE_CHECKING:
    from tkdebug.precision.looking import Written

# Shares below this are no finding.
_LEAST_SHARE = 0.02
# A cancellation counts where the output's error, too, is that much larger than its operands'.
_REACHES_OUTPUT = CANCELS / 2
_LEAST_FLOW = 0.5
# A cancellation comes before what it lets grow.
_FIRST = 1.0 + 1e-9
# Making numbers whole counts as rounding only if it changes an output by no more than this.
_MOST_UNROUNDED = 0.1
# If a term is that much smaller than what it is added to, most of its digits are lost.
_ABSORBED = 2.0**-8
# Of at least so many roundings, the part that goes to one side where rounding is biased.
_BIASED, _BIASED_OF = 0.9, 64
_ROUNDING_CAUSES: tuple[Cause, ...] = ("storage", "rounding")


def kernel_numerics(
    kernel: str,
    launch: int,
    grid: tuple[int, int, int],
    programs: tuple[int, int],
    errors: OpErrors,
    written: Sequence[Written],
    notes: Sequence[str],
    seconds: float,
) -> KernelNumerics:
    """Return the record of a launch's errors: its outputs, lines and findings.

    Args:
        kernel: its name.
        launch: its id.
        grid: programs along x, y, z.
        programs: how many ran, and how many there are.
        errors: the errors of its ops.
        written: the tensors that it wrote.
        notes: what was left out.
        seconds: the seconds of processor time that it took.
    """
    by_place = _by_place(errors.by_op)
    biased = _biased(errors)
    absorbing = frozenset(
        place for place, ops in by_place.items() if any(op.absorbs <= _ABSORBED for op in ops)
    )
    outputs, findings = [], []
    for each in written:
        worlds = dict(each.elements.worlds)
        exact = worlds.pop(None)
        measure = _Measure(each.elements.actual, exact, worlds)
        output = _output(each, measure, exact, biased, absorbing)
        outputs.append(output)
        findings += _findings(output, measure, by_place)
    order = {output.name: output.error for output in outputs}
    findings.sort(key=lambda finding: -order[finding.output])
    ran, total = programs
    return KernelNumerics(
        kernel,
        launch,
        grid,
        ran,
        total,
        tuple(sorted(outputs, key=lambda output: -output.error)),
        tuple(_line(place, ops) for place, ops in by_place.items()),
        tuple(findings),
        tuple(notes),
        seconds,
    )


class _Measure:
    """The error of an output, and the part of it that each world makes."""

    def __init__(self, actual: Tensor, exact: Tensor, worlds: Mapping[Any, Tensor]) -> None:
        self.worlds = worlds
        is_finite = exact.isfinite()
        good = actual.isfinite() & is_finite
        self.bad = is_finite ^ good
        self.has_bad = bool(self.bad.any())
        # Where all are finite, nothing is picked.
        self._good = None if bool(good.all()) else good
        self._exact = exact
        self._weights = self._picked(weights(exact))
        self.absolute = self._picked(actual - exact)
        self.relative = self.absolute * self._weights
        self.error = _rms(self.relative)
        self._whole = float(self.relative.square().sum())
        self._known: dict[Any, Tensor] = {}

    def _picked(self, values: Tensor) -> Tensor:
        return values if self._good is None else values[self._good]

    def of(self, world: Any) -> Tensor:
        """Return the relative errors of a world's finite elements."""
        found = self._known.get(world)
        if found is None:
            part = self._picked(self.worlds[world] - self._exact)
            if not math.isfinite(float(part.sum())):
                part = torch.nan_to_num(part, nan=0.0, posinf=0.0, neginf=0.0)
            found = self._known[world] = part * self._weights
        return found

    def share(self, world: Any) -> float:
        """Return the part of the error that a world makes, to first order.

        If the output has infinities or NaNs, it is the part of these that the world has, too.
        """
        if self.has_bad:
            return float((~self.worlds[world][self.bad].isfinite()).double().mean())
        whole = self._whole
        return float((self.of(world) * self.relative).sum()) / whole if whole else 0.0


def _rms(values: Tensor) -> float:
    return math.sqrt(float(values.square().mean())) if values.numel() else 0.0


def _output(
    written: Written,
    measure: _Measure,
    exact: Tensor,
    biased: frozenset[Source],
    absorbing: frozenset[Place],
) -> Output:
    shares = []
    for world in measure.worlds:
        if isinstance(world, Source):
            cause: Cause = "biased" if world in biased else world.cause
            without = _rms(measure.relative - measure.of(world))
            shares.append(Share(*world.place, cause, measure.share(world), without))
    rest = measure.share(REST) if REST in measure.worlds else 0.0
    shares.sort(key=lambda share: -abs(share.share))
    absolute = measure.absolute
    return Output(
        written.name,
        int(written.elements.places.numel()),
        measure.error,
        float(absolute.abs().max()) if absolute.numel() else 0.0,
        int(measure.bad.sum()),
        tuple(shares),
        math.fsum((rest, *(share.share for share in shares))),
        rest,
        _against_reference(written, exact),
    )


def _against_reference(written: Written, exact: Tensor) -> AgainstReference | None:
    expected = written.expected
    if expected is None:
        return None
    rtol, atol = tolerances_of_type(written.dtype)

    def agrees(found: Tensor) -> bool:
        return bool(torch.isclose(found, expected, rtol, atol, equal_nan=True).all())

    verdict: Verdict = "agrees"
    if not agrees(exact):
        verdict = "formula"
    elif not agrees(written.elements.actual):
        verdict = "precision"
    each = (
        relative_error(found - expected, expected) for found in (written.elements.actual, exact)
    )
    return AgainstReference(verdict, *each)


def _findings(
    output: Output, measure: _Measure, by_place: Mapping[Place, Sequence[OpError]]
) -> list[Finding]:
    """The lines that make an output's error, and those that would on a GPU, the worst first."""
    measured = 1.0 if output.not_finite else output.error**2
    found = []
    cancelled = _cancellation(output, measure, by_place)
    first = output.shares[0] if output.shares else None
    is_contracted = first is not None and first.cause == "contraction"
    if cancelled is not None and not is_contracted:
        found.append((measured * cancelled.share * _FIRST, cancelled))
    for share in output.shares:
        place = Place(share.file, share.line)
        as_fp32 = None
        if AsFp32(place) in measure.worlds and not output.not_finite:
            as_fp32 = _rms(measure.of(AsFp32(place)))
        finding = Finding(
            *(output.name, *place, share.cause, share.share, _DETAILS[share.cause], as_fp32)
        )
        found.append((measured * share.share, finding))
    total = measured
    for finding, size in () if output.not_finite else _beyond(output, measure):
        found.append((size**2, finding))
        total += size**2
    found.sort(key=lambda each: -each[0])
    return [
        replace(finding, share=min(weight / total, 1.0))
        for weight, finding in found
        if weight >= _LEAST_SHARE * total > 0
    ]


def _beyond(output: Output, measure: _Measure) -> Iterator[tuple[Finding, float]]:
    """Yield findings about changes of the output that are no error against fp64, with sizes."""
    for world in measure.worlds:
        if isinstance(world, Known):
            size = _rms(measure.of(world))
            text = (
                "on a GPU it is approximated, with errors up to those of the PTX ISA and the CUDA "
                f"guide, which come to {size:.2g} here; interpreted it is exact"
            )
            yield Finding(output.name, *world.place, "approximate", 1.0, text), size
        elif isinstance(world, Unrounded):
            size = _rms(measure.of(world))
            if size <= _MOST_UNROUNDED:
                text = "what is after the point is left out, so that numbers go to one side"
                yield Finding(output.name, *world.place, "biased", 1.0, text), size


def _cancellation(
    output: Output, measure: _Measure, by_place: Mapping[Place, Sequence[OpError]]
) -> Finding | None:
    """The line whose differences let the output's error grow most, if there is one."""
    best: tuple[float, Place, float, float] | None = None
    for world in measure.worlds:
        if not isinstance(world, Flow) or output.not_finite:
            continue
        share = measure.share(world)
        for op in by_place[world.place]:
            if op.amplified < CANCELS or not op.brought:
                continue
            reaches = output.error / math.sqrt(op.brought / op.elements)
            if share < _LEAST_FLOW or reaches < _REACHES_OUTPUT:
                continue
            if best is None or op.amplified > best[0]:
                best = op.amplified, world.place, share, reaches
    if best is None:
        return None
    amplified, place, share, _ = best
    return Finding(
        *(output.name, *place, "cancellation", share),
        f"numbers that are nearly equal are subtracted: relative errors grow {amplified:.3g} times",
    )


_DETAILS: Mapping[Cause, str] = {
    "storage": "rounded to the type that it is kept in",
    "accumulator": "summed up in a type narrower than fp32",
    "tf32": "factors of the product are cut to tf32",
    "contraction": "this product is rounded before it is added, the other one is not",
    "order": "each partial sum is rounded",
    "approximate": "the function is approximated",
    "cancellation": "numbers that are nearly equal are subtracted",
    "overflow": "numbers are larger than the type's largest",
    "underflow": "numbers are smaller than the type's smallest with all digits",
    "biased": "rounded to one side",
    "rounding": "rounded",
}


def _by_place(by_op: Mapping[Operation, OpError]) -> dict[Place, list[OpError]]:
    found: dict[Place, list[OpError]] = {}
    for op, error in by_op.items():
        found.setdefault(place_of(op), []).append(error)
    return dict(sorted(found.items()))


def _biased(errors: OpErrors) -> frozenset[Source]:
    """The lines and causes of rounding that goes to one side."""
    sides: dict[Source, list[OpError]] = {}
    for op, error in errors.by_op.items():
        place, cause = errors.source(op)
        if cause in _ROUNDING_CAUSES:
            sides.setdefault(Source(place, cause), []).append(error)
    found = set()
    for source, ops in sides.items():
        moved = sum(op.moved for op in ops)
        down = sum(op.downward for op in ops)
        if moved >= _BIASED_OF and not (1 - _BIASED) * moved < down < _BIASED * moved:
            found.add(source)
    return frozenset(found)


def _line(place: Place, ops: Sequence[OpError]) -> LineErrors:
    counted = [op for op in ops if op.elements]
    local = math.sqrt(math.fsum(op.local / op.elements for op in counted))
    carried = max((math.sqrt(op.carried / op.elements) for op in counted), default=0.0)
    lows = [op.low for op in ops if op.low is not None]
    highs = [op.high for op in ops if op.high is not None]
    return LineErrors(
        *place,
        source_line(*place).strip(),
        local,
        carried,
        max((op.amplified for op in ops), default=0.0),
        (min(lows), max(highs)) if lows else None,
    )
