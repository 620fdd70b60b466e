"""Values at the script's own lines: pdb's commands, with tensors as summaries."""

from __future__ import annotations

import inspect
import pdb
from types import CodeType
from typing import Any

from tkdebug.debugger.value_text import found_text
from tkdebug.errors import Terminated

_GRID = (1, 1, 1)


class HostValues(pdb.Pdb):
    """pdb, which shows the shape, minimum, maximum and mean of a tensor; `pp` shows elements."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # What is shown at each stop in a function.
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
        """Show what a line of Python gives."""
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
        """Undisplay [expression]: show it no more; alone: none of this function."""
        if arg and arg not in self._displayed():
            self.error(f"{arg} is not displayed")
            return
        self._displayed()[:] = [text for text in self._displayed() if arg and text != arg]

    def show_displayed(self) -> None:
        """Show what is displayed in this function."""
        self._show(self._displayed())

    def _displayed(self) -> list[str]:
        code = None if self.curframe is None else self.curframe.f_code
        return self._shown.setdefault(code, [])

    def _show(self, texts: list[str]) -> None:
        for text in texts:
            value: Any = self._getval_except(text)
            self.message(f"{text} = {found_text(value, (), _GRID)}")
