"""The link to the debugger in the script's process, and its messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textual.message import Message

from tkdebug.debugger.remote.records import RecordError, SetBreakpoint, View, Wire, record_of
from tkdebug.tui.drawing.highlight import highlight_python
from tkdebug.tui.drawing.lines import Code, lines_of


@dataclass(frozen=True, slots=True)
class Answer:
    """The output of a command; `command` is "" for output that comes unasked."""

    command: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Runs:
    """The message that the script goes on."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The script's process has ended, or no longer debugs."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The number of commands that wait for the next stop."""

    count: int


@dataclass(frozen=True, slots=True)
class SourceText:
    """A source file; no lines where it cannot be read."""

    file: str
    code: Code


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """The message that lists all breakpoints."""

    all: tuple[SetBreakpoint, ...]


Said = View | Answer | Runs | Gone | Ahead | SourceText | Breakpoints


class DebugSaid(Message):
    """The debugger has news."""

    def __init__(self, said: Said) -> None:
        self.said = said
        super().__init__()


class DebugAsked(Message):
    """A pane's request to the debugger."""

    def __init__(self, message: Mapping[str, Any]) -> None:
        self.message = message
        super().__init__()

    @classmethod
    def to_toggle(cls, file: str, line: int) -> DebugAsked:
        """Return the request that sets a breakpoint at a line, or removes it."""
        return cls({"do": "break", "file": file, "line": line})


class DebugLink:
    """The debugger of the script.

    Args:
        wire: the wire to it.
        commands: the first commands.
    """

    def __init__(self, wire: Wire, commands: Sequence[str] = ()) -> None:
        self._wire = wire
        if commands:
            self.send({"do": "commands", "lines": list(commands)})

    def read(self, post: Callable[[Message], object]) -> None:
        """Post the debugger's messages, until it is gone. In a thread."""
        for message in self._wire.messages():
            said = _said(message)
            if said is not None:
                post(DebugSaid(said))
        post(DebugSaid(Gone()))

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send a request; return False if the debugger does not take it."""
        return self._wire.send(message, waits=False)

    def close(self) -> None:
        """Close the link: a stopped launch goes on."""
        self._wire.close()


def _said(message: Mapping[str, Any]) -> Said | None:
    try:
        match message:
            case {"event": "view", "view": view}:
                return record_of(View, view)
            case {"event": "answer", "command": str(command), "lines": [*lines]}:
                return Answer(command, tuple(map(str, lines)))
            case {"event": "breakpoints", "breakpoints": [*all]}:
                return Breakpoints(tuple(record_of(SetBreakpoint, one) for one in all))
            case {"event": "source", "file": str(file), "text": str(text)}:
                code = lines_of(text)
                return SourceText(file, Code(code, 1, highlight_python(code)))
            case {"event": "ahead", "count": int(count)}:
                return Ahead(count)
            case {"event": "running"}:
                return Runs()
    except RecordError as error:
        return Answer("", (f"*** what the debugger sent cannot be read: {error}",))
    return None
