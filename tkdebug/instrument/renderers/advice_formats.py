"""Advice as text, as JSON (`docs/advise.md` describes its keys), and as a section of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from tkdebug.advice.records import LaunchCost, LineCost
from tkdebug.instrument.analyses.advice import (
    PREDICTED,
    TKDEBUG,
    Advice,
    advice_of,
    launch_costs,
    line_costs,
    measured_ns,
    what_bounds,
)
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import json_text

SCHEMA = 1
SourceLine = Callable[[str, int], str | None]
_MOST_LINES = 20


def advice_data(advice: Sequence[Advice]) -> list[dict[str, object]]:
    """Remarks as JSON has them, the first rank first."""
    return [
        {
            "rank": one.rank,
            "file": one.file,
            "line": one.line,
            "kernel": one.kernel,
            "kind": one.kind,
            "message": one.message,
            "predicted_gain": round(one.predicted_gain, 4),
            "speedup": round(one.speedup, 3),
            "judged": one.judged or None,
            "speedup_launched": round(one.speedup_launched, 3),
            "speedup_filled": round(one.speedup_filled, 3),
            "code": TKDEBUG,
            "times": one.times,
        }
        for one in advice
    ]


def advice_json(advice: Sequence[Advice], costs: Sequence[LaunchCost]) -> str:
    """A document of its own."""
    remarks, launches = advice_data(advice), [asdict(cost) for cost in costs]
    data = {"schema": SCHEMA, "remarks": remarks, "launch_costs": launches}
    return json_text(data, indent=1) + "\n"


def advice_text(
    advice: Sequence[Advice], source_line: SourceLine, costs: Sequence[LaunchCost] = ()
) -> Iterator[str]:
    """A paragraph for each remark, and a line for each kernel that was looked at and has none."""
    times = dict.fromkeys(one.times for one in advice if one.times != PREDICTED)
    if times:
        whose = " and ".join(f"{code}'s" for code in times)
        yield f"Kernels are weighed by times of {whose} code; remarks are about tkdebug's code.\n"
    for one in advice:
        gain = f"  saves {one.saved}" if one.saved else ""
        yield f"{one.rank:3}. {one.file}:{one.line}  {one.kernel}  [{one.kind}]{gain}\n"
        text = source_line(one.file, one.line)
        if text is not None:
            yield f"       {text.strip()}\n"
        yield f"     {one.message}\n"
    named = {one.kernel for one in advice}
    silent = {cost.kernel: cost for cost in reversed(costs) if cost.kernel not in named}
    for kernel, cost in reversed(silent.items()):
        yield f"{kernel}: nothing found that would help; {what_bounds(cost)}\n"
    if not advice and not silent:
        yield "nothing found that would help\n"


def advice_lines(session: Session) -> Iterator[str]:
    """Sections of the report, or nothing if no launch was looked at."""
    costs = launch_costs(session)
    if not costs:
        return
    yield "\nwhat launches move and compute\n"
    times_ns = measured_ns(session)
    for cost in costs:
        yield cost_line(cost, times_ns.get((cost.kernel_hash, cost.grid))) + "\n"
    lines = _worst(line_costs(session))
    if lines:
        yield "\nlines that touch more of memory than they need\n"
    for line in lines:
        yield _line(line) + "\n"
    yield "\nremarks\n"
    yield from advice_text(advice_of(session), session.source_line, costs)


def cost_line(cost: LaunchCost, time_ns: float | None) -> str:
    """Return a line on a launch's bytes and flops, with rates if its time is known."""
    moved = cost.read_bytes + cost.written_bytes
    about = "" if cost.is_exact else "about "
    text = (
        f"  {cost.kernel} {'x'.join(map(str, cost.grid))}: reads {about}{_bytes(cost.read_bytes)}, "
        f"writes {about}{_bytes(cost.written_bytes)}"
    )
    for flops, unit in ((cost.tensor_flops, "tensor core flop"), (cost.flops, "flop")):
        if flops:
            text += f", {_scaled(flops)}{unit}"
    text += f"; occupancy {cost.occupancy_percent:.0f} % by {' and '.join(cost.limited_by)}"
    if time_ns:
        text += f"; {moved / time_ns:.4g} GB/s"
        flops = cost.tensor_flops + cost.flops
        if flops:
            text += f", {flops / time_ns / 1e3:.4g} TFLOP/s"
        roof = f"the roof of an {cost.machine} {cost.ceilings}"
        text += f", {100 * cost.roof_ns / time_ns:.0f} % of {roof}"
    return text


def _worst(lines: Sequence[LineCost]) -> list[LineCost]:
    wasteful = [line for line in lines if line.sectors > 1.5 * line.needed_sectors > 0]
    wasteful += [line for line in lines if line.conflicts > line.requests]
    wasteful.sort(key=lambda line: -line.requests)
    return wasteful[:_MOST_LINES]


def _line(line: LineCost) -> str:
    where = f"  {line.file}:{line.line}  {line.what}{f' of {line.tensor}' if line.tensor else ''}"
    if line.what == "shared":
        return f"{where}: {1 + line.conflicts / max(1.0, line.requests):.3g} wavefronts an access"
    return (
        f"{where}: {line.sectors:.3g} sectors a request, {line.needed_sectors:.2g} needed; "
        f"{line.width_bytes} bytes a thread"
    )


def _bytes(count: int) -> str:
    return f"{_scaled(count)}B"


def _scaled(count: float) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if count < 1000 or prefix == "T":
            return f"{count:.4g} {prefix}"
        count /= 1000
    raise AssertionError(count)
