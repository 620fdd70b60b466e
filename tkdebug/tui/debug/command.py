"""The command line of the Debug pane, and the answers of commands."""

from __future__ import annotations

import re
import textwrap
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input

from tkdebug.terminal.text import visible
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.widgets.line_list import LineList
from tkdebug.tui.widgets.typing_keys import take_keys

_MOST_LINES = 5_000
# So many more before the oldest go, as all are broken into lines again then.
_SPARE_LINES = 1_000
_MOST_HISTORY = 500
# Answers of columns, or of source: broken they could not be read.
_OF_COLUMNS = frozenset(
    ("tile", "pp", "l", "ll", "list", "longlist", "ir", "help", "regs", "registers", "shared")
)
_LEAST_WIDTH = 20
_PROMPT = "(tkdebug) "
_LAST_WORD = re.compile(r"[A-Za-z_][\w-]*$")
# Commands that are worth completing.
_COMMANDS = (
    *("step", "next", "return", "continue", "until", "stepop", "runto", "rstep", "rnext"),
    *("rreturn", "rcontinue", "rstepop", "lastwrite", "jump", "restart", "break", "tbreak"),
    *("watch", "rwatch", "condition", "ignore", "log", "enable", "disable", "clear", "print"),
    *("tile", "whatis", "vars", "args", "display", "undisplay", "why", "why-nan"),
    *("why-not-written", "where", "up", "down", "list", "longlist", "pid", "programs", "help"),
    *("detach", "quit"),
)


class _Suggestions(Suggester):
    """Completions of the last word: commands and variables."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self.variables: tuple[str, ...] = ()

    async def get_suggestion(self, value: str) -> str | None:
        """Return the whole line with its last word completed, or None without a completion."""
        found = _LAST_WORD.search(value)
        if found is None:
            return None
        known = self.variables if found.start() else _COMMANDS
        whole = next((each for each in known if each.startswith(found[0])), None)
        return None if whole is None else value[: found.start()] + whole


class CommandLine(Input):
    """Takes the console's commands; ↑ ↓ go through earlier ones, Esc leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", priority=True),
        Binding("up", "older", "Before", show=False),
        Binding("down", "newer", "After", show=False),
    ]
    DEFAULT_CSS = """
    CommandLine { height: 1; border: none; padding: 0 1; background: $boost; }
    CommandLine:focus { background: $primary 40%; border: none; }
    """

    class Typed(Message):
        """A command."""

        def __init__(self, line: str) -> None:
            self.line = line
            super().__init__()

    class Left(Message):
        """The user leaves the command line."""

    def __init__(self, *, id: str | None = None) -> None:
        self._suggestions = _Suggestions()
        super().__init__(
            id=id,
            placeholder=": command, as at the console: p acc, tile acc[:4, :8], why out[3, 17]",
            suggester=self._suggestions,
            select_on_focus=False,
        )
        self._history: list[str] = []
        self._at = 0
        self._keys_before: Widget | None = None

    def know(self, variables: tuple[str, ...]) -> None:
        """Complete these names, too; → takes the offered one."""
        self._suggestions.variables = variables

    def begin(self, text: str) -> None:
        """Take the keys, with some text there already."""
        self._keys_before = self.screen.focused
        self.value = text
        self.cursor_position = len(text)
        take_keys(self)

    @on(Input.Submitted)
    def _post_command(self, event: Input.Submitted) -> None:
        """Post the command; an empty one repeats the last, as at the console."""
        event.stop()
        if self.value and self._history[-1:] != [self.value]:
            self._history = [*self._history, self.value][-_MOST_HISTORY:]
        self._at = len(self._history)
        line, self.value = self.value, ""
        # A user who types `:` again, as if the focus were elsewhere, means no command `:p`.
        self.post_message(self.Typed(line.lstrip().removeprefix(":")))

    def action_older(self) -> None:
        """Go to the command before."""
        self._recall(self._at - 1)

    def action_newer(self) -> None:
        """Go to the command after."""
        self._recall(self._at + 1)

    def _recall(self, at: int) -> None:
        self._at = max(0, min(at, len(self._history)))
        self.value = self._history[self._at] if self._at < len(self._history) else ""
        self.cursor_position = len(self.value)

    def action_leave(self) -> None:
        """Leave the command line, for the widget before."""
        self.value = ""
        before, self._keys_before = self._keys_before, None
        if before is not None and before.focusable:
            take_keys(before)
        else:
            self.post_message(self.Left())


def _wrapped(text: str, width: int) -> list[str]:
    """Break a line into pieces of a width, the later ones indented."""
    if width < _LEAST_WIDTH or len(text) <= width:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + 4)
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
    ) or [text]


class AnswerLog(LineList):
    """The answers of commands, the latest last."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", show=False)]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        # Text, style, and whether it is one line however long it is.
        self._answers: list[tuple[str, str, bool]] = []
        self._lines: list[tuple[str, str]] = []
        self._wrapped_at = 0

    @property
    def line_count(self) -> int:
        """The number of lines that are kept."""
        return len(self._lines)

    @property
    def content_width(self) -> int:
        """Width of the widest line."""
        return max((len(text) for text, _ in self._lines), default=0) + 1

    @property
    def text(self) -> str:
        """The text of all answers that are kept."""
        return "\n".join(text for text, _, _ in self._answers)

    def line_text(self, index: int) -> str:
        """Return one line."""
        return self._lines[index][0]

    def add(self, command: str, lines: tuple[str, ...]) -> None:
        """Show an answer; a long one from its beginning."""
        begin, is_table = len(self._answers), command.split(" ")[0] in _OF_COLUMNS
        if command:
            self._answers.append((f"{_PROMPT}{visible(command)}", palette.STRONG, False))
        for line in lines:
            style = palette.FAULT if line.startswith("*** ") else ""
            for part in line.split("\n"):
                self._answers.append((display.shown_code(part, 2000), style, is_table))
        self._wrap(of=self._answers[begin:])
        if len(self._answers) > _MOST_LINES + _SPARE_LINES:
            del self._answers[:-_MOST_LINES]
            self._wrap()

    def _wrap(self, of: list[tuple[str, str, bool]] | None = None) -> None:
        """Break all lines again, or only added ones; the last answer is in sight."""
        width = self.scrollable_content_region.width - 1
        if of is None:
            self._lines, self._wrapped_at = [], width
        first = len(self._lines)
        for text, style, is_whole in self._answers if of is None else of:
            parts = [text] if is_whole else _wrapped(text, width)
            self._lines += [(part, style) for part in parts]
        self.content_changed()
        if self._lines:
            if of is None:
                answers = (i for i, (text, _) in enumerate(self._lines) if text.startswith(_PROMPT))
                first = max(answers, default=0)
            self.move_cursor(first, last=len(self._lines) - 1)

    def on_resize(self) -> None:
        """Break the lines again at the new width."""
        if self.scrollable_content_region.width - 1 != self._wrapped_at:
            self._wrap()
        super().on_resize()

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """Draw one line."""
        text, style = self._lines[index]
        return Strip([Segment(" " + text, Style.parse(style))]).crop(left, left + width)
