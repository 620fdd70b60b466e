"""The script's own lines: pdb, which knows of kernels.

pdb stops at lines of the host, the console at lines of kernels; `s` on a launch stops in it.
"""

from __future__ import annotations

import pdb
import sys
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from tkdebug.debugger.console.moving_commands import resolved_file
from tkdebug.debugger.lines import kernel_lines
from tkdebug.debugger.session import Ended
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console

_SKIPPED = ("tkdebug", "tkdebug.*", "torch", "torch.*", "importlib*", "<frozen *")


class HostDebugger(pdb.Pdb):
    """pdb over the script, beside a debugger of its kernels.

    Args:
        console: of the kernels.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(skip=_SKIPPED, nosigint=True, readrc=False)
        self.prompt = "(tkdebug) "
        self._console = console

    def begin(self, script: str) -> None:
        """Stop at the first line of the script, which is about to run in this thread."""
        self.reset()
        # As pdb's own `run_script`: lines of what runs the script are none of it.
        self.mainpyfile = self.canonic(script)
        self._wait_for_mainpyfile = True
        sys.settrace(self.trace_dispatch)

    def cmdloop(self, intro: Any = None) -> None:
        """Ask until the script goes on; the commands that were given come first."""
        console = self._console
        console.debugger.forget_next_launch()
        while True:
            line = self.cmdqueue.pop(0) if self.cmdqueue else console.next_line()
            if line is None:
                if console.read_line is not None:
                    console.write("")
                    self.do_quit("")
                self.set_continue()
                return
            line = self.precmd(line or self.lastcmd)
            if self.postcmd(self.onecmd(line), line):
                return

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
            return
        if not arg and self._console.debugger.breakpoints:
            self._console.run_line("b")
        super().do_break(arg, temporary)

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

    def _is_of_kernels(self, arg: str) -> bool:
        where = arg.partition(",")[0].strip()
        word = where.partition(" ")[0]
        if word in ("fault", "op", "end"):
            return True
        file, colon, line = where.rpartition(":")
        try:
            path = resolved_file(self._console, file) if colon else self._here()
            lines = kernel_lines(path)
        except UsageError:
            return False
        if line.isdigit():
            return int(line) in lines
        return line in lines.values()

    def _here(self) -> str:
        return self.curframe.f_code.co_filename if self.curframe else self._console.script
