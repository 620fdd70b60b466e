"""The state of a session at one moment, as the panes need it: all of it immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tkdebug.instrument.device_records import ActivityTotal
from tkdebug.instrument.records import FaultGroup as FaultGroup
from tkdebug.instrument.records import KernelSummary, Launch, Progress, RecordedKernel, RunInfo
from tkdebug.instrument.session import Session
from tkdebug.tui.drawing.lines import Code, lines_of

LaunchKey = tuple[int, int]  # process, launch id


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session at one moment; a field that has not changed is the same object as before.

    Attributes:
        rows: the latest launches, in order of `seq`.
        launch_count: the number of all launches, also those no longer among `rows`.
        failing: the number of `faults` by which a run fails, and `warnings` of others that count.
        faulty: launches that had a fault by which a run fails.
        fault_limit_reached: further kinds of fault are not among `faults`.
        others: the totals of other programs on the GPU.
    """

    run: RunInfo
    rows: tuple[Launch, ...] = ()
    launch_count: int = 0
    summaries: tuple[KernelSummary, ...] = ()
    kernels: tuple[RecordedKernel, ...] = ()
    faults: tuple[FaultGroup, ...] = ()
    failing: int = 0
    warnings: int = 0
    faulty: frozenset[LaunchKey] = frozenset()
    fault_limit_reached: bool = False
    progress: Mapping[LaunchKey, Progress] = field(default_factory=dict)
    others: tuple[ActivityTotal, ...] = ()

    @property
    def more(self) -> str:
        """A "+" to follow the number of faults if there are more of them, else ""."""
        return "+" if self.fault_limit_reached else ""


Phase = Literal["starting", "running", "ended", "signalled", "unended"]


@dataclass(frozen=True, slots=True)
class ScriptState:
    """The state of the script.

    Attributes:
        phase: "unended" when no end was recorded and its process is gone.
        number: the exit status when it ended, the signal when it was killed by one.
        process: the process id, if known.
    """

    phase: Phase
    number: int | None = None
    process: int | None = None

    @property
    def going_on(self) -> bool:
        """Whether it may still do something."""
        return self.phase in ("starting", "running")


def read_source(session: Session, kernel: RecordedKernel | None, file: str) -> Code:
    """Return the recorded text of `file`, or the kernel's own if there is no more; uncoloured.

    Raises:
        SessionError: the session cannot be read.
    """
    # Only what was recorded: a path in a session is no reason to read this machine's files.
    text = session.source_text(file)
    first_line = 1
    if text is None and kernel is not None and kernel.file == file:
        text, first_line = kernel.source, kernel.line
    return Code(lines_of(text or ""), first_line)
