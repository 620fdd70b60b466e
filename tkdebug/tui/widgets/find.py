"""The line in which to type what to find, and how it moves the cursor of a list."""

from __future__ import annotations

from typing import ClassVar, Protocol

from textual import events, on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from tkdebug.tui.widgets.typing_keys import take_keys

# `:` and the digits of a line; `int` refuses thousands of them.
_LONGEST_LINE = 20


class Searched(Protocol):
    """A widget with a cursor, whose lines are searched; `LineList` is one."""

    cursor: int

    def index_of_line(self, line: int) -> int | None:
        """Return the index of the line of that number, counted from 1, or None."""

    def find(self, wanted: str, begin: int, step: int = 1) -> int | None:
        """Return the index of the first line from `begin` on with `wanted`, wrapping, or None."""

    def move_cursor(self, index: int, *, announce: bool = False, last: int | None = None) -> None:
        """Put the cursor on a line and scroll there."""


class FindBar(Input):
    """A line to find text, which moves the cursor of a list while one types; else hidden."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Close", priority=True),
        Binding("down", "again(1)", "Next", show=False),
        Binding("up", "again(-1)", "Previous", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(
            placeholder="find text, or :LINE   Enter, ↓: next   ↑: previous   Esc: close",
            classes="find",
            select_on_focus=False,  # `open` says what is selected
        )
        self._list: Searched | None = None
        self._begin = 0

    def on_mount(self) -> None:
        """Begin hidden."""
        self.display = False

    def open(self, searched: Searched, *, line: bool = False) -> None:
        """Ask what to find in `searched`, beginning with the last search.

        Args:
            searched: the widget to search.
            line: ask for a line number instead.
        """
        self._list, self._begin = searched, searched.cursor
        self.display = True
        take_keys(self)
        if line:
            self.value, self.cursor_position = ":", 1
        else:
            self.select_all()

    @on(Input.Changed)
    def _find_typed(self, event: Input.Changed) -> None:
        """Go to the first place from where the cursor was."""
        event.stop()
        if self.display:
            self._go(self._begin)

    @on(Input.Submitted)
    def _find_next_or_close(self, event: Input.Submitted) -> None:
        """Go to the next place, or close the bar if a line number was typed."""
        event.stop()
        if self.value.startswith(":"):
            self.action_leave()
        else:
            self.action_again(1)

    def on_blur(self, event: events.Blur) -> None:
        """Close when another widget gets the focus."""
        self.display = False

    def action_again(self, step: int) -> None:
        """Go to the next or previous place."""
        if self._list is not None:
            self._go(self._list.cursor + step, step)

    def action_leave(self) -> None:
        """Close, and leave the cursor where it is."""
        searched, self._list = self._list, None
        self.display = False
        if isinstance(searched, Widget):
            take_keys(searched)

    def _go(self, begin: int, step: int = 1) -> None:
        searched, wanted = self._list, self.value
        if searched is None or not wanted:
            return
        if wanted.startswith(":"):
            is_line = wanted[1:].isdecimal() and len(wanted) <= _LONGEST_LINE
            index = searched.index_of_line(int(wanted[1:])) if is_line else None
        else:
            index = searched.find(wanted, begin, step)
        self.set_class(index is None and wanted != ":", "-nothing")
        if index is not None:
            searched.move_cursor(index, announce=True, last=index)
