"""The console's loop: reads commands, at a terminal with history and completion, and runs them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.console.command import Command, Leftover, ScriptLines
from tkdebug.debugger.goals import Continue, Quit, Resume, Step
from tkdebug.debugger.ir_text import op_text
from tkdebug.debugger.lines import listing
from tkdebug.debugger.programs import program_text
from tkdebug.debugger.stops import Reason, Stop
from tkdebug.errors import NothingStoppedError, TkError, UsageError, error_text
from tkdebug.terminal.text import visible, visible_line

if TYPE_CHECKING:
    from tkdebug.debugger.engine import Debugger
    from tkdebug.debugger.inspection import Inspection

PROMPT = "(tkdebug) "
_LONGEST_OP = 110
NO_TEXT = "the line is no UTF-8 text"
_BOLD, _DIM, _END = "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass
class Console:
    """A front that is asked on stdin, or by a list of commands.

    Attributes:
        find_command: the command of a line, and the words after its name.
        commands: the commands to run first, at the first stop; if one fails, the rest are not run.
        is_json: answers and stops are JSON objects, one a line.
        script: the file that a bare line number means while nothing is stopped.
        frame: the frame that is looked at, 0 the innermost.
        displayed: expressions that are shown at each stop.
        is_over: whether the script is to end.
        leave_kernel: stops at the script's next line; None if nobody debugs the script.
        script_lines: stops at the script's lines; None if nobody debugs the script.
        pass_script: lets the script's lines pass up to the next breakpoint, or is None.
        listed: the last line that `l` has shown; None after a stop.
        lacked_stop: whether the last command is one for a stop, and nothing was stopped.
        is_given: whether the line that was read last was given, not typed.
        has_failed: whether a command of that line has.
        gave_up: whether the script ends because a command that was given has failed.
    """

    find_command: Callable[[str], tuple[Command, str]]
    commands: list[str] = field(default_factory=list)
    is_json: bool = False
    script: str = ""
    write: Callable[[str], None] = print
    is_styled: bool = False
    read_line: Callable[[str], str] | None = None
    frame: int = 0
    displayed: list[str] = field(default_factory=list)
    listed: int | None = None
    is_over: bool = False
    leave_kernel: Callable[[], None] | None = None
    pass_script: Callable[[], None] | None = None
    script_lines: ScriptLines | None = None
    lacked_stop: bool = False
    has_failed: bool = False
    gave_up: bool = False
    is_given: bool = False
    _last: str = ""
    _said: list[str] = field(default_factory=list)
    _data: dict[str, Any] = field(default_factory=dict)
    _debugger: Debugger | None = None

    # Methods for commands

    @property
    def debugger(self) -> Debugger:
        """The debugger that asks."""
        assert self._debugger is not None
        return self._debugger

    def attach(self, debugger: Debugger) -> None:
        """Take the debugger to use before anything stops."""
        self._debugger = debugger

    def say(self, text: str, **data: Any) -> None:
        """Answer: a text for people, `data` for JSON."""
        if self.is_json:
            self._said.append(text)
            self._data |= data
        else:
            self.write(visible(short(text), styled=True))

    def styled(self, text: str, style: str) -> str:
        """Return `text` with control characters visible, bold or dim on a terminal with colours."""
        text = visible(text)
        if not self.is_styled or self.is_json:
            return text
        return f"{_BOLD if style == 'bold' else _DIM}{text}{_END}"

    def place(self) -> tuple[str, int]:
        """File and line of the frame that is looked at.

        Raises:
            UsageError: nothing is stopped, or the launch has ended.
        """
        frames = self.debugger.at_stop.stack
        if not frames:
            raise UsageError("the launch has ended: it is at no line")
        frame = frames[len(frames) - 1 - self.frame]
        return frame.file, frame.line

    # As a front

    def log(self, text: str) -> None:
        """Print a log point's text."""
        if self.is_json:
            self._emit({"event": "log", "text": text})
        else:
            self.write(visible(text))

    def stopped(self, debugger: Debugger, stop: Stop) -> Resume:
        """Show the stop, and ask how to go on."""
        self._debugger = debugger
        self.frame, self.listed = 0, None
        self.show_stop(stop)
        if stop.reason is Reason.PAUSE:
            self.drop_commands()
        self._show_displayed(stop)
        while True:
            line = self.next_line()
            if line is None:
                return self._at_end_of_input()
            resume = self.run_line(line)
            if resume is not None:
                self.follow_in_script(resume, stop)
                return resume
            if self.stops_given_commands():
                return Quit()

    def stops_given_commands(self) -> bool:
        """Drop the given commands if one has failed; return whether the script ends, too.

        It ends if nobody can be asked how it is to go on.
        """
        if not (self.is_given and self.has_failed):
            return False
        rest = self.commands[:]
        self.commands.clear()
        self.gave_up = self.is_over = self.read_line is None
        if self.is_json:
            self._emit({"event": "failed", "not_run": rest, "ends_script": self.gave_up})
            return self.gave_up
        if rest:
            self.write(visible(f"not run: {' ;; '.join(rest)}"))
        if self.gave_up:
            self.write("a command has failed, and nobody can be asked: the script ends here")
        return self.gave_up

    def drop_commands(self) -> None:
        """Drop, after Ctrl-C, the commands that were meant for a stop that has not come."""
        is_asked = self.read_line is not None
        kept = [] if is_asked else [each for each in self.commands if type(each) is str]
        if len(kept) < len(self.commands):
            dropped = [each for each in self.commands if each not in kept]
            self.say(f"not run: {' ;; '.join(dropped)}")
        self.commands[:] = kept

    def follow_in_script(self, resume: Resume, stop: Stop) -> None:
        """Make the debugger of the script's lines stop or pass, as a launch goes on."""
        match resume:
            case Step(backwards=False) if stop.reason is Reason.END:
                if self.leave_kernel is not None:
                    self.leave_kernel()
            case Continue(backwards=False) if self.pass_script is not None:
                self.pass_script()

    def _show_displayed(self, stop: Stop) -> None:
        for text in self.displayed:
            if stop.reason is Reason.END:
                try:
                    self.debugger.at_stop.ask(text)
                except UsageError:
                    continue  # a variable: it has ended with the launch
            self.run_line(f"p {text}")

    def begin(self) -> bool:
        """Run commands before the script runs, such as breakpoints; return whether it is to run."""
        if self.is_json:
            self._emit({"event": "begin", "script": self.script})
        while True:
            line = self.next_line()
            if line is None:
                if self.read_line is not None:
                    self.end_of_input()
                return not self.is_over
            match self.run_line(line):
                case Quit():
                    return False
                case Step():
                    self.debugger.stop_at_next_launch()
                    return True
                case None:
                    if self.stops_given_commands():
                        return False
                case _:
                    return True

    def _at_end_of_input(self) -> Resume:
        if self.read_line is None:
            return Continue()  # the commands that were given have run out
        self.end_of_input()
        return Quit()

    def script_ended(self, exit_status: int) -> None:
        """Say, as JSON, that the script has ended, and with what exit status."""
        if self.is_json:
            self._emit({"event": "end", "exit_status": exit_status})

    def end_of_input(self) -> None:
        """Say that nobody can be asked any more."""
        self.is_over = True
        if self.is_json:
            self._emit({"event": "end of input"})
        else:
            self.write("\nstdin has ended: the script ends here")

    def show_stop(self, stop: Stop) -> None:
        """Show the place of the launch, and the reason of the stop."""
        inspection = self.debugger.at_stop
        census = inspection.census()
        if self.is_json:
            self._emit(
                {
                    "event": "stop",
                    "reason": stop.reason.value,
                    "launch": stop.launch,
                    "kernel": stop.kernel,
                    "frames": [
                        {"file": f.file, "line": f.line, "function": f.function}
                        for f in stop.frames
                    ],
                    "moment": list(stop.moment),
                    "breakpoints": list(stop.breakpoints),
                    "detail": [*stop.detail, *stop.notes],
                    "is_return": stop.is_return,
                    "stage": str(inspection.code.stage),
                    "op": shown_op(inspection, stop),
                    "programs": [program_text(p, census.grid) for p in inspection.programs[:64]],
                    "census": census.text(),
                }
            )
            return
        for line in (*stop.notes, *reasons(stop), *stop.detail):
            self.write(visible(short(line)))
        if stop.reason is Reason.END:
            self.write(f"launch {stop.launch} of {stop.kernel} has ended")
            return
        selection = inspection.selection
        selected = "" if selection.programs is None else f"{selection.text(census.grid)}; "
        self.write(self.styled(self.position(stop), "bold"))
        op = shown_op(inspection, stop, _LONGEST_OP)
        if op:
            self.write(f"   {inspection.code.stage}: {visible(op)}")
        self.write(self.styled(f"   launch {stop.launch}, {selected}{census.text()}", "dim"))
        if stop.is_return:
            self.say_return()

    def position(self, stop: Stop) -> str:
        """File, line, function and the source line, as pdb has them."""
        file, line = self.place()
        frames = self.debugger.at_stop.stack
        function = frames[len(frames) - 1 - self.frame].function
        text = listing(file, line, line, line)[0].partition("\t")[2].strip()
        return f"> {short(file)}({line}){function}()\n-> {text}"

    def say_return(self) -> None:
        """Say what a function is about to return."""
        self.write(visible(return_text(self.debugger.at_stop)))

    # Lines

    def next_line(self) -> str | None:
        """The next line to run, typed or given, or None if there are no more."""
        self.is_given, self.has_failed = bool(self.commands), False
        if self.is_given:
            line = self.commands.pop(0)
            if not self.is_json:
                self.write(f"{PROMPT}{visible(line)}")
            return line
        if self.read_line is None:
            return None
        while True:
            try:
                return self.read_line("" if self.is_json else PROMPT)
            except KeyboardInterrupt:
                self.write("")  # as at a shell: the line is dropped
            except UnicodeDecodeError:
                self.refuse("", NO_TEXT)
            except (EOFError, OSError, ValueError, RuntimeError):
                return None  # it has ended, or the script has closed it

    def run_line(self, line: str) -> Resume | None:
        """Run the commands of a line, which `;;` separates; given ones up to a failure.

        Returns:
            How the launch goes on; the commands after that one wait for the next stop.
        """
        parts = [part.strip() for part in line.split(";;")]
        for place, part in enumerate(parts):
            resume = self._run_command(part or (self._last if len(parts) == 1 else ""))
            if resume is not None:
                self.commands[:0] = map(Leftover, parts[place + 1 :])
                return resume
            if self.is_given and self.has_failed:
                self.commands[:0] = parts[place + 1 :]
                return None
        return None

    def _run_command(self, line: str) -> Resume | None:
        if not line or line.startswith("#"):
            return None
        self._said, self._data = [], {}
        problem = None
        resume = None
        self.lacked_stop = False
        try:
            resume = self.debugger.expressions.call(lambda: self._resume_of(line))
        except TkError as error:
            problem = str(error)
            self.lacked_stop = isinstance(error, NothingStoppedError)
        except Exception as error:  # commands run the user's code
            problem = visible_line(error_text(error))
        if problem is not None:
            self.refuse(line, problem)
        elif self.is_json:
            self._answer(line, resumes=resume is not None)
        return resume

    def _resume_of(self, line: str) -> Resume | None:
        if not is_text(line):
            raise UsageError(NO_TEXT)
        command, rest = self.find_command(line)
        self._last = line if command.repeats else ""
        return command.run(self, rest)

    def refuse(self, line: str, problem: str) -> None:
        """Say why a command was not run."""
        self.has_failed = True
        if self.is_json:
            self._answer(line, error=problem)
        else:
            self.write(f"*** {visible(short(problem))}")

    def _answer(self, line: str, error: str | None = None, resumes: bool = False) -> None:
        answer: dict[str, Any] = {"event": "answer", "command": line, "ok": error is None}
        if error is not None:
            answer["error"] = error
        self._emit({**answer, "resumes": resumes, "text": self._said, **self._data})

    def _emit(self, record: dict[str, Any]) -> None:
        self.write(json.dumps(record))


