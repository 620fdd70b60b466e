"""Measurements by plugins, added up by source line over all launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tkdebug.errors import Frame, shown_path
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.session import Session
from tkdebug.watches.records import Instrumented


@dataclass(slots=True)
class InstrumentedLine:
    """A plugin's measurements of one op, over all launches.

    Attributes:
        launches: the number of launches.
        seen: as in `Instrumented`, like `measured` and `totals`.
    """

    plugin: str
    kernel: str
    op: str
    frames: tuple[Frame, ...]
    launches: int = 0
    seen: int = 0
    measured: int = 0
    totals: Counter[str] = field(default_factory=Counter)


def instrumented_lines(session: Session) -> list[InstrumentedLine]:
    """Return the measurements of all plugins, by plugin and line."""
    found: dict[object, InstrumentedLine] = {}
    since = 0
    while page := session.records(Instrumented, since):
        since = page[-1].seq
        for one in (row.event for row in page):
            key = one.plugin, one.kernel, one.op, one.frames
            line = found.setdefault(key, InstrumentedLine(*key))
            line.launches += 1
            line.seen += one.seen
            line.measured += one.measured
            line.totals.update(one.totals)
    return sorted(
        found.values(),
        key=lambda one: (one.plugin, one.frames[-1].file, one.frames[-1].line, one.op),
    )


def instrumented_text(session: Session) -> Iterator[str]:
    """Yield the measurements as lines of text, those of each plugin under its name."""
    plugin = ""
    for one in instrumented_lines(session):
        if one.plugin != plugin:
            plugin = one.plugin
            yield f"measured by {plugin}"
        frame = one.frames[-1]
        numbers = ", ".join(f"{name} {value:,.6g}" for name, value in one.totals.items())
        times = counted(one.measured, "time") + f" in {counted(one.launches, 'launch')}"
        lost = f" of {one.seen:,}: there was no room for more" if one.seen > one.measured else ""
        place = f"{shown_path(frame.file)}:{frame.line} {one.op} of {one.kernel}"
        yield f"  {place}: {numbers}; {times}{lost}"
