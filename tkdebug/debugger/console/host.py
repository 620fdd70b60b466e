"""The script's own lines: pdb, which knows of kernels.

pdb stops at lines of the host, the console at lines of kernels; `s` on a launch stops in it.
"""

from __future__ import annotations

import bdb
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tkdebug.debugger.console.command import Leftover
from tkdebug.debugger.console.commands import is_command, is_way_back
from tkdebug.debugger.console.host_breakpoints import HostBreakpoints
from tkdebug.debugger.console.shell import NO_TEXT, is_text, short
from tkdebug.debugger.console.terminal import nobody_reads
from tkdebug.debugger.goals import Ended, RunAgain
from tkdebug.errors import Terminated, TkError, error_text
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS
from tkdebug.terminal.text import visible, visible_line

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console

T = TypeVar("T")
_ABOUT_BREAKPOINTS = ("condition", "ignore", "enable", "disable", "log", "commands")
_SKIPPED = ("tkdebug", "tkdebug.*", "torch", "torch.*", "importlib*", "<frozen *")


class HostDebugger(HostBreakpoints):
    """pdb over the script, beside a debugger of its kernels.

    Args:
        console: of the kernels.
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
            script: its path; "" for that of the module that begins as `__main__`.
        """
        self.reset()
        # As pdb's own `run_script`: lines of what runs the script are none of it.
        self.mainpyfile = self.canonic(script) if script else ""
        self._wait_for_mainpyfile = True
        sys.settrace(self.trace_dispatch)

    def _pass_script(self) -> None:
        """Forget the step by which the launch was entered."""
        if self.botframe is not None:
            self.set_continue()

    def cmdloop(self, intro: Any = None) -> None:
        """Ask until the script goes on; the commands that were given come first."""
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
        """Ctrl-C: stop at the script's next line; a second one before it comes is Python's."""
        if frame is None or self._is_asking or self._is_interrupted or self._console.is_over:
            return False
        self._is_interrupted = True
        self.message("interrupted: it stops at the script's next line, Ctrl-C again ends it")
        bdb.Bdb.set_trace(self, frame)
        return True

    def stop_here(self, frame: FrameType) -> bool:
        """Not in what tkdebug or torch call, but in the script's own functions."""
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
        """The first line of a module that runs as `__main__` says which file is the script."""
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
        """The frames of the script, without those of what runs it."""
        stack, place = super().get_stack(f, t)
        files = [self.canonic(frame.f_code.co_filename) for frame, _ in stack]
        first = files.index(self.mainpyfile) if self.mainpyfile in files else 0
        return stack[first:], max(place - first, 0)

    def message(self, msg: str) -> None:
        """Print an answer."""
        self._console.write(visible(short(msg)))

    def error(self, msg: object) -> None:
        """Print what is wrong with a command; pdb hands over texts and exceptions."""
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
        """Run what runs the user's code; what goes wrong in it is one line, and gives None."""
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
        """Run a command; those that are for kernels alone say so."""
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
        """A line that is not a command of pdb's: Python, or a command for kernels."""
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
        """What is left of the line is for the next stop, whichever it is."""
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
        """h(elp) [command]: all commands, or what one does; `help pdb` is pdb's own page."""
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
