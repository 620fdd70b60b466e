"""One form of the kernel beside its source, with the rows of the chosen line lit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.strip import Strip

from tkdebug.instrument.home.records import Code, Place, StageModel
from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.highlight import highlight_ir, highlight_sass
from tkdebug.tui.drawing.lines import Code as Lines
from tkdebug.tui.home.sheet import STAGES
from tkdebug.tui.widgets.code_view import CodeView


class StageView(CodeView):
    """The rows of a stage, with their numbers or addresses."""

    KEEPS_COLOURS = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Its line")]

    def __init__(self) -> None:
        super().__init__(id="home-stage")
        self._stage: StageModel | None = None
        self._code_of: Code | None = None
        self._places: Sequence[frozenset[Place]] = ()

    def show_stage(self, code: Code | None, name: str) -> None:
        """Show a stage, the first of the code for a name that it does not have."""
        stages = () if code is None else code.stages
        stage = next((one for one in stages if one.name == name), stages[0] if stages else None)
        if stage is self._stage and code is self._code_of:
            return
        self._stage, self._code_of = stage, code
        self._places = () if code is None else [frozenset(chain) for chain in code.chains]
        if stage is None:
            self.show_code(Lines(), {})
            return
        spans = (highlight_sass if stage.name == "sass" else highlight_ir)(stage.text)
        self.show_code(Lines(stage.text, 1, spans), {})

    def light_place(self, place: Place | None) -> None:
        """Light the rows of a source line, and scroll to where most of them are."""
        lit = self.rows_of(place)
        self.light(lit, scroll=False)
        if lit:
            begin, end = _densest(lit, max(4, self.visible_rows))
            self.move_cursor(begin - 1, last=end - 1)

    def rows_of(self, place: Place | None) -> list[int]:
        """The numbers of the rows of a source line, from 1."""
        if self._stage is None or place is None:
            return []
        of_line = {number for number, found in enumerate(self._places) if place in found}
        return [row for row, chain in enumerate(self._stage.chains, 1) if chain in of_line]

    def source_of(self, index: int) -> Place | None:
        """The source line that a row comes from."""
        if self._stage is None or self._code_of is None or index >= len(self._stage.chains):
            return None
        chain = self._stage.chains[index]
        return self._code_of.chains[chain][-1] if chain >= 0 else None

    def number_text(self, index: int) -> str:
        """The number of a row of the whole text, or an address."""
        if self._stage is None:
            return ""
        number = self._stage.numbers[index]
        return f"{number:04x}" if self._stage.name == "sass" else str(number)

    @property
    def _gutter_width(self) -> int:
        if self._stage is None or not self._stage.numbers:
            return 4
        return max(len(self.number_text(len(self._stage.numbers) - 1)), 2) + 3

    def render_gutter(self, index: int, is_lit: bool) -> list[Segment]:
        """Draw the sign of a row that is lit, and its number."""
        digits = self._gutter_width - 3
        style = Style.parse(palette.GOOD if is_lit else palette.MUTED)
        return [
            Segment("▌" if is_lit else " ", style),
            Segment(f"{self.number_text(index):>{digits}}  ", style),
        ]

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """Draw a row."""
        is_lit = index + 1 in self.lit
        room = max(0, width - self._gutter_width)
        code = self._code_strip(index).crop(left, left + room)
        return Strip([*self.render_gutter(index, is_lit), *code])


def stage_head(code: Code | None, shown: str, rows: Mapping[str, int], width: int) -> Text:
    """Return the stages in one row, each with how many of its rows come from the line.

    Args:
        code: of the specialisation.
        shown: the stage that is shown.
        rows: of the line, by stage.
        width: of the row in cells.
    """
    stages = () if code is None else code.stages
    names = [one.name for one in stages]
    at = shown if shown in names else next(iter(names), "")
    head = _stage_names(names, at, rows)
    if head.cell_len > width - 2:  # the counts of others matter least
        head = _stage_names(names, at, {at: rows.get(at, 0)})
    if names:
        head.append("s".rjust(max(2, width - head.cell_len)), style=palette.MUTED)
    return head


def _stage_names(names: Sequence[str], at: str, rows: Mapping[str, int]) -> Text:
    head = Text(no_wrap=True, overflow="ellipsis")
    for name in names:
        number = rows.get(name, 0)
        label = f"{STAGES.get(name, name)} {number}" if number else STAGES.get(name, name)
        if name == at:
            head.append(f"[{label}]", style=f"bold {palette.GOOD}")
        else:
            head.append(f" {label} ", style=palette.LABEL)
    return head


def _densest(rows: Sequence[int], height: int) -> tuple[int, int]:
    """Return the first and the last of the rows that the most of fit into a height."""
    best, first = (0, 0), 0
    for last, row in enumerate(rows):
        while row - rows[first] >= height:
            first += 1
        if last - first + 1 > best[1] - best[0] + 1 or last == 0:
            best = first, last
    return rows[best[0]], rows[best[1]]
