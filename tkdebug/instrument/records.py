"""Records of a run that a session holds and gives out, all immutable.

Types that are `stored` have a table, which is derived from their fields here; so have `Fault` and
`AutotuneChoice` of `events`. `TABLES` names all. The others are answers put together from them.

`RecordTables` has the record types that a recording knows, and the errors for other values. Tables
that every session has are there from the start; any other comes with its first record, as long as
its name is not another type's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

from tkdebug.errors import Frame
from tkdebug.findings.baseline import UsedBaseline
from tkdebug.findings.source import IgnoreComment
from tkdebug.instrument.device_records import ActivityBatch, GpuState, LostActivities
from tkdebug.instrument.session_file.tables import Recorded, Table, table_of
from tkdebug.records.events import (
    ArgumentInfo,
    AutotuneChoice,
    CompilerPass,
    Fault,
    FaultKind,
    FaultState,
    OpFacts,
    Rewrite,
)
from tkdebug.records.storage import OPEN, REPEATED, SHORT, WIDE, storage_of, stored

SCOPE_SEPARATOR = " > "
_T = TypeVar("_T")
# Errors of a field that holds something else than its type says.
NOT_A_RECORD = (
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


@stored("run", stamped=False)
@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run as a whole, one row. `end_ns` is None while it goes on or when it was killed.

    Attributes:
        mode: the mode of its launches, "interpret, native" if there are both.
        exit_status: the script's own; None while unknown.
        versions: the versions of python, torch, tkdebug, by name.
        rank_group: a key of the ranks that belong together; None for a run of one process.
    """

    script: str
    argv: tuple[str, ...]
    mode: str
    start_ns: int
    end_ns: int | None
    exit_status: int | None
    host: str
    versions: Mapping[str, str]
    rank_group: str | None = None


@stored("clock", stamped=False)
@dataclass(frozen=True, slots=True)
class Clock:
    """One row: the latest `revision` of a launch."""

    revision: int


