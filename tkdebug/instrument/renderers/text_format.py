"""The report as text: run, kernels by time, scopes, tunings, faults with source line and hint.

Scopes are a tree, each with the times of all launches below it. Sentences say how far times on the
GPU can be trusted: clocks that changed while kernels ran, reasons that slowed the GPU down, records
that were lost. No text from a session acts on the terminal (`terminal.text`).
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tkdebug.fault_printing import text as fault_text
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.analyses.checked_launches import checked_text, differing_checks
from tkdebug.instrument.analyses.compiled_models import model_text, uncompiled_text
from tkdebug.instrument.analyses.kernel_names import activity_name
from tkdebug.instrument.analyses.origin_totals import OriginTotal, origin_totals
from tkdebug.instrument.analyses.ranks import compare_ranks
from tkdebug.instrument.analyses.watched_values import instrumented_text, watched_lines
from tkdebug.instrument.device_records import ActivityTotal, GpuState, LostActivities
from tkdebug.instrument.recording.nvml import slowdown_names
from tkdebug.instrument.records import (
    SCOPE_SEPARATOR,
    FaultGroup,
    KernelSummary,
    RunInfo,
    ScopeSummary,
)
from tkdebug.instrument.renderers.advice_formats import advice_lines
from tkdebug.instrument.renderers.fault_section import fault_lines
from tkdebug.instrument.renderers.ranks_formats import ranks_text
from tkdebug.instrument.renderers.stalls_section import stalls_lines
from tkdebug.instrument.renderers.timeline_section import timeline_lines
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.tables import Recorded
from tkdebug.instrument.text_forms import format_ns, table_lines
from tkdebug.records.events import AutotuneChoice
from tkdebug.terminal.display import PLAIN_VIEW, View, cut
from tkdebug.terminal.text import visible, visible_line

MAX_OTHERS = 30
# Values of one variable.
MAX_WATCHED = 100
MAX_NAME_CHARS = 100
MAX_LINES = 200
# A GPU that boosts as it should stays within a step or two of 15 MHz.
NOTABLE_SHARE = 0.05


def render(
    session: Session, faults: tuple[FaultGroup, ...], view: View = PLAIN_VIEW
) -> Iterator[str]:
    """The report in pieces of text."""
    yield visible(run_line(session.run())) + "\n"
    summaries = session.kernel_summaries()
    if summaries:
        yield "\n"
        for line in _kernel_table(summaries, view.width):
            yield visible(line) + "\n"
        if "interpret" in session.run().mode:
            yield "times of interpreted kernels are the CPU's and say nothing about a GPU's\n"
        checked = checked_text(session)
        if checked:
            yield f"{counted(session.launch_count(), 'launch')}, {checked}\n"
        for line in differing_checks(session):
            yield visible_line(line) + "\n"
        for line in _source_lines(session):
            yield line + "\n"
    else:
        yield "\nno kernels were launched\n"
    for section in (model_text, uncompiled_text):
        lines = [*section(session)]
        if lines:
            yield "\n"
        yield from (visible_line(line) + "\n" for line in lines)
    _, totals = session.other_totals()
    if totals:
        yield "\nalso on the GPU, launched by others\n"
        for line in _other_lines(totals, view.width):
            yield visible(line) + "\n"
    origins = origin_totals(session)
    if origins:
        yield "\nof these, by the line that launched them\n"
        for line in _origin_lines(origins, view.width):
            yield visible(line) + "\n"
    for warning in gpu_warnings(session):
        yield f"warning: {visible_line(warning)}\n"
    for wide_section in (stalls_lines, timeline_lines):
        lines = list(wide_section(session, view.width))
        if lines:
            yield "\n"
        for line in lines:
            yield visible_line(line) + "\n"
    scopes = session.scope_summaries()
    if scopes:
        yield "\n"
        for line in scope_lines(scopes, view.width):
            yield visible(line) + "\n"
    for tuning in recorded_tunings(session):
        yield "\n"
        for line in _tuning_lines(tuning):
            yield visible(line) + "\n"
    if session.rank_count() > 1:
        yield "\n"
        for line in ranks_text(compare_ranks((session,)), view.width):
            yield visible(line)
    for line in advice_lines(session):
        yield visible(line)
    for line in instrumented_text(session):
        yield ("" if line.startswith(" ") else "\n") + visible_line(line) + "\n"
    watched = list(watched_lines(session, MAX_WATCHED))
    if watched:
        yield "\nwatched values\n"
    for line in watched:
        yield visible_line(line) + "\n"
    counting = [group for group in faults if group.fault.is_open]
    yield f"\n{counted(len(counting), 'fault')}\n"
    for group in counting:
        yield "\n"
        for line in fault_lines(session, group, view):
            yield line + "\n"
    for state, what in _STATES.items():
        others = [group for group in faults if group.fault.state == state]
        if others:
            yield f"\n{counted(len(others), 'fault')} {what}\n"
        for group in others:
            times = (group.count, group.launches)
            yield f"  {fault_text.counted_line(group.fault, *times, view.style)}\n"


_STATES = {"known": "in the baseline", "ignored": "ignored by comments"}


def _source_lines(session: Session) -> Iterator[str]:
    """Yield lines on how native launches were timed."""
    sources = session.time_sources()
    if "cupti" in sources:
        yield f"{counted(sources['cupti'], 'launch')} timed by the GPU itself (CUPTI)"
    if "events" in sources or "events-at-most" in sources:
        count = sources.get("events", 0) + sources.get("events-at-most", 0)
        yield f"{counted(count, 'launch')} timed by CUDA events, less what an empty kernel takes"
    if "events-at-most" in sources:
        count = sources["events-at-most"]
        yield f"{counted(count, 'time')} of them may be the host's: at most this long on the GPU"


def _other_lines(totals: Sequence[ActivityTotal], width: int | None) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("", "count", "total", "mean", "min", "max")]
    for total in totals[:MAX_OTHERS]:
        times = (total.total_ns, total.mean_ns, total.min_ns, total.max_ns)
        name = cut(
            visible_line(activity_name(total.kind, total.name, total.in_graph)), MAX_NAME_CHARS
        )
        rows.append((name, f"{total.count:,}", *map(format_ns, times)))
    yield from table_lines(rows, width)
    left = totals[MAX_OTHERS:]
    if left:
        rest = format_ns(sum(total.total_ns for total in left))
        yield f"… and {len(left):,} more, {rest} in all"


def _origin_lines(totals: Sequence[OriginTotal], width: int | None) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("", "count", "total", "in")]
    for total in totals[:MAX_OTHERS]:
        place, scopes = "(no line is known)", ""
        if total.origin is not None:
            frame = total.origin.frame
            place = f"{os.path.basename(frame.file)}:{frame.line} {frame.function}"
            scopes = SCOPE_SEPARATOR.join(total.origin.scopes)
        texts = (cut(visible_line(text), MAX_NAME_CHARS) for text in (place, scopes))
        place, scopes = texts
        rows.append((place, f"{total.count:,}", format_ns(total.total_ns), scopes))
    yield from table_lines(rows, width)
    left = totals[MAX_OTHERS:]
    if left:
        rest = format_ns(sum(total.total_ns for total in left))
        yield f"… and {len(left):,} more, {rest} in all"


def recorded_tunings(session: Session) -> Iterator[Recorded[AutotuneChoice]]:
    """All choices of autotuners, in order."""
    since = 0
    while page := session.records(AutotuneChoice, since):
        yield from page
        since = page[-1].seq


def _tuning_lines(recorded: Recorded[AutotuneChoice]) -> Iterator[str]:
    """An autotuner's choice: its configurations with their times, the fastest first."""
    tuning = recorded.event
    rank = f" of rank {recorded.rank}" if recorded.rank else ""
    yield f"autotune of {tuning.kernel}{rank} for key {tuning.key}"
    if not tuning.timings_ms:
        yield f"  {tuning.config}  (not timed: interpreted)"
        return
    for config, time_ns in tuning.ranked:
        time = format_ns(time_ns) if math.isfinite(time_ns) else "failed"
        chosen = "  chosen" if config == tuning.config else ""
        yield f"  {time:>8}  {config}{chosen}"


