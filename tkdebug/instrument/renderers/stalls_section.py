"""Waits of warps, as a section of the text report and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath

from tkdebug.instrument.analyses.stalls import (
    MEANINGS,
    InstructionStalls,
    KernelStalls,
    LineStalls,
    recorded_stalls,
)
from tkdebug.instrument.session import Session
from tkdebug.terminal.display import cut

MOST_KERNELS = 10
MOST_LINES = 8
_MOST_REASONS = 3
_LEAST_SHARE = 0.005


def stalls_lines(session: Session, width: int | None) -> Iterator[str]:
    """The section, nothing where nothing was sampled."""
    stalls = recorded_stalls(session)
    if stalls is None:
        return
    counted = sum(kernel.samples for kernel in stalls.kernels)
    yield f"where warps wait, by {counted:,} samples of program counters"
    if stalls.dropped:
        yield f"warning: the GPU had no room for {stalls.dropped:,} further samples"
    for kernel in stalls.kernels[:MOST_KERNELS]:
        yield cut(f"{_percent(kernel.samples, counted)}  {kernel.kernel}", width)
        if not kernel.lines:
            yield cut(f"          {_reasons(kernel.reasons, kernel.samples)}", width)
        shown = [one for one in kernel.lines if one.samples >= _LEAST_SHARE * kernel.samples]
        for line in shown[:MOST_LINES]:
            yield from _line(session, line, kernel, width)
    left = len(stalls.kernels) - MOST_KERNELS
    if left > 0:
        yield f"… and {left:,} more kernels"


def _line(
    session: Session, line: LineStalls, kernel: KernelStalls, width: int | None
) -> Iterator[str]:
    place, text = "(no line)", ""
    if line.frame is not None:
        place = f"{PurePath(line.frame.file).name}:{line.frame.line}"
        text = (session.source_line(line.frame.file, line.frame.line) or "").strip()
    yield cut(f"  {_percent(line.samples, kernel.samples)}  {place}  {text}".rstrip(), width)
    yield cut(f"          {_reasons(line.reasons, line.samples)}", width)


def _reasons(reasons: Mapping[str, int], of: int) -> str:
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    return ", ".join(
        f"{name.replace('_', ' ')} {100 * count / of:.0f} %"
        + (f" ({MEANINGS[name]})" if name in MEANINGS else "")
        for name, count in ordered[:_MOST_REASONS]
    )


def _percent(part: int, of: int) -> str:
    return f"{100 * part / of if of else 0:5.1f} %"


def kernel_object(kernel: KernelStalls) -> dict[str, object]:
    """One kernel's samples as JSON."""
    return {
        "kernel": kernel.kernel,
        "kernel_hash": kernel.kernel_hash,
        "samples": kernel.samples,
        "reasons": dict(kernel.reasons),
        "lines": [
            {
                "file": None if line.frame is None else line.frame.file,
                "line": None if line.frame is None else line.frame.line,
                "function": None if line.frame is None else line.frame.function,
                "samples": line.samples,
                "reasons": dict(line.reasons),
            }
            for line in kernel.lines
        ],
        "instructions": [_instruction_object(one) for one in kernel.instructions],
    }


def _instruction_object(stalls: InstructionStalls) -> dict[str, object]:
    instruction = stalls.instruction
    return {
        "address": stalls.address,
        "sass": None if instruction is None else instruction.text,
        "op": None if instruction is None else instruction.op_id,
        "samples": stalls.samples,
        "reasons": dict(stalls.reasons),
    }