@stored("launches", key=("seq",), indices=("revision",), stamped=False)
@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. Fields after `scopes` are None while it runs, or when it was killed.

    Attributes:
        seq: unique in the session, in order of recording.
        revision: grows with every insert and update of a launch: launches beyond the last one seen
            are new or have ended since.
        id: unique in its process, counted from 1.
        kernel_hash: the specialisation (`hash` of kernels).
        mode: "interpret" or "native".
        options: num_warps and the other options of the launch.
        stream: handle of the CUDA stream, 0 under interpret.
        scopes: names of the script's scopes around it, outermost first.
        time_source: how `duration_ns` was obtained: "cupti" (the GPU's own time stamps), "events"
            (two CUDA events around it, less the time of an empty kernel between them),
            "events-at-most" (the same for a kernel so short that the host may have been slower),
            "host" (wall time of an interpreted launch), "none" (it ended without a time: it was
            made part of a CUDA graph, or no record of it came).
        device_start_ns: the time at which the GPU began with it; None if CUPTI did not record it.
        device: the GPU that it ran on, as CUDA numbers it; None if CUPTI did not record it.
        device_stream: CUPTI's number of its stream, as in `Activity`; None as for `device`.
    """

    seq: int
    revision: int
    process: int
    rank: int
    id: int
    kernel: str
    kernel_hash: str
    mode: str
    grid: Annotated[tuple[int, int, int], REPEATED]
    options: Annotated[Mapping[str, object], REPEATED]
    arguments: Annotated[tuple[ArgumentInfo, ...], REPEATED]
    stream: Annotated[int, WIDE]
    start_ns: int
    scopes: Annotated[tuple[Annotated[str, SHORT], ...], REPEATED]
    duration_ns: int | None
    error: str | None
    time_source: str | None = None
    device_start_ns: int | None = None
    device: int | None = None
    device_stream: int | None = None

    @property
    def running(self) -> bool:
        """Whether no end of it was recorded."""
        return self.duration_ns is None and self.error is None and self.time_source is None

    @property
    def key(self) -> tuple[int, int]:
        """The key by which progress and faults name it."""
        return (self.process, self.id)

    @property
    def title(self) -> str:
        """The kernel's name after the names of the scopes around it."""
        return SCOPE_SEPARATOR.join((*self.scopes, self.kernel))


@dataclass(frozen=True, slots=True)
class LaunchPage:
    """Launches that are new or changed since a cursor.

    Attributes:
        cursor: the value of `since` next time.
        more: whether further ones are there already.
    """

    launches: tuple[Launch, ...]
    cursor: int
    more: bool


@stored("totals", key=("kernel",), stamped=False)
@dataclass(frozen=True, slots=True)
class KernelSummary:
    """Times of all launches of the kernels of one name, kept by the writers as launches come.

    Attributes:
        finished: the number of `launches` that have ended with a time or an error.
        untimed: the number that have ended without a time.
    """

    kernel: str
    launches: int
    finished: int
    errors: int
    total_ns: int
    min_ns: int
    max_ns: int
    untimed: int = 0

    @property
    def mean_ns(self) -> float:
        """Mean duration of launches that have ended, 0 if none has."""
        return self.total_ns / self.finished if self.finished else 0.0


@stored("scopes")
@dataclass(frozen=True, slots=True)
class ScopeSpan:
    """A scope that the script entered and left (`triton.profiler.scope`).

    Attributes:
        id: unique in its process.
        parent: the scope around it, None for none.
        thread: native id of the thread that entered it.
        metrics: the script's metrics of it, without tensors.
        start_ns: the start by the host's clock.
    """

    id: int
    parent: int | None
    thread: int
    name: Annotated[str, SHORT]
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


@stored("kernels", key=("seq",), unique=("hash",), stamped=False)
@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """One specialisation of a kernel.

    Attributes:
        stages: names of its artifacts, in compile order.
        error: why it failed to compile, None if it did not.
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


@stored("artifacts", key=("kernel_hash", "stage"), stamped=False)
@dataclass(frozen=True, slots=True)
class Artifact:
    """One stage of a kernel (tile-ir, …), and the origin of the lines of its text.

    Attributes:
        content: its text, as a `hash` of blobs.
        op_ids: op by line of the text, from 1; an op keeps its id through all stages.
        op_lines: source by line of the text: a call chain, outermost first.
    """

    kernel_hash: str
    stage: str
    content: str
    op_ids: Mapping[int, int]
    op_lines: Mapping[int, tuple[Frame, ...]]


@stored("passes", key=("kernel_hash", "number"), stamped=False)
@dataclass(frozen=True, slots=True)
class RecordedPass:
    """The changes that a compiler pass made to a kernel. The first is the front end.

    A pass whose row would take more than 8 MiB keeps its name, time and stages only; its `op_ids`
    are None then although its stages differ.

    Attributes:
        number: passes count from 0, in the order in which they ran.
        before: a stage.
        after: a stage; the same as `before` if the pass changed nothing.
        error: why it failed, "" when it did not.
        rewrites: rule, ids of the ops before and after, places that no op has any more.
        op_ids: the ops after it, in program order; None if nothing changed.
        ops: the present facts of ops that came or changed, by id.
    """

    kernel_hash: str
    number: int
    name: str
    before: str
    after: str
    time_ns: int
    error: str
    rewrites: tuple[Rewrite, ...]
    op_ids: tuple[int, ...] | None
    ops: Mapping[int, OpFacts]

    @property
    def compiler_pass(self) -> CompilerPass:
        """Return the pass without the kernel that it ran on."""
        return CompilerPass(
            name=self.name,
            before=self.before,
            after=self.after,
            time_ns=self.time_ns,
            rewrites=self.rewrites,
            op_ids=self.op_ids,
            ops=self.ops,
            error=self.error,
        )


@stored("line_tables", key=("kernel_hash",), stamped=False)
@dataclass(frozen=True, slots=True)
class RecordedLineTable:
    """The line table of a kernel that was compiled natively: from source lines to machine code.

    Read it with `tkdebug.linemap.line_table_data.from_data(session.line_table(hash))`, which reads
    the machine code by nvdisasm, half a second for a kernel; the JSON is described in json.md. One
    that could not be made, or has more than 16 MiB, says so under `absent`.

    Attributes:
        data: a `hash` of blobs.
    """

    kernel_hash: str
    data: str


@stored("sources", key=("file",), stamped=False)
@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source file that kernels or records point to, as it was.

    Attributes:
        content: a `hash` of blobs.
    """

    file: str
    content: str


@stored("blobs", key=("hash",), stamped=False)
@dataclass(frozen=True, slots=True)
class Blob:
    """A text, stored once and found by its hash.

    Attributes:
        hash: SHA-256 of the UTF-8 text, in hex.
    """

    hash: str
    text: str


@stored("running_faults", key=("process", "launch_id", "site"), stamped=False)
@dataclass(frozen=True, slots=True)
class RunningFault:
    """A finding so far of a native launch that has not ended, seen from outside.

    Once it has ended its faults say all of it, and this is gone; if the script was killed before,
    it stays.

    Attributes:
        site: the site of the access or assertion in its kernel.
        frames: its place, outermost first.
        program: the number of the program of an example, x fastest; None if that is not known yet.
        count: bad elements, or more.
    """

    process: int
    rank: int
    launch_id: int
    site: int
    kernel: str
    kind: Annotated[FaultKind, OPEN]
    frames: Annotated[tuple[Frame, ...], REPEATED]
    tensor: str | None
    state: Annotated[FaultState, OPEN]
    program: int | None
    count: int


RecordedFault = Recorded[Fault]
FaultKey = tuple[str, str, tuple[Frame, ...], "str | None", str, str]


def fault_key(fault: Fault) -> FaultKey:
    """Return what equal faults share: kind, kernel, place with its call chain, tensor, state."""
    # Two compile errors of one line differ by what they say, all else by where it happened.
    said = fault.message if fault.kind == "compile-error" else ""
    return (fault.kind, fault.kernel, fault.frames, fault.tensor, said, fault.state)


def running_fault(found: RunningFault, launch: Launch | None) -> RecordedFault:
    """The fault of a launch's findings so far.

    Args:
        found: the findings.
        launch: the launch; None if it is not in the session.
    """
    said = "found while its launch runs"
    if found.program is None:
        said += "; which elements is known when it has ended"
    else:
        said += f", {found.count:,} or more so far"
    start_ns = 0 if launch is None else launch.start_ns
    fault = Fault(
        kind=found.kind,
        kernel=found.kernel,
        frames=found.frames,
        message=said,
        launch_id=found.launch_id,
        program_id=None if launch is None else _place_in(launch.grid, found.program),
        tensor=found.tensor,
        count=found.count,
        state=found.state,
    )
    return Recorded(0, found.process, found.rank, start_ns, fault)


def _place_in(grid: tuple[int, int, int], program: int | None) -> tuple[int, int, int] | None:
    """Return the position in the grid of a program by its number; None if that is unknown."""
    x, y, z = (max(1, size) for size in grid)
    if program is None or program >= x * y * z:
        return None
    return (program % x, program // x % y, program // (x * y))


@dataclass(frozen=True, slots=True)
class FaultGroup:
    """A fault (kind, kernel, place, tensor) over all launches that had it.

    Attributes:
        first: the first one recorded.
        count: bad accesses in all.
        launches: the number of launches; 0 for a compile error.
    """

    first: RecordedFault
    count: int
    launches: int

    @property
    def key(self) -> FaultKey:
        """The key that equal faults share."""
        return fault_key(self.first.event)

    @property
    def fault(self) -> Fault:
        """The first fault of the group, with the sum of all counts."""
        return replace(self.first.event, count=self.count)


@dataclass(frozen=True, slots=True)
class FaultOverview:
    """All faults up to the one of `last_seq`, in groups.

    Attributes:
        launches: (process, launch id) of launches that had a fault by which a run fails.
    """

    last_seq: int
    groups: tuple[FaultGroup, ...]
    launches: tuple[tuple[int, int], ...]


@stored("output")
@dataclass(frozen=True, slots=True)
class Output:
    """Text that a process wrote, from `time_ns` on.

    Attributes:
        stream: "stdout" or "stderr".
    """

    stream: str
    text: str


@stored("progress", key=("process", "launch_id"), stamped=False)
@dataclass(frozen=True, slots=True)
class Progress:
    """The latest progress of a long launch that runs now: programs done of all."""

    process: int
    launch_id: int
    rank: int
    kernel: str
    programs_done: int
    programs: int
    elapsed_ns: int


# Tables of every session; the table of any other record type comes with its first record.
TABLES: tuple[type, ...] = (
    RunInfo,
    Clock,
    Launch,
    KernelSummary,
    ScopeSpan,
    RecordedKernel,
    Artifact,
    RecordedPass,
    RecordedLineTable,
    SourceFile,
    Blob,
    Fault,
    IgnoreComment,
    UsedBaseline,
    AutotuneChoice,
    Output,
    Progress,
    ActivityBatch,
    LostActivities,
    GpuState,
)


class RecordTables:
    """The tables of one recording."""

    def __init__(self) -> None:
        self._known: set[type] = set(TABLES)
        self._refused: set[type] = set()

    def known(self, kind: type[_T]) -> Table[_T]:
        """The table of `kind`.

        Raises:
            TypeError: it is not `stored`, or has a field of a type that no column holds.
            ValueError: its table is another type's.
        """
        table = table_of(kind)
        if kind not in self._known:
            if table.name in {storage_of(known).table for known in self._known}:
                raise ValueError(f"the table {table.name} is another type's")
            self._known.add(kind)
        return table

    def refuse(self, kind: type) -> bool:
        """Note that a record of `kind` cannot be recorded, and return whether that is news."""
        is_news = kind not in self._refused
        self._refused.add(kind)
        return is_news
