"""What a reader gives out: immutable snapshots of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tkdebug.errors import Frame
from tkdebug.events import ArgumentInfo, Fault


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run as a whole; `end_ns` is None while it goes on or when it was killed.

    Attributes:
        exit_status: the script's own; None while unknown.
        versions: of python, torch, tkdebug, by name.
    """

    script: str
    argv: tuple[str, ...]
    mode: str
    start_ns: int
    end_ns: int | None
    exit_status: int | None
    host: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. `duration_ns` and `error` are None while it runs, or when it was killed.

    Attributes:
        seq: unique in the session, in order of recording.
        id: unique in its process.
        scopes: names of the script's scopes around it, outermost first.
    """

    seq: int
    process: int
    rank: int
    id: int
    kernel: str
    kernel_hash: str
    mode: str
    grid: tuple[int, int, int]
    options: Mapping[str, object]
    arguments: tuple[ArgumentInfo, ...]
    stream: int
    start_ns: int
    duration_ns: int | None
    error: str | None
    scopes: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether no end of it was recorded."""
        return self.duration_ns is None and self.error is None


@dataclass(frozen=True, slots=True)
class LaunchPage:
    """Launches that are new or changed since a cursor.

    Attributes:
        cursor: what to pass as `since` next time.
        more: whether further ones are there already.
    """

    launches: tuple[Launch, ...]
    cursor: int
    more: bool


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """Times of all launches of the kernels of one name.

    Attributes:
        finished: how many of `launches` have ended; times are of those.
    """

    kernel: str
    launches: int
    finished: int
    errors: int
    total_ns: int
    min_ns: int
    max_ns: int

    @property
    def mean_ns(self) -> float:
        """Mean duration of those that have ended, 0 when none has."""
        return self.total_ns / self.finished if self.finished else 0.0


@dataclass(frozen=True, slots=True)
class RecordedScope:
    """A scope that the script entered and left.

    Attributes:
        id: unique in its process.
        parent: the scope around it, None for none.
        thread: native id of the thread that entered it.
        metrics: what the script measured of it.
    """

    seq: int
    process: int
    rank: int
    id: int
    parent: int | None
    thread: int
    name: str
    metrics: Mapping[str, object]
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class ScopeSummary:
    """Times of the launches of one kernel under the scopes of one path."""

    scopes: tuple[str, ...]
    kernel: str
    launches: int
    finished: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """One specialisation of a kernel; `stages` names its artifacts in compile order.

    Attributes:
        error: why it failed to compile, None when it did not.
    """

    seq: int
    hash: str
    process: int
    rank: int
    name: str
    file: str
    line: int
    source: str
    signature: str
    options: Mapping[str, object]
    compile_ns: int
    cache_hit: bool
    stages: tuple[str, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedFault:
    """A fault and where it was recorded."""

    seq: int
    process: int
    rank: int
    time_ns: int
    fault: Fault


FaultKey = tuple[str, str, tuple[Frame, ...], "str | None", str]


def fault_key(fault: Fault) -> FaultKey:
    """What makes two faults the same: kind, kernel, place with its call chain, and tensor."""
    # Two compile errors of one line differ by what they say, all else by where it happened.
    said = fault.message if fault.kind == "compile-error" else ""
    return (fault.kind, fault.kernel, fault.frames, fault.tensor, said)


@dataclass(frozen=True, slots=True)
class FaultGroup:
    """The same fault (kind, kernel, place, tensor) over all launches that had it.

    Attributes:
        first: the first one recorded.
        count: bad accesses in all.
        launches: in how many launches; 0 for a compile error.
    """

    first: RecordedFault
    count: int
    launches: int

    @property
    def key(self) -> FaultKey:
        """What makes two faults the same."""
        return fault_key(self.first.fault)

    @property
    def fault(self) -> Fault:
        """The first one, with the counts of all added up."""
        return replace(self.first.fault, count=self.count)


@dataclass(frozen=True, slots=True)
class FaultOverview:
    """All faults up to the one of `last_seq`, in groups.

    Attributes:
        launches: (process, launch id) of launches that had a fault of severity "error".
    """

    last_seq: int
    groups: tuple[FaultGroup, ...]
    launches: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """A tuner's choice; `timings_ms` is empty under interpret."""

    seq: int
    process: int
    rank: int
    kernel: str
    key: str
    config: str
    timings_ms: Mapping[str, float]

    @property
    def ranked(self) -> tuple[tuple[str, float], ...]:
        """The configurations and their ns, the fastest first; one that failed took for ever."""
        fastest_first = sorted(self.timings_ms.items(), key=lambda item: item[1])
        return tuple((config, time_ms * 1e6) for config, time_ms in fastest_first)


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """Text a process wrote to `stream` ("stdout" or "stderr"), from `time_ns` on."""

    seq: int
    process: int
    rank: int
    time_ns: int
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The latest of a long launch: programs done of how many, after `elapsed_ns`."""

    process: int
    rank: int
    launch_id: int
    kernel: str
    programs_done: int
    programs: int
    elapsed_ns: int
