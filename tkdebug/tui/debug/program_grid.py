"""The programs of a launch as a grid: where each is, which ones differ from the one shown."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from tkdebug.debugger.remote.records import Programs
from tkdebug.tui.drawing import palette
from tkdebug.tui.widgets.line_list import LineList

_STYLES = {"#": palette.GOOD, "≠": palette.FAULT, ".": palette.MUTED, "-": palette.MUTED}
_CELL_WIDTH = 2
_SHOWN_SIGN = "◂"


def program_id(linear: int, grid: tuple[int, int, int]) -> str:
    """A program's id as the console takes it: `3`, `3,1`, `3,1,0`."""
    id_ = (linear % grid[0], linear // grid[0] % grid[1], linear // (grid[0] * grid[1]))
    rank = 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1
    return ",".join(map(str, id_[:rank]))


class ProgramGrid(LineList):
    """Rows of programs, x across; grids of one axis go on in the next row.

    A large grid has several programs in a cell, a wide one scrolls.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "across(-1)", "Left", show=False),
        Binding("right", "across(1)", "Right", show=False),
        Binding("enter", "choose", "Select"),
        Binding("a", "all", "Select all"),
    ]

    class ProgramMoved(Message):
        """The cursor moved to another program."""

        def __init__(self, program: int) -> None:
            self.program = program
            super().__init__()

    class ProgramChosen(Message):
        """Programs are to be selected; None for all."""

        def __init__(self, program: int | None) -> None:
            self.program = program
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._programs: Programs | None = None
        self._cell = 0
        self.empty_text = "no launch is stopped"

    def show(self, programs: Programs, *, follows: bool = True) -> None:
        """Show programs; the cursor goes to the one whose values are shown, if it follows."""
        self._programs = programs if programs.states else None
        self.content_changed()
        if follows and programs.shown is not None:
            self._cell = programs.shown // programs.per_cell
        self._put()

    def _put(self) -> None:
        """Scroll to the cell at the cursor."""
        count = 0 if self._programs is None else len(self._programs.states)
        self._cell = max(0, min(self._cell, count - 1))
        self.move_cursor(self._cell // self._columns)
        at = self._label_width + self._cell % self._columns * _CELL_WIDTH
        left, width = self.scroll_offset.x, self.scrollable_content_region.width
        if not left <= at <= left + width - _CELL_WIDTH and width > 0:
            self.scroll_to(x=max(0, at - width // 2), animate=False, force=True, immediate=True)
        self.refresh()

    def on_resize(self) -> None:
        """Lay out rows of another length."""
        self.content_changed()
        self._put()

    @property
    def _columns(self) -> int:
        """Return the number of cells in a row."""
        programs = self._programs
        if programs is None:
            return 1
        if programs.per_cell == 1 and max(programs.grid[1:]) > 1:
            return programs.grid[0]
        fit = max(1, (self.scrollable_content_region.width - self._label_width) // _CELL_WIDTH)
        return min(max(1, len(programs.states)), 1 << (fit.bit_length() - 1))

    @property
    def _label_width(self) -> int:
        programs = self._programs
        if programs is None:
            return 0
        last = (len(programs.states) - 1) * programs.per_cell
        return max(len(program_id(first, programs.grid)) for first in (last, last // 2)) + 1

    @property
    def line_count(self) -> int:
        """The number of rows."""
        return 0 if self._programs is None else -(-len(self._programs.states) // self._columns)

    @property
    def content_width(self) -> int:
        """Width of a row's label and cells."""
        return self._label_width + self._columns * _CELL_WIDTH

    @property
    def program(self) -> int | None:
        """The first program of the cell at the cursor, or None without any."""
        return None if self._programs is None else self._cell * self._programs.per_cell

    @property
    def cursor_text(self) -> str:
        """The program at the cursor."""
        program = self.program
        if program is None or self._programs is None:
            return ""
        return program_id(program, self._programs.grid)

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """Draw a row of programs after the id of its first one."""
        programs, columns = self._programs, self._columns
        assert programs is not None
        first = index * columns
        label = program_id(first * programs.per_cell, programs.grid)
        segments = [Segment(f"{label:>{self._label_width - 1}} ", Style.parse(palette.MUTED))]
        shown = None if programs.shown is None else programs.shown // programs.per_cell
        selected = programs.selected
        chosen = {each // programs.per_cell for each in selected or ()}
        for cell in range(first, min(first + columns, len(programs.states))):
            sign = programs.states[cell]
            style = _STYLES.get(sign, palette.WARNING)
            style += " bold underline" if cell in chosen else ""
            is_cursor = self.has_focus and cell == self._cell
            style += " reverse" if is_cursor else ""
            segments.append(Segment(sign, Style.parse(style)))
            segments.append(Segment(_SHOWN_SIGN if cell == shown else " ", Style.parse("bold")))
        return Strip(segments).crop(left, left + width)

    def action_across(self, step: int) -> None:
        """Move the cursor along the programs."""
        self._go_to(self._cell + step)

    def action_move(self, step: int) -> None:
        """Move the cursor to another row."""
        self._go_to(self._cell + step * self._columns)

    def action_move_page(self, step: int) -> None:
        """Move the cursor by a screenful."""
        self._go_to(self._cell + step * self._columns * max(1, self.visible_rows - 1))

    def action_move_to_end(self, last: bool) -> None:
        """Move the cursor to the first or last program."""
        count = 0 if self._programs is None else len(self._programs.states)
        self._go_to(count - 1 if last else 0)

    def _go_to(self, cell: int) -> None:
        self._cell = cell
        self._put()
        program = self.program
        if program is not None:
            self.post_message(self.ProgramMoved(program))

    def action_choose(self) -> None:
        """Select the program at the cursor."""
        program = self.program
        if program is not None:
            self.post_message(self.ProgramChosen(program))

    def action_all(self) -> None:
        """Select all programs."""
        if self._programs is not None:
            self.post_message(self.ProgramChosen(None))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the program clicked; a second click selects it."""
        event.prevent_default()
        index, x = event.y + self.scroll_offset.y, event.x + self.scroll_offset.x
        if 0 <= index < self.line_count:
            column = max(0, min((x - self._label_width) // _CELL_WIDTH, self._columns - 1))
            self._go_to(index * self._columns + column)
            if event.chain == 2:
                self.action_choose()


def legend(programs: Programs) -> Text:
    """Return the meaning of each sign, with the number of programs that have it."""
    text = Text()
    for group in programs.groups:
        style = _STYLES.get(group.sign, palette.WARNING)
        text.append(f"{group.sign} ", style=style)
        text.append(f"{group.count} {group.text}\n")
    if programs.per_cell > 1:
        text.append(f"a sign stands for {programs.per_cell} programs\n", style=palette.MUTED)
    if programs.note:
        text.append(f"{programs.note}\n", style=palette.MUTED)
    text.rstrip()
    return text
