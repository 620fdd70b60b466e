"""Advice as text and as JSON (`docs/advise.md` describes its keys)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tkdebug.advice.records import LaunchCost
from tkdebug.instrument.analyses.advice import Advice
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
        }
        for one in advice
    ]


def advice_json(advice: Sequence[Advice]) -> str:
    """A document of its own."""
    return json_text({"schema": SCHEMA, "remarks": advice_data(advice)}, indent=1) + "\n"


def advice_text(
    advice: Sequence[Advice], source_line: SourceLine, costs: Sequence[LaunchCost] = ()
) -> Iterator[str]:
    """A paragraph for each remark, and a line for each kernel that was looked at and has none."""
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
        yield (
            f"{kernel}: nothing found that would help; it is bound by {cost.bound}, "
            f"{100 * cost.bound_share:.0f} % of its predicted time\n"
        )
    if not advice and not silent:
        yield "nothing found that would help\n"
