"""Breakpoints at the script's own lines, which are pdb's, beside those of its kernels."""

from __future__ import annotations

import bdb
import sys
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, Literal

from tkdebug.debugger.console.breakpoint_commands import split_condition
from tkdebug.debugger.console.host_values import HostValues
from tkdebug.debugger.console.moving_commands import resolved_file
from tkdebug.debugger.lines import function_line, kernel_heads, kernel_lines, nearest_code
from tkdebug.errors import UsageError
from tkdebug.process.named_files import source_lines

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console


class HostBreakpoints(HostValues):
    """pdb whose `break` is for kernels, too; no number is given twice."""

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
        """As pdb's, which says no more than that a line is blank, or that the file ends."""
        lines = source_lines(filename)
        if lineno > len(lines):
            self.error(f"{filename}:{lineno}: the file has {len(lines)} lines")
            return 0
        text = lines[lineno - 1].strip() if lineno > 0 else ""
        if not text or text.startswith("#"):
            self.error(
                f"{filename}:{lineno}: no code is at this line{nearest_code(filename, lineno)}"
            )
            return 0
        return int(super().checkline(filename, lineno))

    def break_here(self, frame: FrameType) -> bool:
        """Whether a breakpoint is met; it is where its condition was interrupted, or fails."""
        made = self.get_breaks(frame.f_code.co_filename, frame.f_lineno)
        if not any(one.cond for one in made):
            return bool(super().break_here(frame))
        meets = super().break_here
        return bool(self._console.debugger.expressions.call(lambda: meets(frame), is_brief=True))

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

    # While a kernel is stopped

    def break_at(self, file: str, line: int, condition: str | None, is_temporary: bool) -> str:
        """A breakpoint at a line of the script, to be met behind the launch."""
        self.number_alike()
        problem = self.set_break(file, line, is_temporary, condition)
        if problem:
            raise UsageError(str(problem))
        self.number_alike()
        self.stop_in_script()
        self.set_continue()
        # Not the lines of the launch, which is ours.
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
        """Take a breakpoint of the script away."""
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
        """The first line of a function of this file that is no kernel; None where there is none."""
        try:
            line = function_line(self._here(), name)
            return None if line in kernel_lines(self._here()) else line
        except UsageError:
            return None

    def _here(self) -> str:
        return self.curframe.f_code.co_filename if self.curframe else self._console.script


def _met(hits: int) -> str:
    return f"met {hits} time{'' if hits == 1 else 's'}" if hits else "not met yet"
