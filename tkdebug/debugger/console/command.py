"""Parts of a console beside its loop: commands, and its questions to the script's side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from tkdebug.debugger.goals import Resume

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console


class Leftover(str):
    """A command after `;;`, which waits for the stop that the one before it brings."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command that can be typed.

    Attributes:
        names: the first is the one that help shows, the others are short for it.
        usage: its arguments.
        summary: its effect, in a line.
        run: gets the console and the rest of the line; returns how the launch goes on, or None.
        repeats: whether an empty line does it again.
    """

    names: tuple[str, ...]
    usage: str
    summary: str
    run: Callable[[Console, str], Resume | None]
    repeats: bool = True


class ScriptLines(Protocol):
    """The debugger of the script's own lines, as a kernel's console uses it."""

    def break_at(self, file: str, line: int, condition: str | None, is_temporary: bool) -> str:
        """Make a breakpoint; return the message.

        Raises:
            UsageError: no breakpoint can be there.
        """
        ...

    def breakpoint_texts(self) -> list[str]:
        """Return a line of text for each breakpoint."""
        ...

    def clear_number(self, number: int) -> str | None:
        """Delete the breakpoint of a number; return the message, None if there is none."""
        ...

    def interrupt(self, frame: FrameType | None) -> bool:
        """Stop at the script's next line, on Ctrl-C at `frame`; return False to end the script."""
        ...
