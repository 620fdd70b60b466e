"""Advice as text and as JSON (`docs/advise.md` describes its keys)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from tkdebug.advice.records import LaunchCost
from tkdebug.instrument.analyses.advice import PREDICTED, TKDEBUG, Advice, what_bounds
from tkdebug.instrument.json_text import json_text

SCHEMA = 1
SourceLine = Callable[[str, int], str | None]


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
