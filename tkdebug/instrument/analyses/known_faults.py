"""Effects of the comments and the baseline of a run: known faults, fixed ones, remarks.

All of it follows from the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tkdebug.findings.baseline import KnownFault, UsedBaseline, fixed, identity
from tkdebug.findings.source import IgnoreComment, problem_lines, text_of_file, unused_lines
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.tables import Recorded
from tkdebug.records.events import FaultState


@dataclass(frozen=True, slots=True)
class BaselineOutcome:
    """A run against its baseline.

    Attributes:
        fixed: known faults that should have come up and did not; () unless the script ended well.
    """

    baseline: UsedBaseline
    fixed: tuple[KnownFault, ...]

    @property
    def folder(self) -> Path:
        """The folder that its files are relative to."""
        return Path(self.baseline.file).parent

    @property
    def left(self) -> frozenset[KnownFault]:
        """The known faults that are not fixed."""
        return frozenset(self.baseline.faults) - set(self.fixed)


def baseline_outcome(session: Session, faults: tuple[FaultGroup, ...]) -> BaselineOutcome | None:
    """Compare a run with its baseline; None if it has none."""
    recorded: tuple[Recorded[UsedBaseline], ...] = session.records(UsedBaseline, limit=1)
    if not recorded:
        return None
    baseline = recorded[0].event
    if session.run().exit_status != 0:
        return BaselineOutcome(baseline, ())
    seen = {*identities(session, faults, Path(baseline.file).parent).values()}
    kernels = {summary.kernel for summary in session.kernel_summaries()}
    return BaselineOutcome(baseline, fixed(baseline, seen, kernels))


def identities(
    session: Session, faults: tuple[FaultGroup, ...], folder: Path
) -> dict[FaultGroup, KnownFault]:
    """Return the identity of each fault, by which a baseline in `folder` finds it again."""
    text_of = _text_of(session)
    return {group: identity(group.fault, folder, text_of) for group in faults}


def count_states(faults: tuple[FaultGroup, ...]) -> Counter[FaultState]:
    """Count the faults of each state."""
    return Counter(group.fault.state for group in faults)


def remarks(session: Session, faults: tuple[FaultGroup, ...]) -> list[str]:
    """Return remarks on the comments that ignore faults, a line each.

    Unused comments are named if the script ended well: otherwise more faults might have come up.
    """
    comments = [recorded.event for recorded in _comments(session)]
    lines = problem_lines(comments)
    if session.run().exit_status == 0:
        lines += unused_lines(comments, (group.fault for group in faults))
    return lines


def _comments(session: Session) -> list[Recorded[IgnoreComment]]:
    found: list[Recorded[IgnoreComment]] = []
    while page := session.records(IgnoreComment, found[-1].seq if found else 0):
        found.extend(page)
    return found


def _text_of(session: Session) -> Callable[[str], str]:
    def text_of(file: str) -> str:
        text = session.source_text(file)
        return text_of_file(file) if text is None else text

    return text_of
