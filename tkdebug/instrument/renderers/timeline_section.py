"""Timelines of warps: a section of the text report, JSON, and tracks of the Chrome trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath

from tkdebug.errors import Frame
from tkdebug.instrument.analyses.timelines import (
    KernelParts,
    LaunchTimeline,
    LineCycles,
    launch_timeline,
    recorded_timelines,
)
from tkdebug.instrument.records import Launch, RunInfo
from tkdebug.instrument.renderers.trace_tracks import FIRST_WARP_TRACK, track_name
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import format_ns
from tkdebug.terminal.display import cut
from tkdebug.timelines import Span, WarpTimeline

MOST_LAUNCHES = 8
MOST_LINES = 10


def timeline_lines(session: Session, width: int | None) -> Iterator[str]:
    """The section, nothing without timelines."""
    launches = recorded_timelines(session)
    for launch in launches[:MOST_LAUNCHES]:
        yield cut(f"inside launch {launch.launch_id} of {launch.kernel}: {_warps(launch)}", width)
        for line in _inside_lines(session, launch):
            yield cut(f"  {line}", width)
    if len(launches) > MOST_LAUNCHES:
        yield f"… and {len(launches) - MOST_LAUNCHES:,} more launches"


def timeline_text(session: Session, launch: Launch) -> Iterator[str]:
    """Yield the lines of one launch, none if it has no timelines."""
    timeline = launch_timeline(session, launch)
    if timeline is not None:
        yield _warps(timeline)
        yield from _inside_lines(session, timeline)


def _warps(launch: LaunchTimeline) -> str:
    cycles = max(warp.cycles for warp in launch.warps)
    kernel = "" if launch.kernel_ns is None else f" of the kernel's {format_ns(launch.kernel_ns)}"
    return (
        f"{_programs(launch.programs)}, {len(launch.warps)} warps, up to {cycles:,} cycles "
        f"({format_ns(cycles * launch.ns_per_cycle)}{kernel})"
    )


def _inside_lines(session: Session, launch: LaunchTimeline) -> Iterator[str]:
    """Yield the time of a launch by line: shares of the warps' time, or of the kernel's by CUPTI.

    The latter add up to the kernel's time, with time outside of warps in rows of their own.
    """
    parts = launch.parts()
    inside = 1.0 if parts is None else parts.warp_ns / parts.kernel_ns
    lines = launch.lines()
    per_cycle = inside / max(1, sum(warp.cycles for warp in launch.warps))
    for line in lines[:MOST_LINES]:
        yield _row(line.cycles * per_cycle, _line(session, line))
    rest = sum(line.cycles for line in lines[MOST_LINES:])
    if rest:
        yield _row(rest * per_cycle, f"{len(lines) - MOST_LINES} more lines")
    if launch.lost:
        unknown = inside - per_cycle * sum(line.cycles for line in lines)
        text = f"(no room for {launch.lost:,} further readings; choose fewer iterations)"
        yield _row(unknown, text)
    if parts is not None:
        yield from _outside(launch, parts)


def _outside(launch: LaunchTimeline, parts: KernelParts) -> Iterator[str]:
    if round(1000 * parts.others_ns / parts.kernel_ns):
        yield _row(
            parts.others_ns / parts.kernel_ns,
            f"while a warp had not begun or had ended, {format_ns(parts.others_ns)}: others of "
            "these ran (mean of the warps)",
        )
    which, what = "warps", "the launch's begin and end"
    if not launch.has_all_programs:
        which, what = "these warps", f"{what}, and programs without timelines"
    yield _row(
        parts.outside_ns / parts.kernel_ns,
        f"outside of {which}, {format_ns(parts.outside_ns)}: {what} (CUPTI's time less the span "
        f"of {'the' if launch.has_all_programs else 'these'} warps)",
    )


def _row(share: float, text: str) -> str:
    return f"{100 * share:5.1f} %  {text}"


def _line(session: Session, line: LineCycles) -> str:
    place, text = "(before the first op)", ""
    if line.frame is not None:
        place = _place(line.frame)
        text = (session.source_line(line.frame.file, line.frame.line) or "").strip()
    mean = line.cycles / line.visits
    return f"{mean:>9,.0f} cycles x {line.visits:<6,} {place}  {text}".rstrip()


def timeline_object(launch: LaunchTimeline) -> dict[str, object]:
    """A launch's timelines as JSON, without their single readings."""
    parts = launch.parts()
    known = {"kernel_ns": launch.kernel_ns, "warp_ns": None, "others_ns": None, "outside_ns": None}
    return {
        "kernel": launch.kernel,
        "launch_id": launch.launch_id,
        "process": launch.process,
        "programs": launch.programs,
        "has_all_programs": launch.has_all_programs,
        "warps": len(launch.warps),
        "cycles": max(warp.cycles for warp in launch.warps),
        "ns_per_cycle": launch.ns_per_cycle,
        **(known if parts is None else asdict(parts)),
        "lost": launch.lost,
        "lines": [
            {
                "file": None if line.frame is None else line.frame.file,
                "line": None if line.frame is None else line.frame.line,
                "cycles": line.cycles,
                "visits": line.visits,
            }
            for line in launch.lines()
        ],
    }


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


def _place(frame: Frame) -> str:
    return f"{PurePath(frame.file).name}:{frame.line}"


def timeline_events(
    session: Session, run: RunInfo, device_starts_ns: Mapping[tuple[int, int], int]
) -> Iterator[dict[str, object]]:
    """The events of a Chrome trace: a track for each warp.

    Args:
        session: the session.
        run: the run of the session; times are since it began.
        device_starts_ns: the starts of launches on the GPU, if known, by process and id.
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