def run_line(run: RunInfo) -> str:
    """Return a line with the command, its end, and where it ran."""
    if run.end_ns is None:
        end = "still running, or killed"
    else:
        status = "unknown" if run.exit_status is None else run.exit_status
        end = f"exit status {status}, {format_ns(run.end_ns - run.start_ns)}"
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    command = visible_line(" ".join((run.script, *run.argv)))
    return visible_line(f"{command} ({run.mode}): {end}; on {run.host}, {versions}")


def _kernel_table(summaries: Sequence[KernelSummary], width: int | None) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("kernel", "launches", "total", "mean", "min", "max", "")]
    for summary in summaries:
        times = (summary.total_ns, summary.mean_ns, summary.min_ns, summary.max_ns)
        shown = tuple(format_ns(time) if summary.finished else "-" for time in times)
        notes = []
        if summary.launches > summary.finished + summary.untimed:
            notes.append(f"{summary.launches - summary.finished - summary.untimed:,} not ended")
        if summary.untimed:
            notes.append(f"{summary.untimed:,} not timed")
        if summary.errors:
            notes.append(f"{summary.errors:,} failed")
        kernel = visible_line(summary.kernel)
        rows.append((kernel, f"{summary.launches:,}", *shown, ", ".join(notes)))
    return table_lines(rows, width)


