"""The script's own lines: pdb, which knows of kernels.

pdb stops at lines of the host, the console at lines of kernels; `s` on a launch stops in it.
"""

from __future__ import annotations

import bdb
import linecache
import pdb
import sys
from types import FrameType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from tkdebug.debugger.console.commands import is_command, is_way_back
from tkdebug.debugger.console.moving_commands import resolved_file
from tkdebug.debugger.console.shell import short
from tkdebug.debugger.console.terminal import nobody_reads
from tkdebug.debugger.lines import function_line, kernel_lines
from tkdebug.debugger.session import Ended
from tkdebug.errors import UsageError
from tkdebug.terminal_text import visible

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console

_ABOUT_BREAKPOINTS = ("condition", "ignore", "enable", "disable", "log", "commands")
_SKIPPED = ("tkdebug", "tkdebug.*", "torch", "torch.*", "importlib*", "<frozen *")


class HostDebugger(pdb.Pdb):
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
        console.leave_kernel, console.pass_script = self.stop_in_script, self._pass_script

    def begin(self, script: str) -> None:
        """Stop at the first line of the script, which is about to run in this thread."""
        self.reset()
        # As pdb's own `run_script`: lines of what runs the script are none of it.
        self.mainpyfile = self.canonic(script)
        self._wait_for_mainpyfile = True
        sys.settrace(self.trace_dispatch)

    def stop_in_script(self) -> None:
        """Stop at the next line of the script: a launch of it has ended, step by step."""
        at: FrameType | None = sys._getframe()  # noqa: SLF001
        while at is not None and self.canonic(at.f_code.co_filename) != self.mainpyfile:
            at = at.f_back
        if at is not None:
            bdb.Bdb.set_trace(self, at)

    def _pass_script(self) -> None:
        """Forget the step by which the launch was entered."""
        if self.botframe is not None:
            self.set_continue()

    def cmdloop(self, intro: Any = None) -> None:
        """Ask until the script goes on; the commands that were given come first."""
        console = self._console
        console.debugger.forget_next_launch()
        while True:
            line = self.cmdqueue.pop(0) if self.cmdqueue else console.next_line()
            if line is None:
                if console.read_line is not None:
                    console.end_of_input()
                    raise Ended(0)
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

    def stop_here(self, frame: FrameType) -> bool:
        """Not in what tkdebug or torch call, but in the script's own functions."""
        if self._console.is_over or not super().stop_here(frame):
            return False
        if self.canonic(frame.f_code.co_filename) == self.mainpyfile:
            return True
        at = frame.f_back
        while at is not None and self.canonic(at.f_code.co_filename) != self.mainpyfile:
            if self.is_skipped_module(str(at.f_globals.get("__name__"))):
                return False
            at = at.f_back
        return True

    def user_exception(self, frame: FrameType, exc_info: Any) -> None:
        """Stop where an exception passes; not where `quit` in a kernel ends the script."""
        if not self._console.is_over:
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
        self._console.write(f"*** {visible(short(str(msg)))}")

    def onecmd(self, line: str) -> bool:
        """Run a line of the user's; commands that are for kernels alone say so here."""
        word, _, rest = line.strip().partition(" ")
        if word in _ABOUT_BREAKPOINTS and self._is_number_of_kernels(rest):
            self._console.run_line(line)
            return False
        if word in ("rwatch", "stage"):
            self._console.run_line(line)
            return False
        if word in ("restart", "run"):
            self.error(
                f"{word}: no kernel is stopped; to begin the script again, quit and start it"
            )
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
            self._console.commands[:0] = self.cmdqueue
            self.cmdqueue = []
        return stop

    def do_step(self, arg: str) -> bool:
        """s(tep): the next line, or the first line of the kernel that this line launches."""
        self._console.debugger.stop_at_next_launch()
        return bool(super().do_step(arg))

    do_s = do_step

    def do_break(self, arg: str, temporary: bool | Literal[0, 1] = False) -> None:
        """b(reak): as in pdb; a line or function of a kernel stops there, `fault` and more too."""
        if self._is_of_kernels(arg):
            self._console.run_line(f"{'tbreak' if temporary else 'b'} {arg}")
            self.number_alike()
            return
        if not arg and self._console.debugger.breakpoints:
            self._console.run_line("b")
        name, comma, condition = arg.partition(",")
        if name.strip().isidentifier() and not self._has(name.strip()):
            # pdb knows no function before its `def` has run.
            arg = f"{self._line_of_script(name.strip())}{comma}{condition}"
        super().do_break(arg, temporary)
        self.number_alike()

    def checkline(self, filename: str, lineno: int) -> int:
        """As pdb's, which says no more than that the file ends."""
        count = len(linecache.getlines(filename))
        if lineno > count:
            self.error(f"{filename}:{lineno}: the file has {count} lines")
            return 0
        return int(super().checkline(filename, lineno))

    def number_alike(self) -> None:
        """Let no breakpoint of the host have the number of one of a kernel's."""
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
        """cl(ear): as in pdb; of kernels where a number is theirs."""
        numbers = {str(one.number) for one in self._console.debugger.breakpoints}
        if arg and set(arg.split()) <= numbers:
            self._console.run_line(f"clear {arg}")
            return
        super().do_clear(arg)

    do_cl = do_clear

    def do_quit(self, arg: str) -> NoReturn:
        """q(uit): end the script."""
        self._console.is_over = True
        raise Ended(0)

    do_q = do_exit = do_EOF = do_quit

    def _is_number_of_kernels(self, rest: str) -> bool:
        numbers = {str(one.number) for one in self._console.debugger.breakpoints}
        return rest.strip().partition(" ")[0] in numbers

    def _is_of_kernels(self, arg: str) -> bool:
        where = arg.partition(",")[0].strip()
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
            lines = kernel_lines(path)
        except UsageError:
            return False
        return line.isdigit() and int(line) in lines

    def _names(self) -> dict[str, Any]:
        frame = self.curframe
        return {} if frame is None else {**frame.f_globals, **frame.f_locals}

    def _has(self, name: str) -> bool:
        return name in self._names()

    def _line_of_script(self, name: str) -> int | None:
        """The first line of a function of this file that is no kernel; None where there is none."""
        try:
            line = function_line(self._here(), name)
            return None if line in kernel_lines(self._here()) else line
        except UsageError:
            return None

    def _here(self) -> str:
        return self.curframe.f_code.co_filename if self.curframe else self._console.script
