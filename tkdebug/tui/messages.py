"""Messages from threads and panes to the app. Payloads are immutable."""

from __future__ import annotations

from typing import Literal

from textual.message import Message

from tkdebug.instrument.passes.kernel_passes import KernelPasses
from tkdebug.instrument.records import FaultKey, Launch
from tkdebug.records.events import AutotuneChoice
from tkdebug.tui.home.sheet import RunIndex
from tkdebug.tui.kernel.text import KernelText
from tkdebug.tui.script.terminal import OutputSnapshot
from tkdebug.tui.session.snapshot import ScriptState, Snapshot


class SnapshotTaken(Message):
    """The session has news, or the script's state changed."""

    def __init__(self, snapshot: Snapshot | None, state: ScriptState) -> None:
        self.snapshot = snapshot
        self.state = state
        super().__init__()


class SessionFailed(Message):
    """The session cannot be read for now; with no reason, it can again."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__()


class OutputChanged(Message):
    """The script wrote something."""

    def __init__(self, output: OutputSnapshot) -> None:
        self.output = output
        super().__init__()


class ScriptEnded(Message):
    """The child has ended and its output is read."""


class StopFinished(Message):
    """The script has been ended, as the user asked."""


class LaunchLoaded(Message):
    """The details of the launch that was asked for, and its kernel's autotunings.

    Attributes:
        inside: lines of where its time went, if it has timelines.
    """

    def __init__(
        self,
        launch: Launch | None,
        tunings: tuple[AutotuneChoice, ...] = (),
        inside: tuple[str, ...] = (),
    ) -> None:
        self.launch, self.tunings, self.inside = launch, tunings, inside
        super().__init__()


class KernelLoaded(Message):
    """The text that the kernel pane asked for, and the line to go to."""

    def __init__(self, text: KernelText, line: int | None) -> None:
        self.text = text
        self.line = line
        super().__init__()


class ModelRead(Message):
    """The model of the run that the home pane asked for.

    Attributes:
        index: None where it cannot be read.
        failure: why, "" where it can.
        took_s: how long it took; None where more follows.
    """

    def __init__(
        self, index: RunIndex | None, failure: str = "", took_s: float | None = None
    ) -> None:
        self.index, self.failure, self.took_s = index, failure, took_s
        super().__init__()


class Jumped(Message):
    """The user goes elsewhere.

    Attributes:
        tab: the tab of the pane that was looked at.
        position: what was looked at there, for its `restore`.
    """

    def __init__(self, tab: str, position: object) -> None:
        self.tab, self.position = tab, position
        super().__init__()


class OpenKernel(Message):
    """A request for a kernel, at a source line if one is given.

    Attributes:
        kernel_hash: the specialisation; if None or unknown, the first of that name.
    """

    def __init__(
        self, kernel_hash: str | None, name: str, file: str | None = None, line: int | None = None
    ) -> None:
        self.kernel_hash = kernel_hash
        self.name = name
        self.file = file
        self.line = line
        super().__init__()


class Told(Message):
    """A thread's message to the user."""

    def __init__(
        self, text: str, severity: Literal["information", "error"] = "information"
    ) -> None:
        self.text = text
        self.severity = severity
        super().__init__()


class OpenFault(Message):
    """A request to show a fault."""

    def __init__(self, key: FaultKey) -> None:
        self.key = key
        super().__init__()


class PassesLoaded(Message):
    """The passes that the passes pane asked for; None if none were recorded.

    Attributes:
        kernel_hash: the hash of their kernel.
    """

    def __init__(self, kernel_hash: str, passes: KernelPasses | None) -> None:
        self.kernel_hash = kernel_hash
        self.passes = passes
        super().__init__()


class FollowLine(Message):
    """A request for the life of a source line through the passes of a kernel."""

    def __init__(self, kernel_hash: str, file: str, line: int) -> None:
        self.kernel_hash = kernel_hash
        self.file = file
        self.line = line
        super().__init__()


class TabMarked(Message):
    """The mark after the name of a pane's tab has changed."""
