"""What a session says at one moment, as the panes need it. All of it immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tkdebug.instrument.records import (
    FaultGroup as FaultGroup,  # for the panes, beside the other parts of a snapshot
)
from tkdebug.instrument.records import (
    KernelSummary,
    Launch,
    Progress,
    RecordedKernel,
    RunInfo,
)

LaunchKey = tuple[int, int]  # process, launch id
SCOPE_SEPARATOR = " > "


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """A launch without its arguments, which are read when it is selected."""

    seq: int
    process: int
    rank: int
    id: int
    kernel: str
    kernel_hash: str
    grid: tuple[int, int, int]
    start_ns: int
    duration_ns: int | None
    error: str | None
    scopes: tuple[str, ...] = ()

    @classmethod
    def of(cls, launch: Launch) -> LaunchRow:
        """The row of `launch`."""
        return cls(
            launch.seq,
            launch.process,
            launch.rank,
            launch.id,
            launch.kernel,
            launch.kernel_hash,
            launch.grid,
            launch.start_ns,
            launch.duration_ns,
            launch.error,
            launch.scopes,
        )

    @property
    def key(self) -> LaunchKey:
        """What progress and faults name it by."""
        return (self.process, self.id)

    @property
    def title(self) -> str:
        """The kernel's name after those of the scopes around it."""
        return SCOPE_SEPARATOR.join((*self.scopes, self.kernel))

    @property
    def unfinished(self) -> bool:
        """Whether no end of it was recorded."""
        return self.duration_ns is None and self.error is None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session at one moment; a field that has not changed is the same object as before.

    Attributes:
        rows: the latest launches, in order of `seq`.
        launch_count: of all, also those no longer among `rows`.
        faulty: launches that had a fault of severity "error".
        fault_limit_reached: further kinds of fault are not among `faults`.
    """

    run: RunInfo
    rows: tuple[LaunchRow, ...] = ()
    launch_count: int = 0
    summaries: tuple[KernelSummary, ...] = ()
    kernels: tuple[RecordedKernel, ...] = ()
    faults: tuple[FaultGroup, ...] = ()
    faulty: frozenset[LaunchKey] = frozenset()
    fault_limit_reached: bool = False
    progress: Mapping[LaunchKey, Progress] = field(default_factory=dict)

    @property
    def more(self) -> str:
        """What follows a number of faults that is not all of them."""
        return "+" if self.fault_limit_reached else ""


Phase = Literal["starting", "running", "ended", "signalled", "unended"]


@dataclass(frozen=True, slots=True)
class ScriptState:
    """How the script stands.

    Attributes:
        phase: "unended" when no end was recorded and its process is gone.
        number: the exit status when it ended, the signal when it was killed by one.
        process: its id, where known.
    """

    phase: Phase
    number: int | None = None
    process: int | None = None

    @property
    def going_on(self) -> bool:
        """Whether it may still do something."""
        return self.phase in ("starting", "running")
