"""Commands that let the launch go on, or back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tkdebug.debugger.goals import (
    Continue,
    Detach,
    GoTo,
    LastWrite,
    Quit,
    Restart,
    Resume,
    RunToLine,
    Step,
    StepKind,
)
from tkdebug.debugger.lines import checked_line, loaded_files
from tkdebug.debugger.stops import Moment
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console


def _step(kind: StepKind, rest: str, backwards: bool = False) -> Resume:
    count = number(rest) if rest else 1
    if count < 1:
        raise UsageError(f"expected a number of steps, got {rest}")
    return Step(kind, backwards, count=count)


def number(text: str) -> int:
    """A number that was typed.

    Raises:
        UsageError: it is no number.
    """
    try:
        return int(text)
    except ValueError:
        got = f"got {text!r}" if text else "got nothing"
        raise UsageError(f"expected a number, {got}") from None


def step(console: Console, rest: str) -> Resume:
    """Run the command `step`."""
    return _step(StepKind.INTO, rest)


def over(console: Console, rest: str) -> Resume:
    """Run the command `next`."""
    return _step(StepKind.OVER, rest)


def out(console: Console, rest: str) -> Resume:
    """Run the command `return`."""
    return _step(StepKind.OUT, "")


def step_op(console: Console, rest: str) -> Resume:
    """Run the command `stepop`."""
    return _step(StepKind.OP, rest)


def until(console: Console, rest: str) -> Resume:
    """Run the command `until`."""
    return Step(StepKind.UNTIL, line=number(rest) if rest else 0)


def go_on(console: Console, rest: str) -> Resume:
    """Run the command `continue`."""
    return Continue()


def run_to(console: Console, rest: str) -> Resume:
    """Run the command `runto`."""
    return RunToLine(*file_and_line(console, rest))


def step_back(console: Console, rest: str) -> Resume:
    """Run the command `rstep`."""
    return _step(StepKind.INTO, rest, True)


def over_back(console: Console, rest: str) -> Resume:
    """Run the command `rnext`."""
    return _step(StepKind.OVER, rest, True)


def out_back(console: Console, rest: str) -> Resume:
    """Run the command `rreturn`."""
    return _step(StepKind.OUT, "", True)


def step_op_back(console: Console, rest: str) -> Resume:
    """Run the command `rstepop`."""
    return _step(StepKind.OP, rest, True)


def go_back(console: Console, rest: str) -> Resume:
    """Run the command `rcontinue`."""
    return Continue(backwards=True)


def last_write(console: Console, rest: str) -> Resume:
    """Run the command `lastwrite`."""
    from tkdebug.debugger.elements import find_element

    return LastWrite(find_element(console.debugger.at_stop, rest, console.frame))


def jump(console: Console, rest: str) -> Resume:
    """`jump`: go back to a line that has run; lines that have not run cannot be skipped."""
    return RunToLine(*file_and_line(console, rest), backwards=True)


def moment(console: Console, rest: str) -> Resume | None:
    """Run the command `moment`."""
    stop = console.debugger.stop
    assert stop is not None
    if not rest:
        console.say(f"moment {stop.moment.op}.{stop.moment.place}", moment=list(stop.moment))
        return None
    op, _, place = rest.partition(".")
    wanted = Moment(number(op), number(place or "0"))
    if wanted > console.debugger.frontier:
        raise UsageError(f"moment: the launch has not come to {rest.strip()} yet")
    return GoTo(wanted)


def restart(console: Console, rest: str) -> Resume:
    """Run the command `restart`."""
    return Restart()


def run_again(console: Console, rest: str) -> Resume:
    """Run the command `run`."""
    if console.script_lines is None:
        raise UsageError("run: only `tkdebug debug script.py` can begin its script again")
    return Quit(runs_again=True)


def detach(console: Console, rest: str) -> Resume:
    """Run the command `detach`."""
    return Detach()


def quit_(console: Console, rest: str) -> Resume:
    """Run the command `quit`."""
    console.is_over = True
    return Quit()


def file_and_line(console: Console, text: str) -> tuple[str, int]:
    """`LINE`, in the file that is looked at, or `FILE:LINE`; a statement has to begin there.

    Raises:
        UsageError: it is no such place.
    """
    file, colon, line = text.rpartition(":")
    if not colon:
        return (found := current_file(console)), checked_line(found, number(line))
    found = resolved_file(console, file)
    return found, checked_line(found, number(line))


def current_file(console: Console) -> str:
    """The file of the frame that is looked at, of a kernel that has ended, or the script.

    Raises:
        UsageError: nothing is stopped, and no script runs.
    """
    inspection = console.debugger.inspection
    if inspection is not None:
        return console.place()[0] if inspection.frames else inspection.source_file
    if console.script:
        return console.script
    raise UsageError("nothing is stopped: give FILE:LINE")


def resolved_file(console: Console, file: str) -> str:
    """The path that Python has of a file that was typed.

    Raises:
        UsageError: there is no such file.
    """
    near = [os.path.dirname(each) for each in (console.script,) if each]
    for folder in ("", *near):
        path = os.path.abspath(os.path.join(folder, file))
        if os.path.isfile(path):
            return path
    loaded = loaded_files(file)
    if len(loaded) > 1:
        raise UsageError(f"{file}: may be {' or '.join(loaded)}; give more of its path")
    if not loaded:
        raise UsageError(f"{file}: no such file, and no module is loaded from one")
    return loaded[0]
