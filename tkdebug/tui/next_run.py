"""The next run of the script that the app shows: what asks for it, and when."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from textual.message import Message

from tkdebug.instrument.records import RunInfo


@dataclass(frozen=True, slots=True)
class Again:
    """A request to run the script again, which is met when the app has ended.

    Attributes:
        options: further options of `tkdebug run`.
        saves: the files that start another run whenever one is saved; () for none.
        tab: the tab to begin with; "" for the usual one.
    """

    options: tuple[str, ...] = ()
    saves: tuple[str, ...] = ()
    tab: str = ""


class RunAgain(Message):
    """A pane's request to run the script again, with options that give it something to show."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self.options = options
        super().__init__()


class Saves:
    """Files that are watched for changes.

    Args:
        files: their paths; those that are not there are left out.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self.files = tuple(sorted(file for file in files if Path(file).is_file()))
        self._last_ns = self._written_ns()

    def changed(self) -> bool:
        """Return whether one of them was written since the last call."""
        before, self._last_ns = self._last_ns, self._written_ns()
        return before != self._last_ns

    def _written_ns(self) -> int:
        times = [0]
        for file in self.files:
            with contextlib.suppress(OSError):
                times.append(Path(file).stat().st_mtime_ns)
        return max(times)


def command_of(run: RunInfo, options: tuple[str, ...]) -> str:
    """Return the command that runs a recorded run's script; "" if that is not here."""
    if not Path(run.script).is_file():
        return ""
    return shlex.join(("tkdebug", "run", *options, run.script, *run.argv))