@dataclass(slots=True)
class _Branch:
    """A scope, or a kernel in it."""

    launches: int = 0
    finished: int = 0
    total_ns: int = 0
    below: dict[tuple[bool, str], _Branch] = field(default_factory=dict)

    def add(self, summary: ScopeSummary) -> None:
        """Count launches that ran here or below."""
        self.launches += summary.launches
        self.finished += summary.finished
        self.total_ns += summary.total_ns


def scope_lines(summaries: Sequence[ScopeSummary], width: int | None = None) -> Iterator[str]:
    """A line for each scope and for each kernel in it, in the order of coming up."""
    root = _Branch()
    for summary in summaries:
        branch = root
        for key in (*((False, name) for name in summary.scopes), (True, summary.kernel)):
            # A kernel and a scope may have one name.
            branch = branch.below.setdefault(key, _Branch())
            branch.add(summary)
    rows = [("scope", "launches", "total", "mean"), *_rows(root, 0)]
    left_out = len(rows) - 1 - MAX_LINES
    rows = rows[: MAX_LINES + 1]
    yield from table_lines(rows, width)
    if left_out > 0:
        yield f"… and {left_out:,} more"


def _rows(branch: _Branch, depth: int) -> Iterator[tuple[str, str, str, str]]:
    for (_, name), child in branch.below.items():
        total = mean = "-"
        if child.finished:
            total = format_ns(child.total_ns)
            mean = format_ns(child.total_ns / child.finished)
        yield "  " * depth + visible_line(name), f"{child.launches:,}", total, mean
        yield from _rows(child, depth + 1)


def gpu_warnings(session: Session) -> Iterator[str]:
    """A sentence for each thing that makes times of this run less than comparable."""
    by_gpu: dict[str, list[GpuState]] = defaultdict(list)
    for recorded in session.records(GpuState):
        if recorded.event.is_busy:
            by_gpu[recorded.event.gpu].append(recorded.event)
    for states in by_gpu.values():
        yield from _clock_warnings(states, more_than_one=len(by_gpu) > 1)
    lost: dict[str, int] = defaultdict(int)
    for loss in session.records(LostActivities):
        lost[loss.event.reason] += loss.event.count
    for reason, count in lost.items():
        yield f"{count:,} records of the GPU are missing: {reason}" if count else reason


def _clock_warnings(states: Sequence[GpuState], more_than_one: bool) -> Iterator[str]:
    name = states[0].name + (f" ({states[0].gpu})" if more_than_one else "")
    clocks = [state.sm_clock_mhz for state in states]
    if min(clocks) < max(clocks) * (1 - NOTABLE_SHARE):
        yield (
            f"{name}: its clock was between {min(clocks)} and {max(clocks)} MHz while kernels ran; "
            "times from different moments do not compare"
        )
    reasons = dict.fromkeys(n for state in states for n in slowdown_names(state.slowdown_reasons))
    if reasons:
        yield f"{name}: was slowed down: {', '.join(reasons)}"
