"""Texts and JSON of what was measured of launches (`docs/numerics.md` describes its keys)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from tkdebug.instrument.text_forms import json_text
from tkdebug.precision.measured import Finding, KernelNumerics, LineErrors, Output, Share, Verdict

SCHEMA = 1
# Findings and shares that text shows; JSON has all.
_MOST_FINDINGS = 4
_TEXT_WIDTH = 60
_VERDICTS: Mapping[Verdict, str] = {
    "agrees": "it agrees with the reference",
    "precision": "precision is lost here",
    "formula": "the formula is wrong, in fp64 too",
}


def numerics_json(kernels: Sequence[KernelNumerics]) -> str:
    """Return what was measured of some launches as a JSON document."""
    data = {
        "schema": SCHEMA,
        "lines": [_finding_data(kernel, finding) for kernel, finding in _worst(kernels)],
        "kernels": [_kernel_data(kernel) for kernel in kernels],
    }
    return json_text(data, indent=1) + "\n"


def _worst(kernels: Sequence[KernelNumerics]) -> list[tuple[KernelNumerics, Finding]]:
    """The findings of all launches, those of the largest errors first."""
    found = []
    for kernel in kernels:
        errors = {o.name: math.inf if o.not_finite else o.error for o in kernel.outputs}
        found += [(errors[finding.output], kernel, finding) for finding in kernel.findings]
    found.sort(key=lambda each: -each[0])
    return [(kernel, finding) for _, kernel, finding in found]


def _finding_data(kernel: KernelNumerics, finding: Finding) -> dict[str, object]:
    return {"kernel": kernel.kernel, "launch": kernel.launch, **asdict(finding)}


def _kernel_data(kernel: KernelNumerics) -> dict[str, object]:
    data = asdict(kernel)
    data["of"] = data.pop("total")
    data["seconds"] = round(kernel.seconds, 3)
    for line, errors in zip(data["lines"], kernel.lines, strict=True):
        line["causes"] = _causes_of(errors, kernel.outputs)
    return data


def _causes_of(line: LineErrors, outputs: Sequence[Output]) -> list[dict[str, object]]:
    return [
        {"output": output.name, "cause": share.cause, "share": share.share}
        for output in outputs
        for share in output.shares
        if (share.file, share.line) == (line.file, line.line)
    ]


def numerics_text(kernels: Sequence[KernelNumerics]) -> Iterator[str]:
    """Yield a section for each launch: its outputs with what their errors come from, its lines."""
    for kernel in kernels:
        looked_at = f"{kernel.programs:,} of {kernel.total:,} programs"
        if kernel.programs == kernel.total:
            looked_at = "all programs" if kernel.total > 1 else "its program"
        yield f"{kernel.kernel}, launch {kernel.launch}: {looked_at} in fp64, too\n"
        for note in kernel.notes:
            yield f"  note: {note}\n"
        for output in kernel.outputs:
            yield from _output_text(output, kernel.findings)
        yield from _lines_text(kernel.lines, kernel.outputs)


def _output_text(output: Output, findings: Sequence[Finding]) -> Iterator[str]:
    bad = f", {output.not_finite:,} not finite where fp64 is" if output.not_finite else ""
    yield (
        f"\n  {output.name}: relative error {output.error:.2g} "
        f"(largest difference {output.largest:.2g}, {output.elements:,} elements{bad})\n"
    )
    if output.reference is not None:
        against = output.reference
        yield (
            f"    {_VERDICTS[against.verdict]}: against the reference the relative error is "
            f"{against.error:.2g}, in fp64 {against.error_in_fp64:.2g}\n"
        )
    own = [finding for finding in findings if finding.output == output.name]
    for finding in own[:_MOST_FINDINGS]:
        fp32 = "" if finding.as_fp32 is None else f"; in fp32 it would be {finding.as_fp32:.2g}"
        yield (
            f"    {_percent(finding.share)}  line {finding.line}  {finding.cause}: "
            f"{finding.detail}{fp32}\n"
        )


def _lines_text(lines: Sequence[LineErrors], outputs: Sequence[Output]) -> Iterator[str]:
    shown = [line for line in lines if line.exponents is not None]
    if not shown:
        return
    names = [output.name for output in outputs if output.shares]
    yield f"\n  {'line':>6} {'local':>8} {'carried':>8}  {'exponents':>11}"
    yield "".join(f"  {name:>9}" for name in names) + "\n"
    shares = {output.name: _by_line(output.shares) for output in outputs}
    for line in shown:
        assert line.exponents is not None
        low, high = line.exponents
        explained = (shares[name].get((line.file, line.line)) for name in names)
        yield (
            f"  {line.line:6} {_error(line.local)} {_error(line.carried)}  {f'{low} … {high}':>11}"
            + "".join(f"  {'' if part is None else _percent(part):>9}" for part in explained)
            + f"  {line.text[:_TEXT_WIDTH]}\n"
        )


def _by_line(shares: Sequence[Share]) -> Mapping[tuple[str, int], float]:
    found: dict[tuple[str, int], float] = {}
    for share in shares:
        place = share.file, share.line
        found[place] = found.get(place, 0.0) + share.share
    return found


def _error(value: float) -> str:
    return f"{value:8.1e}" if value else f"{'-':>8}"


def _percent(share: float) -> str:
    return f"{share:5.1%}" if abs(share) < 0.0995 else f"{share:5.0%}"
