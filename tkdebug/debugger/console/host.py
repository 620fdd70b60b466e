"""The script's own lines: pdb, which knows of kernels.

pdb stops at lines of the host, the console at lines of kernels; `s` on a launch stops in it.
Breakpoints at the script's lines are pdb's, beside those of its kernels; tensors are shown as
summaries.
"""

from __future__ import annotations

import bdb
import inspect
import pdb
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from tkdebug.causes.mismatch import cause_text
from tkdebug.debugger.console.breakpoint_commands import split_condition
from tkdebug.debugger.console.command import Leftover
from tkdebug.debugger.console.commands import is_command, is_way_back
from tkdebug.debugger.console.moving_commands import resolved_file
from tkdebug.debugger.console.shell import NO_TEXT, is_text, short
from tkdebug.debugger.console.terminal import nobody_reads
from tkdebug.debugger.goals import Ended, RunAgain
from tkdebug.debugger.lines import function_line, kernel_heads, kernel_lines, nearest_code
from tkdebug.debugger.value_text import found_text
from tkdebug.errors import Terminated, TkError, UsageError, error_text
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS
from tkdebug.process.named_files import source_lines
from tkdebug.terminal.text import visible, visible_line

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console

_GRID = (1, 1, 1)


class HostValues(pdb.Pdb):
    """pdb, which shows the shape, minimum, maximum and mean of a tensor; `pp` shows elements."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Expressions shown at each stop in a function.
        self._shown: dict[CodeType | None, list[str]] = {}

    def do_p(self, arg: str) -> None:
        """P expression: its value; a tensor as a summary, `pp` shows its elements."""
        try:
            value = self._getval(arg)
        except Terminated:
            raise
        except BaseException:
            return  # pdb has said what is wrong
        self.message(found_text(value, (), _GRID))

    def displayhook(self, obj: object) -> None:
        """Show the result of a line of Python."""
        if obj is not None:
            self.message(found_text(obj, (), _GRID))

    def do_args(self, arg: str) -> None:
        """a(rgs): the arguments of this function."""
        if self.curframe is None:
            return
        found = inspect.getargvalues(self.curframe)
        given = [*found.args, *(name for name in (found.varargs, found.keywords) if name)]
        for name in given:
            if name in found.locals:
                self.message(f"{name} = {found_text(found.locals[name], (), _GRID)}")

    do_a = do_args

    def do_display(self, arg: str) -> None:
        """Display [expression]: show its value at each stop in this function; alone: show all."""
        if arg and arg not in self._displayed():
            self._displayed().append(arg)
        self._show([arg] if arg else self._displayed())

    def do_undisplay(self, arg: str) -> None:
        """Undisplay [expression]: stop showing it; alone: stop showing all of this function."""
        if arg and arg not in self._displayed():
            self.error(f"{arg} is not displayed")
            return
        self._displayed()[:] = [text for text in self._displayed() if arg and text != arg]

    def do_cause(self, arg: str) -> None:
        """Cause [out[i, j]]: why the last comparison failed: the edit that fixes it, or facts."""
        try:
            self.message(cause_text(arg.strip()))
        except UsageError as error:
            self.error(str(error))

    def show_displayed(self) -> None:
        """Show the displayed expressions of this function."""
        self._show(self._displayed())

    def _displayed(self) -> list[str]:
        code = None if self.curframe is None else self.curframe.f_code
        return self._shown.setdefault(code, [])

    def _show(self, texts: list[str]) -> None:
        for text in texts:
            value: Any = self._getval_except(text)
            self.message(f"{text} = {found_text(value, (), _GRID)}")


class HostBreakpoints(HostValues):
    """pdb whose `break` is for kernels, too; no number is used twice."""

    _console: Console

    def do_break(self, arg: str, temporary: bool | Literal[0, 1] = False) -> None:
        """b(reak): as in pdb; a line or function of a kernel stops there, `fault` and more too."""
        try:
            where, condition = split_condition(arg)
        except UsageError as error:
            self.error(str(error))
            return
        if self._is_of_kernels(where):
            self._console.run_line(f"{'tbreak' if temporary else 'b'} {arg}")
            self.number_alike()
            return
        if not arg and self._console.debugger.breakpoints:
            self._console.run_line("b")
        if where.isidentifier() and not self._has(where):
            # pdb knows no function before its `def` has run.
            where = str(self._line_of_script(where))
        super().do_break(where if condition is None else f"{where}, {condition}", temporary)
        self.number_alike()

    def checkline(self, filename: str, lineno: int) -> int:
        """Return the line if pdb can stop there, else 0, and then name the nearest with code."""
        lines = source_lines(filename)
        if lineno > len(lines):
            self.error(f"{filename}:{lineno}: the last line is {len(lines)}")
            return 0
        text = lines[lineno - 1].strip() if lineno > 0 else ""
        if not text or text.startswith("#"):
            self.error(
                f"{filename}:{lineno}: no code is at this line{nearest_code(filename, lineno)}"
            )
            return 0
        return int(super().checkline(filename, lineno))

    def break_here(self, frame: FrameType) -> bool:
        """Whether a breakpoint is met; it is if its condition was interrupted, or fails."""
        made = self.get_breaks(frame.f_code.co_filename, frame.f_lineno)
        if not any(one.cond for one in made):
            return bool(super().break_here(frame))
        meets = super().break_here
        return bool(self._console.debugger.expressions.call(lambda: meets(frame), is_brief=True))

    def number_alike(self) -> None:
        """Number breakpoints of the script and of kernels so that no number is used twice."""
        known = bdb.Breakpoint
        known.next = max(known.next, self._console.debugger.reserve_numbers(known.next - 1) + 1)
        while len(known.bpbynumber) < known.next:
            known.bpbynumber.append(None)

    do_b = do_break

    def do_tbreak(self, arg: str) -> None:
        """tbreak: as b, once."""
        self.do_break(arg, True)

    def do_watch(self, arg: str) -> None:
        """watch: stop when an element is written, an expression of a kernel changes."""
        self._console.run_line(f"watch {arg}")

    def do_clear(self, arg: str) -> None:
        """cl(ear): as in pdb; for kernels if a number is theirs."""
        numbers = {str(one.number) for one in self._console.debugger.breakpoints}
        if arg and set(arg.split()) <= numbers:
            self._console.run_line(f"clear {arg}")
            return
        super().do_clear(arg)

    do_cl = do_clear

    # While a kernel is stopped

    def break_at(self, file: str, line: int, condition: str | None, is_temporary: bool) -> str:
        """Make a breakpoint at a line of the script, to be met after the launch.

        Raises:
            UsageError: pdb makes none there.
        """
        self.number_alike()
        problem = self.set_break(file, line, is_temporary, condition)
        if problem:
            raise UsageError(str(problem))
        self.number_alike()
        self.stop_in_script()
        self.set_continue()
        # The lines that run the launch are tkdebug's, and are not traced.
        self._console.debugger.tracing = sys.gettrace()
        sys.settrace(None)
        made = self.get_breaks(file, line)[-1]
        return f"breakpoint {made.number} at {file}:{line}, a line of the script"

    def breakpoint_texts(self) -> list[str]:
        """A line for each breakpoint of the script."""
        made = (one for one in bdb.Breakpoint.bpbynumber if one is not None)
        return [
            f"{one.number}  {one.file}:{one.line}, a line of the script"
            f"{f', if {one.cond}' if one.cond else ''}: {_met(one.hits)}"
            for one in made
        ]

    def clear_number(self, number: int) -> str | None:
        """Delete a breakpoint of the script; return the message, None if there is none."""
        if not 0 < number < len(known := bdb.Breakpoint.bpbynumber) or known[number] is None:
            return None
        self.clear_bpbynumber(number)
        return f"breakpoint {number} is gone"

    def stop_in_script(self) -> None:
        """Stop at the next line of the script: a launch of it has ended, step by step."""
        at: FrameType | None = sys._getframe()  # noqa: SLF001
        while at is not None and self.canonic(at.f_code.co_filename) != self.mainpyfile:
            at = at.f_back
        if at is not None:
            bdb.Bdb.set_trace(self, at)

    def _is_number_of_kernels(self, rest: str) -> bool:
        numbers = {str(one.number) for one in self._console.debugger.breakpoints}
        return rest.strip().partition(" ")[0] in numbers

    def _is_of_kernels(self, where: str) -> bool:
        word = where.partition(" ")[0]
        if word in ("fault", "op", "end"):
            return True
        if where.isidentifier():
            if self._has(where):
                return not isinstance(self._names()[where], FunctionType)
            return self._line_of_script(where) is None
        file, colon, line = where.rpartition(":")
        if colon and file.endswith(".py") and line.isdigit() and not self.lookupmodule(file):
            return True  # of a package, maybe one that is imported later
        try:
            path = resolved_file(self._console, file) if colon else self._here()
            lines = {*kernel_lines(path), *kernel_heads(path)}
        except UsageError:
            return False
        return line.isdigit() and int(line) in lines

    def _names(self) -> dict[str, Any]:
        frame = self.curframe
        return {} if frame is None else {**frame.f_globals, **frame.f_locals}

    def _has(self, name: str) -> bool:
        return name in self._names()

    def _line_of_script(self, name: str) -> int | None:
        """The first line of a function of this file that is no kernel; None if there is none."""
        try:
            line = function_line(self._here(), name)
            return None if line in kernel_lines(self._here()) else line
        except UsageError:
            return None

    def _here(self) -> str:
        return self.curframe.f_code.co_filename if self.curframe else self._console.script


def _met(hits: int) -> str:
    return f"met {hits} time{'' if hits == 1 else 's'}" if hits else "not met yet"


T = TypeVar("T")
_ABOUT_BREAKPOINTS = ("condition", "ignore", "enable", "disable", "log", "commands")
_SKIPPED = ("tkdebug", "tkdebug.*", "torch", "torch.*", "importlib*", "<frozen *")


class HostDebugger(HostBreakpoints):
    """pdb over the script, beside a debugger of its kernels.

    Args:
        console: the console of the kernels.
    """

    def __init__(self, console: Console) -> None:
        # bdb keeps breakpoints for the whole process, and takes over those of an earlier debugger.
        bdb.Breakpoint.clearBreakpoints()
        super().__init__(skip=_SKIPPED, nosigint=True, readrc=False)
        self.prompt = "(tkdebug) "
        self._console = console
        self._is_asking = self._is_interrupted = False
        console.leave_kernel, console.pass_script = self.stop_in_script, self._pass_script
        console.script_lines = self

    def begin(self, script: str) -> None:
        """Stop at the first line of the script, which is about to run in this thread.

        Args:
            script: its path; "" for the module that begins as `__main__`.
        """
        self.reset()
        # pdb's own `run_script` does the same: lines of what runs the script are none of it.
        self.mainpyfile = self.canonic(script) if script else ""
        self._wait_for_mainpyfile = True
        sys.settrace(self.trace_dispatch)

    def _pass_script(self) -> None:
        """Forget the step by which the launch was entered."""
        if self.botframe is not None:
            self.set_continue()

    def cmdloop(self, intro: Any = None) -> None:
        """Ask until the script goes on; commands that were given come first."""
        console = self._console
        console.debugger.forget_next_launch()
        self._guarded(self.show_displayed)
        if self._is_interrupted:
            console.drop_commands()
        self._is_interrupted, self._is_asking = False, True
        try:
            self._ask_lines()
        finally:
            self._is_asking = False

    def _ask_lines(self) -> None:
        console = self._console
        while True:
            line = self.cmdqueue.pop(0) if self.cmdqueue else console.next_line()
            if line is None:
                if console.read_line is not None:
                    console.end_of_input()
                    console.debugger.end_script(Ended(0))
                self.set_continue()
                return
            line = self.precmd(line or self.lastcmd)
            try:
                is_done = self.postcmd(self.onecmd(line), line)
            except BrokenPipeError:
                console.is_over = True
                raise nobody_reads() from None
            if is_done:
                return
            if console.has_failed and console.is_given:
                console.commands[:0], self.cmdqueue = self.cmdqueue, []
                if console.stops_given_commands():
                    console.debugger.end_script(Ended(0))

    def interrupt(self, frame: FrameType | None) -> bool:
        """Stop at the script's next line after Ctrl-C; return False if it is to be Python's.

        That is so for a second one before that line, while it asks, and once the script is over.
        """
        if frame is None or self._is_asking or self._is_interrupted or self._console.is_over:
            return False
        self._is_interrupted = True
        self.message("interrupted: it stops at the script's next line, Ctrl-C again ends it")
        bdb.Bdb.set_trace(self, frame)
        return True

    def stop_here(self, frame: FrameType) -> bool:
        """Whether to stop in a frame: only in one of the script's own functions."""
        if self._console.is_over or not super().stop_here(frame):
            return False
        if not self.mainpyfile:
            self._note_main(frame)
        if self.canonic(frame.f_code.co_filename) == self.mainpyfile:
            return True
        at = frame.f_back
        while at is not None and self.canonic(at.f_code.co_filename) != self.mainpyfile:
            if self.is_skipped_module(str(at.f_globals.get("__name__"))):
                return False
            at = at.f_back
        return True

    def _note_main(self, frame: FrameType) -> None:
        """Take the file of the first module that runs as `__main__` as the script."""
        names, file = frame.f_globals, frame.f_code.co_filename
        if frame.f_code.co_name == "<module>" and names.get("__name__") == "__main__":
            if names.get("__file__") == file:
                self.mainpyfile = self.canonic(file)
                self._console.script = file

    def user_exception(self, frame: FrameType, exc_info: Any) -> None:
        """Stop where an exception passes; not where `quit` or `run` in a kernel ends the script."""
        if isinstance(exc_info[1], Ended):
            self.set_continue()
        elif not self._console.is_over:
            super().user_exception(frame, exc_info)

    def get_stack(
        self, f: FrameType | None, t: TracebackType | None
    ) -> tuple[list[tuple[FrameType, int]], int]:
        """The frames of the script, without those of the code that runs it."""
        stack, place = super().get_stack(f, t)
        files = [self.canonic(frame.f_code.co_filename) for frame, _ in stack]
        first = files.index(self.mainpyfile) if self.mainpyfile in files else 0
        return stack[first:], max(place - first, 0)

    def message(self, msg: str) -> None:
        """Print an answer."""
        self._console.write(visible(short(msg)))

    def error(self, msg: object) -> None:
        """Print what is wrong with a command; pdb passes texts and exceptions."""
        if isinstance(found := sys.exc_info()[1], Terminated):
            raise found  # pdb takes it for one of an expression
        self._console.has_failed = True
        self._console.write(f"*** {visible(short(str(msg)))}")

    def onecmd(self, line: str) -> bool:
        """Run a line of the user's."""
        if not is_text(line):
            self.error(NO_TEXT)
            return False
        return bool(self._guarded(lambda: self._run_command(line)))

    def _guarded(self, function: Callable[[], T]) -> T | None:
        """Run a function that runs the user's code; an error in it is one line, and None."""
        try:
            with HELD_GAPS.aside():  # what is looked at here is not read by the script
                return self._console.debugger.expressions.call(function)
        except BrokenPipeError:
            raise
        except TkError as error:
            self.error(str(error))
        except Exception as error:
            self.error(visible_line(error_text(error)))
        return None

    def _run_command(self, line: str) -> bool:
        """Run a command at the script's lines; return whether the script goes on."""
        word, _, rest = line.strip().partition(" ")
        if word in _ABOUT_BREAKPOINTS and self._is_number_of_kernels(rest):
            self._console.run_line(line)
            return False
        if word in ("rwatch", "stage", "trials"):
            self._console.run_line(line)
            return False
        if word == "restart":
            self.error("restart: no kernel is stopped; `run` begins the script again")
            return False
        return bool(super().onecmd(line))

    def default(self, line: str) -> None:
        """Run a line that is not a command of pdb's: Python, or a command for kernels."""
        word, _, rest = line.strip().partition(" ")
        if is_command(word) and not rest.lstrip().startswith("=") and not self._has(word):
            self.error(
                f"{word}: the script's own lines cannot be gone back to; a kernel's can, while it "
                "is stopped"
                if is_way_back(word)
                else f"{word}: no kernel is stopped; `s` at a launch stops in it"
            )
            return
        super().default(line)

    def postcmd(self, stop: bool, line: str) -> bool:
        """Keep the rest of the line for the next stop, whichever it is."""
        if stop and self.cmdqueue:
            self._console.commands[:0] = map(Leftover, self.cmdqueue)
            self.cmdqueue = []
        return stop

    def do_step(self, arg: str) -> bool:
        """s(tep): the next line, or the first line of the kernel that this line launches."""
        self._console.debugger.stop_at_next_launch()
        return bool(super().do_step(arg))

    do_s = do_step

    def do_help(self, arg: str) -> None:
        """h(elp) [command]: all commands, or the help of one; `help pdb` is pdb's own page."""
        name = arg.strip()
        if name and (not is_command(name) or hasattr(self, f"do_{name}")):
            super().do_help(name)
            return
        self._console.run_line(f"help {name}")
        if not name:
            self.message(
                "Here, at the script's lines, this is pdb; what needs a kernel waits for a stop in "
                "one: `s` at a launch, or a breakpoint. `help pdb` is pdb's own page."
            )

    do_h = do_help

    def do_run(self, arg: str) -> NoReturn:
        """run: begin the script again; breakpoints stay."""
        self._console.debugger.end_script(RunAgain(0))

    def do_quit(self, arg: str) -> NoReturn:
        """q(uit): end the script."""
        self._console.is_over = True
        self._console.debugger.end_script(Ended(0))

    do_q = do_exit = do_EOF = do_quit

    def parseline(self, line: str) -> tuple[str | None, str | None, str]:
        """Parse as `cmd` does; Python's own way to leave, which closes stdin, is `quit`."""
        return super().parseline("quit" if line.strip() in ("exit()", "quit()") else line)
