"""The script's own lines in a Debug pane: pdb, asked over the wire, with pictures of its frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.console.host import HostDebugger
from tkdebug.debugger.inspection import HostFrame
from tkdebug.debugger.lines import code_lines
from tkdebug.debugger.remote.looking import place_of, tensor_map, variable_of
from tkdebug.debugger.remote.pictures import MOST_SUMMED_UP, is_drawn
from tkdebug.debugger.remote.records import Look, Programs, SetBreakpoint, Timeline, View
from tkdebug.errors import Frame

if TYPE_CHECKING:
    from torch import Tensor

    from tkdebug.debugger.console.shell import Console
    from tkdebug.debugger.values import Reading

_NO_PROGRAMS = Programs((0, 0, 0), "", 1, (), None, None, "", "")
_GRID = (1, 1, 1)
_NO_TIME = Timeline(0, -1, 0, ())


class PaneHost(HostDebugger):
    """pdb over the script, asked by a pane.

    Args:
        console: the console of the kernels; what it writes is kept for the pane.
        script: the file at whose lines it stops; "" for one that `begin` finds.
        ask: asks the pane until the script goes on.
    """

    def __init__(self, console: Console, script: str, ask: Callable[[], None]) -> None:
        super().__init__(console)
        self.mainpyfile = self.canonic(script) if script else ""
        self._ask = ask

    @property
    def is_stepping(self) -> bool:
        """Whether it stops at one of the next lines, with or without a breakpoint."""
        return self.stoplineno >= 0

    def _ask_lines(self) -> None:
        """Ask until the script goes on."""
        self._ask()

    def _cmdloop(self) -> None:
        """Run `cmdloop`: pdb's own would ask again after Ctrl-C, which is to end the script."""
        self.cmdloop()

    def print_stack_entry(self, *_: Any, **__: Any) -> None:
        """Print nothing: the pane shows the place."""

    def run_line(self, line: str) -> bool:
        """Run a line of the user's; return whether the script goes on."""
        line = self.precmd(line or self.lastcmd)
        is_done = bool(self.postcmd(self.onecmd(line), line))
        self._console.commands[:0] = self.cmdqueue
        self.cmdqueue = []
        return is_done

    def toggle(self, file: str, line: int) -> str:
        """Set or delete a breakpoint at a line of the script; return the mistake, or ""."""
        if self.get_breaks(file, line):
            return self.clear_break(file, line) or ""
        if line not in code_lines(file):
            return f"{file}:{line}: no statement begins at this line"
        problem = self.set_break(file, line) or ""
        self.number_alike()
        return problem

    def keep_tracing(self) -> None:
        """Trace the script's lines after the stopped launch, so that its breakpoints are met."""
        self.stop_in_script()
        self.set_continue()

    def shown_breakpoints(self) -> list[SetBreakpoint]:
        """Return the breakpoints at lines of the script."""
        found = []
        for file, lines in self.get_all_breaks().items():
            for line in lines:
                for one in self.get_breaks(file, line):
                    text = f"{file}:{line}" + (f", {one.cond}" if one.cond else "")
                    number, is_enabled = int(one.number), bool(one.enabled)
                    found.append(SetBreakpoint(number, file, line, text, is_enabled, one.hits))
        return found

    def view(self, look: Look, reasons: tuple[str, ...]) -> View:
        """Return the view of a stop at a line of the script."""
        frames = [
            HostFrame(Frame(frame.f_code.co_filename, line, frame.f_code.co_name), frame)
            for frame, line in self.stack
        ]
        readings = frames[self.curindex].variables() if frames else {}
        drawn = look.variable if look.variable in readings else ""
        if not is_drawn(readings.get(drawn)):
            drawn = next((name for name in reversed(readings) if _is_quick(readings[name])), "")
        heat = tensor_map(drawn, _tensor(readings[drawn]), look) if drawn else None
        return View(
            reasons=reasons,
            launch=self._console.debugger.launches,
            kernel="",
            grid=(0, 0, 0),
            frames=tuple(place_of(frame.place) for frame in frames),
            frame=max(0, len(frames) - 1 - self.curindex),
            census="",
            selection="all programs",
            variables=tuple(
                variable_of(name, one, (), (1, 1, 1)) for name, one in readings.items()
            ),
            heat=heat,
            programs=_NO_PROGRAMS,
            timeline=_NO_TIME,
        )


def _is_quick(reading: Reading) -> bool:
    return is_drawn(reading) and _tensor(reading).numel() <= MOST_SUMMED_UP


def _tensor(reading: Reading) -> Tensor:
    found: Tensor = reading.value  # type: ignore[union-attr]
    return found
