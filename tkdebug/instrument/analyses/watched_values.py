"""The values that a run recorded in its kernels.

They are watched values, by watched variable, and measurements by plugins, added up by source line
over all launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tkdebug.errors import Frame, shown_path
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.tables import Recorded
from tkdebug.watches.records import (
    Instrumented,
    WatchCount,
    WatchedValue,
    program_text,
    summary_text,
)


@dataclass(slots=True)
class WatchedName:
    """The values of one variable at one place of one kernel.

    Attributes:
        watch: the watch as it was asked for.
        frames: call chain of the line, outermost first.
        values: the values by launch, program and iteration.
    """

    watch: str
    kernel: str
    name: str
    type: str
    frames: tuple[Frame, ...]
    values: list[Recorded[WatchedValue]] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The watched variable, in one line."""
        frame = self.frames[-1]
        number = counted(len(self.values), "value")
        return f"{shown_path(frame.file)}:{frame.line} {self.name}: {self.type}, {number}"


def recorded_values(session: Session, since: int = 0) -> Iterator[Recorded[WatchedValue]]:
    """Yield the values after number `since`, in the order in which they were recorded."""
    while page := session.records(WatchedValue, since):
        yield from page
        since = page[-1].seq


def values_since(session: Session, since: int, most: int) -> Iterator[Recorded[WatchedValue]]:
    """Yield at most `most` values after number `since`."""
    for recorded, _ in zip(recorded_values(session, since), range(most), strict=False):
        yield recorded


def watched_names(session: Session) -> list[WatchedName]:
    """The variables that were watched, by line."""
    found: dict[object, WatchedName] = {}
    for recorded in recorded_values(session):
        value = recorded.event
        key = value.watch, value.kernel, value.frames, value.type
        if key not in found:
            found[key] = WatchedName(
                value.watch, value.kernel, value.name, value.type, value.frames
            )
        found[key].values.append(recorded)
    for one in found.values():
        one.values.sort(
            key=lambda recorded: (recorded.rank, recorded.process, recorded.event.order)
        )
    return sorted(found.values(), key=lambda one: (one.frames[-1].file, one.frames[-1].line))


def lost_values(session: Session) -> dict[str, tuple[int, int]]:
    """Return for each watch that lost values how many it kept and how many there were."""
    found: dict[str, tuple[int, int]] = {}
    for recorded in session.records(WatchCount):
        count = recorded.event
        kept, seen = found.get(count.watch, (0, 0))
        found[count.watch] = kept + count.kept, seen + count.seen
    return {watch: (kept, seen) for watch, (kept, seen) in found.items() if kept < seen}


def value_line(value: WatchedValue) -> str:
    """Return a line on a value: its program and iteration, and its summary."""
    where = f"launch {value.launch_id}, program {program_text(value.program_id)}"
    return f"{where}, iteration {value.iteration}: {summary_text(value)}"


def watched_lines(session: Session, most: int) -> Iterator[str]:
    """Yield the watched values as text, at most `most` values for each variable."""
    lost = lost_values(session)
    for one in watched_names(session):
        yield one.title
        for recorded in one.values[:most]:
            rank = f"rank {recorded.rank}, " if recorded.rank else ""
            yield f"  {rank}{value_line(recorded.event)}"
        if len(one.values) > most:
            yield f"  … and {counted(len(one.values) - most, 'more value')}"
        if one.watch in lost:
            kept, seen = lost[one.watch]
            yield f"  {kept:,} of {seen:,} values were kept: there was no room for more"


@dataclass(slots=True)
class InstrumentedLine:
    """A plugin's measurements of one op, over all launches.

    Attributes:
        launches: the number of launches.
        seen: the sum of `Instrumented.seen` over the launches; so are `measured` and `totals`.
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
