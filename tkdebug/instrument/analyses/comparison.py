"""Two recorded runs compared: times by kernel, and the faults that came or went.

Kernels are matched by name. Faults are matched by kind, kernel, tensor and the text of their source
lines, so that a fault whose line has moved is the same. One that is ignored, or in the later run's
baseline, is neither new nor gone.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from tkdebug.instrument.analyses.advice import AT_THE_ROOF, Advice, advice_of, launch_costs
from tkdebug.instrument.analyses.code_changes import CodeFigures, code_figures
from tkdebug.instrument.analyses.time_changes import LEAST_LAUNCHES, TimeChange, time_changes
from tkdebug.instrument.analyses.watched_changes import WatchedChange, watched_changes
from tkdebug.instrument.records import FaultGroup, KernelSummary, RunInfo
from tkdebug.instrument.session import Session


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel in both runs; None in the one that did not launch it.

    Attributes:
        time: how its time changed, of launches that are alike; None where there are none.
        code_before: what its machine code needs; None where it was not compiled natively.
        code_after: alike.
    """

    kernel: str
    before: KernelSummary | None
    after: KernelSummary | None
    time: TimeChange | None = None
    code_before: CodeFigures | None = None
    code_after: CodeFigures | None = None

    @property
    def unknown_why(self) -> str:
        """Why it is not known whether it is slower or faster; empty where it is."""
        if self.before is None or self.after is None:
            return "only one run launched it"
        if self.time is None:
            return "no launches on tensors of the same shapes, timed in the same way, in both runs"
        if self.time.verdict == "unknown":
            return f"fewer than {LEAST_LAUNCHES} launches that are alike in a run"
        return ""

    @property
    def mean_ratio(self) -> float | None:
        """Mean time after, over that before; None where either is not known."""
        if self.before is None or self.after is None:
            return None
        return self.after.mean_ns / self.before.mean_ns if self.before.mean_ns else None

    @property
    def min_ratio(self) -> float | None:
        """Least time after, over that before; None where either is not known."""
        if self.before is None or self.after is None or not self.after.finished:
            return None
        return self.after.min_ns / self.before.min_ns if self.before.min_ns else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two runs.

    Attributes:
        kernels: those of either run, by the total time of the later run, then of the earlier.
        new_faults: those that only the later run has.
        gone_faults: those that only the earlier run has.
        kept_faults: how many both have.
        new_remarks: of advice, those that only the later run has.
        gone_remarks: those that only the earlier run has.
        watched: variables that both runs watched.
    """

    before: RunInfo
    after: RunInfo
    kernels: tuple[KernelChange, ...]
    new_faults: tuple[FaultGroup, ...]
    gone_faults: tuple[FaultGroup, ...]
    kept_faults: int
    new_remarks: tuple[Advice, ...] = ()
    gone_remarks: tuple[Advice, ...] = ()
    watched: tuple[WatchedChange, ...] = ()

    @property
    def is_timed(self) -> bool:
        """Whether both runs were on a GPU, so that their times say something."""
        return "interpret" not in self.before.mode and "interpret" not in self.after.mode

    def unknown(self) -> dict[str, tuple[str, ...]]:
        """Kernels of both runs of which it is not known whether they are slower, by why."""
        found: dict[str, tuple[str, ...]] = {}
        for change in self.kernels:
            if change.before is not None and change.after is not None and change.unknown_why:
                why = change.unknown_why
                found[why] = (*found.get(why, ()), change.kernel)
        return found

    def slower(self, least_percent: float) -> tuple[KernelChange, ...]:
        """Kernels that are certainly slower by so much, of runs on a GPU."""
        if not self.is_timed:
            return ()
        least = 1 + least_percent / 100
        return tuple(
            change
            for change in self.kernels
            if change.time is not None
            and change.time.verdict == "slower"
            and change.time.low > least
        )


def compare(before: Session, after: Session) -> Comparison:
    """Compare the run `after` with the run `before`.

    Raises:
        SessionError: one of the sessions is damaged.
    """
    old = {summary.kernel: summary for summary in before.kernel_summaries()}
    new = {summary.kernel: summary for summary in after.kernel_summaries()}
    times = time_changes(before, after)
    old_code, new_code = code_figures(before), code_figures(after)
    old_remarks, new_remarks = _remarks(before), _remarks(after)
    if not (launch_costs(before) and launch_costs(after)):
        old_remarks, new_remarks = {}, {}  # of a run without advice nothing is new or gone
    old_faults = {_identity(before, group): group for group in before.fault_groups()}
    new_faults = {_identity(after, group): group for group in after.fault_groups()}
    came = {key: g for key, g in new_faults.items() if g.fault.is_open and key not in old_faults}
    went = {key: g for key, g in old_faults.items() if g.fault.is_open and key not in new_faults}
    return Comparison(
        before.run(),
        after.run(),
        tuple(
            KernelChange(
                name,
                old.get(name),
                new.get(name),
                times.get(name),
                old_code.get(name),
                new_code.get(name),
            )
            for name in {**new, **old}
        ),
        tuple(came.values()),
        tuple(went.values()),
        sum(key in old_faults for key in new_faults),
        tuple(one for key, one in new_remarks.items() if key not in old_remarks),
        tuple(one for key, one in old_remarks.items() if key not in new_remarks),
        watched_changes(before, after),
    )


def _remarks(session: Session) -> dict[tuple[str, str, str], Advice]:
    """What advice says, by kernel, kind and text of the line; a kernel at its roof is no remark."""
    return {
        (one.kernel, one.kind, _text(session, one.file, one.line)): one
        for one in advice_of(session)
        if one.kind != AT_THE_ROOF
    }


def _identity(session: Session, group: FaultGroup) -> tuple[object, ...]:
    fault = group.fault
    chain = tuple(
        (posixpath.basename(frame.file), frame.function, _text(session, frame.file, frame.line))
        for frame in fault.frames
    )
    said = fault.message if fault.kind == "compile-error" else ""
    return (fault.kind, fault.kernel, fault.tensor, chain, said)


def _text(session: Session, file: str, line: int) -> str:
    """The text of a source line, or its number where the source was not recorded."""
    text = session.source_line(file, line)
    return str(line) if text is None else text.strip()