def is_text(line: str) -> bool:
    """Whether a line was UTF-8: other bytes come as surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in line)


def shown_op(inspection: Inspection, stop: Stop, longest: int = 0) -> str:
    """The op that is about to run, if it is stepped by ops, or by lines of another IR.

    Args:
        inspection: the inspection of the stop.
        stop: the stop.
        longest: the most characters of its text; 0 for all.
    """
    here = inspection.here
    if here is None:
        return ""
    is_line = here.mark is not None or stop.reason is Reason.WATCH
    if is_line and inspection.code.stage.is_front_end:
        return ""
    text = op_text(inspection.code, here.op)
    if longest and len(text) > longest:
        text = f"{text[:longest]} …"
    return f"{text}  (for another round)" if here.op in inspection.code.ahead else text


def return_text(inspection: Inspection) -> str:
    """Say what the stopped function is about to return, as pdb does."""
    from tkdebug.debugger.value_text import reading_text

    value, shown = inspection.returned(), "None"
    if value is not None:
        shown = reading_text(value, inspection.programs, inspection.launch.grid)
    return f"--Return-- {shown}"


def reasons(stop: Stop) -> Iterable[str]:
    """Yield why a launch is stopped, if its place does not say it."""
    if stop.breakpoints:
        numbers = " and ".join(map(str, stop.breakpoints))
        yield f"breakpoint{'s' if len(stop.breakpoints) > 1 else ''} {numbers}"
    match stop.reason:
        case Reason.CALL:
            yield "breakpoint() in the kernel"
        case Reason.PAUSE:
            yield "interrupted"
        case Reason.BEGINNING:
            yield "the beginning of the launch"
        case Reason.FAULT:
            yield "a fault: stopped before the op that has it"


def short(text: str) -> str:
    """Return a text with paths below the current folder relative to it."""
    try:
        return text.replace(os.getcwd() + os.sep, "")
    except OSError:
        return text  # the script has deleted the folder
