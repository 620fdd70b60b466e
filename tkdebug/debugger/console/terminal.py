"""A console on stdin and stdout, with history, and completion by the tab key."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from tkdebug.debugger.console.commands import COMMANDS, find_command
from tkdebug.debugger.console.shell import Console
from tkdebug.debugger.goals import Ended
from tkdebug.debugger.stages import all_stages
from tkdebug.errors import UsageError
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS
from tkdebug.terminal.text import tell


def completions(console: Console, line: str, text: str) -> list[str]:
    """Return what `text`, the last word of `line`, may become."""
    if line.lstrip().startswith("stage "):
        return _stages(console, line, text)
    if line.strip() == text:
        names = [command.names[0] for command in COMMANDS]
    elif line.removesuffix(text).endswith("%") and console.debugger.inspection is not None:
        names = list(console.debugger.inspection.code.values_by_name)
    else:
        names = [*_names(console, text)]
    return sorted(name for name in names if name.startswith(text))


def _stages(console: Console, line: str, text: str) -> list[str]:
    """Return completions of a stage's name, from `text` on: readline ends words at colons."""
    word = line.lstrip().removeprefix("stage ").lstrip()
    begun = len(word) - len(text)
    found = all_stages(*console.debugger.stages())
    return sorted({stage[begun:] for stage in found if stage.startswith(word)})


def _names(console: Console, text: str) -> list[str]:
    owner, dot, _ = text.rpartition(".")
    if console.debugger.inspection is None:
        return []
    inspection = console.debugger.inspection
    if dot:
        if not all(part.isidentifier() for part in owner.split(".")):
            return []
        try:
            value = inspection.evaluate(owner, console.frame, *inspection.programs[:1])
        except UsageError:
            return []
        return [f"{owner}.{name}" for name in dir(value) if not name.startswith("_")]
    try:
        variables = list(inspection.variables(console.frame))
    except UsageError:
        variables = []
    return [*variables, *inspection.launch.arguments, "pid", "program", "torch", "tl"]


_HISTORY = "~/.tkdebug_history"


def nobody_reads() -> Ended:
    """Close stdout, which has no reader (`… | head`); return the exception to end the script."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    HELD_GAPS.forget()
    return Ended(1)


def terminal_console(
    script: str = "", is_json: bool = False, commands: Sequence[str] = ()
) -> Console:
    """A console on stdin and stdout, with history and completion in a terminal."""
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

    history = os.path.expanduser(_HISTORY)
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
