"""Events queued for a session's writer, in this process or on the way to the recording process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tkdebug.errors import Frame
from tkdebug.records.events import ArgumentInfo, FaultKind, FaultState


class LaunchStarted(NamedTuple):
    """A launch began; these are fields of `Launch`, in its order, before those of `LaunchEnded`."""

    id: int
    kernel: str
    kernel_hash: str
    mode: str
    grid: tuple[int, int, int]
    options: Mapping[str, object]
    arguments: tuple[ArgumentInfo, ...]
    stream: int
    start_ns: int
    scopes: tuple[str, ...]


class EncodedLaunch(NamedTuple):
    """A launch that began; the same fields as their columns hold them."""

    id: int
    kernel: str
    kernel_hash: str
    mode: str
    grid: str
    options: str
    arguments: str
    stream: object
    start_ns: int | float | None
    scopes: str


class LaunchEnded(NamedTuple):
    """A launch ended; the rest of the fields of `Launch`."""

    id: int
    duration_ns: int | None
    error: str | None
    time_source: str | None = None
    device_start_ns: int | None = None
    device: int | None = None
    device_stream: int | None = None


class Stamped(NamedTuple):
    """A record of any other type, and the time at which it came."""

    event: object
    time_ns: int


class RunEnded(NamedTuple):
    """The run ended; its exit status is None if it is not known."""

    exit_status: int | None
    end_ns: int


class EncodedRow(NamedTuple):
    """A row of a record that another process made, with the facts to make its table.

    Attributes:
        files: files whose source goes into the session with it.
    """

    table: str
    statements: tuple[str, ...]
    insert: str
    values: tuple[object, ...]
    files: tuple[str, ...]


class MadeLineTable(NamedTuple):
    """The line table of a kernel, made in another process."""

    kernel_hash: str
    text: str


class SeenFault(NamedTuple):
    """The fields of `RunningFault` after its process and rank."""

    launch_id: int
    site: int
    kernel: str
    kind: FaultKind
    frames: tuple[Frame, ...]
    tensor: str | None
    state: FaultState
    program: int | None
    bad: int


class SeenFaults(NamedTuple):
    """All findings of launches that run now, which replace those seen before."""

    faults: tuple[SeenFault, ...]


Event = (
    LaunchStarted
    | EncodedLaunch
    | LaunchEnded
    | Stamped
    | RunEnded
    | EncodedRow
    | MadeLineTable
    | SeenFaults
)
