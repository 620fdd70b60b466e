"""A console on stdin and stdout."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tkdebug.debugger.console.commands import find_command
from tkdebug.debugger.console.completion import completions
from tkdebug.debugger.console.shell import Console
from tkdebug.debugger.goals import Ended
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS
from tkdebug.terminal.text import tell

_HISTORY = Path("~/.tkdebug_history")


def nobody_reads() -> Ended:
    """Return the exception that ends the script once stdout has no reader (`… | head`)."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    HELD_GAPS.forget()
    return Ended(1)


def terminal_console(
    script: str = "", is_json: bool = False, commands: Sequence[str] = ()
) -> Console:
    """A console on stdin and stdout, with history and completion where that is a terminal."""
    answers = sys.stdout

    def write(text: str) -> None:
        # Not what the script may have put in the place of stdout since.
        try:
            print(text, file=answers, flush=True)
        except UnicodeEncodeError:
            coding = answers.encoding
            written = text.encode(coding, "backslashreplace").decode(coding)
            print(written, file=answers, flush=True)
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                tell(f"stdout: cannot be written ({error.strerror})")
            raise nobody_reads() from None

    if isinstance(sys.stdin, io.TextIOWrapper):
        # A byte that is no text makes its line a wrong one, and costs none of those after it.
        with contextlib.suppress(io.UnsupportedOperation):  # the script has read of it
            sys.stdin.reconfigure(errors="surrogateescape")
    console = Console(find_command, [*commands], is_json, script, write, read_line=input)
    if not is_json and sys.stdin is not None and sys.stdin.isatty():
        _set_up_readline(console)
        console.is_styled = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return console


def _set_up_readline(console: Console) -> None:
    try:
        import readline
    except ImportError:
        return  # Pythons without it have neither history nor completion
    from atexit import register

    history = _HISTORY.expanduser()
    try:
        readline.read_history_file(history)
    except OSError:
        pass  # none yet
    readline.set_history_length(1000)

    def save() -> None:
        try:
            readline.write_history_file(history)
        except OSError:
            pass  # a home that cannot be written to keeps none

    register(save)
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            found[:] = completions(console, readline.get_line_buffer(), text)
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" \t\n`~!@#$%^&*()-=+[{]}\\|;:'\",<>?")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
