"""What a text report has of advice: what launches move and compute, and the remarks.

Rates are given where a launch's time is true: of kernels that ran on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tkdebug.advice.records import LaunchCost, LineCost
from tkdebug.instrument.analyses.advice import advice_of, launch_costs, line_costs, measured_ns
from tkdebug.instrument.renderers.advice_formats import advice_text
from tkdebug.instrument.session import Session

_MOST_LINES = 20


def advice_lines(session: Session) -> Iterator[str]:
    """Sections of the report, nothing where no launch was looked at."""
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
    """What a launch moves and computes; rates where its time on a GPU is known."""
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
