"""Source files of the Debug pane: which one is shown, and its lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from tkdebug.debugger.remote.records import Place, SetBreakpoint
from tkdebug.tui.drawing.lines import Code
from tkdebug.tui.widgets.code_view import CodeView

LineText = Callable[[Place], str]


class DebugSource(CodeView):
    """A source file, with the line of the stop highlighted and breakpoints in the gutter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Breakpoint", show=False),
    ]
    LIT_SIGN: ClassVar[str] = "▶"

    def bring_in_sight(self, line: int) -> None:
        """Put the cursor on a line; the lines after it are in sight, too, as far as they fit."""
        rows, top = self.visible_rows, self.scroll_offset.y + self.code.first_line
        is_in_sight = top <= line < top + rows - min(2, rows // 3)
        self.go_to(line, None if is_in_sight else line - rows // 3)

    def on_resize(self) -> None:
        """Keep the line in sight."""
        super().on_resize()
        self.bring_in_sight(self.line)


class SourceFiles:
    """The texts that have come; each is asked for once."""

    def __init__(self) -> None:
        self._codes: dict[str, Code] = {}
        self._asked: set[str] = set()

    def is_missing(self, file: str) -> bool:
        """Whether a file's text is to be asked for; True once, as it counts as asked for then."""
        if file in self._asked:
            return False
        self._asked.add(file)
        return True

    def add(self, file: str, code: Code) -> None:
        """Keep a text that has come."""
        self._codes[file] = code
        self._asked.add(file)

    def code(self, file: str) -> Code | None:
        """The text of a file, or None if it has not come."""
        return self._codes.get(file)

    def line_text(self, place: Place) -> str:
        """The text of a line; "" if it is not known."""
        code = self._codes.get(place.file)
        index = None if code is None else code.index(place.line)
        return "" if code is None or index is None else code.lines[index].strip()


def breakpoint_marks(breakpoints: tuple[SetBreakpoint, ...], file: str) -> dict[int, str]:
    """Gutter marks by line of a file."""
    return {
        one.line: "breakpoint" if one.is_enabled else "disabled"
        for one in breakpoints
        if one.file == file
    }
