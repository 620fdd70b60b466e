"""Timelines of warps: a section of the text report, and tracks of the Chrome trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from tkdebug.errors import Frame
from tkdebug.instrument.durations import format_ns
from tkdebug.instrument.records import RunInfo
from tkdebug.instrument.renderers.trace_tracks import FIRST_WARP_TRACK, track_name
from tkdebug.instrument.session import Session
from tkdebug.instrument.timelines import LaunchTimeline, recorded_timelines
from tkdebug.terminal_style import cut
from tkdebug.timelines.records import Span, WarpTimeline

MOST_LAUNCHES = 8
MOST_LINES = 10


def timeline_lines(session: Session, width: int | None) -> Iterator[str]:
    """The section, nothing without timelines."""
    launches = recorded_timelines(session)
    for launch in launches[:MOST_LAUNCHES]:
        programs = sorted({warp.program for warp in launch.warps})
        cycles = max(warp.cycles for warp in launch.warps)
        yield cut(
            f"inside launch {launch.launch_id} of {launch.kernel}: {_programs(programs)}, "
            f"{len(launch.warps)} warps, up to {cycles:,} cycles "
            f"({format_ns(cycles * launch.ns_per_cycle)})",
            width,
        )
        yield from _lines(session, launch, width)
        if launch.lost:
            yield f"  (no room for {launch.lost:,} further readings; choose fewer iterations)"
    if len(launches) > MOST_LAUNCHES:
        yield f"… and {len(launches) - MOST_LAUNCHES:,} more launches"


def _programs(numbers: Sequence[int]) -> str:
    """Programs by their numbers, runs of them from first to last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    text = ", ".join(" to ".join(map(str, run)) for run in runs)
    return f"program {text}" if len(numbers) == 1 else f"programs {text}"


def _lines(session: Session, launch: LaunchTimeline, width: int | None) -> Iterator[str]:
    lines = launch.lines()
    of = sum(line.cycles for line in lines)
    for line in lines[:MOST_LINES]:
        place, text = "(before the first op)", ""
        if line.frame is not None:
            place = _place(line.frame)
            text = (session.source_line(line.frame.file, line.frame.line) or "").strip()
        share = 100 * line.cycles / of if of else 0.0
        mean = line.cycles / line.visits
        times = f"{mean:>9,.0f} cycles x {line.visits:<6,}"
        yield cut(f"  {share:5.1f} %  {times} {place}  {text}".rstrip(), width)


def _place(frame: Frame) -> str:
    return f"{PurePath(frame.file).name}:{frame.line}"


def timeline_events(
    session: Session, run: RunInfo, device_starts_ns: Mapping[tuple[int, int], int]
) -> Iterator[dict[str, object]]:
    """The events of a Chrome trace: a track for each warp.

    Args:
        session: the session.
        run: that of the session; times are since it began.
        device_starts_ns: when launches began on the GPU, where that is known, by process and id.
    """
    track = FIRST_WARP_TRACK
    for launch in recorded_timelines(session):
        start_ns = device_starts_ns.get((launch.process, launch.launch_id), launch.start_ns)
        for warp in launch.warps:
            name = (
                f"launch {launch.launch_id} {launch.kernel}: program {warp.program}, "
                f"warp {warp.warp}, SM {warp.sm}"
            )
            yield track_name(launch.process, track, name)
            first_ns = start_ns + warp.start_ns - launch.start_ns - run.start_ns
            for span in warp.spans():
                yield _event(launch, warp, span, first_ns, track)
            track += 1


def _event(
    launch: LaunchTimeline, warp: WarpTimeline, span: Span, first_ns: int, track: int
) -> dict[str, object]:
    details: dict[str, object] = {"cycles": span.cycles}
    name = "(before the first op)"
    if span.site is not None:
        name = span.site.op
        details["loops"] = span.site.loops
        if span.site.frames:
            name = f"{_place(span.site.frames[-1])} {span.site.op}"
    # In whole nanoseconds, as viewers round: one span must not begin before the other's end.
    end_cycles = span.start_cycles + span.cycles
    start_ns = first_ns + round(span.start_cycles * launch.ns_per_cycle)
    end_ns = first_ns + round(end_cycles * launch.ns_per_cycle)
    return {
        "ph": "X",
        "name": name,
        "cat": "warp",
        "pid": launch.process,
        "tid": track,
        "ts": start_ns / 1e3,
        "dur": (end_ns - start_ns) / 1e3,
        "args": details,
    }
