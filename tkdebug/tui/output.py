"""The output pane: the script's output, and a line to type into it."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static

from tkdebug.instrument.session import Session
from tkdebug.tui.drawing import palette
from tkdebug.tui.pane import Pane, ScriptTraits
from tkdebug.tui.script.terminal import OutputSnapshot
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.line_list import find_line
from tkdebug.tui.widgets.rows_view import OwnRows
from tkdebug.tui.widgets.typing_keys import take_keys, typing_key


class OutputView(ScrollView, OwnRows, can_focus=True):
    """Wraps lines to its width; stays at the end while it is there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "scroll_up", show=False),
        Binding("j", "scroll_down", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._output = OutputSnapshot()
        self._rows: list[tuple[int, int, int]] = []  # line (numbered), begin, end
        self.cursor = -1
        self._wrapped_first = 0
        self._wrapped_width = 0
        self.empty_text = ""

    def show(self, output: OutputSnapshot) -> None:
        """Show the script's output so far."""
        at_end = self.scroll_offset.y >= self.max_scroll_y - 1
        # The marked line stays so where older ones are dropped.
        self.cursor = max(-1, self.cursor - (output.first - self._output.first))
        self._output = output
        self._wrap(output.changed_from)
        if at_end:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        self.refresh()

    def _wrap(self, changed_from: int) -> None:
        width = max(10, self.scrollable_content_region.width)
        if width != self._wrapped_width:
            self._rows, self._wrapped_width, changed_from = [], width, 0
        output, rows = self._output, self._rows
        while rows and rows[-1][0] >= changed_from:
            rows.pop()
        dropped = next((i for i, row in enumerate(rows) if row[0] >= output.first), len(rows))
        del rows[:dropped]
        begin = rows[-1][0] + 1 - output.first if rows else 0
        for index in range(begin, len(output.lines)):
            number, text = index + output.first, output.lines[index].text
            if len(text) <= width and (text.isascii() or cell_len(text) <= width):
                rows.append((number, 0, len(text)))
                continue
            at = 0
            for piece in chop_cells(text, width):
                rows.append((number, at, at + len(piece)))
                at += len(piece)
        self.virtual_size = Size(0, len(rows))

    def index_of_line(self, line: int) -> int | None:
        """Return the index of the line of that number, counted from 1, or None."""
        return line - 1 if 1 <= line <= len(self._output.lines) else None

    def find(self, wanted: str, begin: int, step: int = 1) -> int | None:
        """Return the index of the first line from `begin` on with `wanted`, wrapping, or None."""
        lines = self._output.lines
        return find_line(lambda index: lines[index].text, len(lines), wanted, max(0, begin), step)

    def move_cursor(self, index: int, *, announce: bool = False, last: int | None = None) -> None:
        """Mark a line, and scroll there."""
        self.cursor = index
        number = index + self._output.first
        row = next((at for at, row in enumerate(self._rows) if row[0] == number), 0)
        above = self.scrollable_content_region.height // 3
        self.scroll_to(y=max(0, row - above), animate=False, force=True, immediate=True)
        self.refresh()

    def on_resize(self) -> None:
        """Wrap the lines again."""
        self.show(self._output)

    def render_line(self, y: int) -> Strip:
        """Draw one row."""
        width = self.scrollable_content_region.width
        base = self.base_style
        index = y + self.scroll_offset.y
        if not self._rows and y == 1:
            style = base + Style.parse(palette.MUTED)
            return Strip([Segment(f" {self.empty_text}", style)]).adjust_cell_length(width, base)
        if index >= len(self._rows):
            return Strip.blank(width, base)
        number, begin, end = self._rows[index]
        segments: list[Segment] = []
        at = 0
        for text, style in self._output.runs(number - self._output.first):
            piece = text[max(0, begin - at) : max(0, end - at)]
            if piece:
                segments.append(Segment(piece, style))
            at += len(text)
        if number - self._output.first == self.cursor:
            base += Style(reverse=True)
        return Strip(segments).adjust_cell_length(width, base).apply_style(base)


class OutputPane(Pane):
    """Posts `Typed` and `InputEnded`, which the app handles."""

    TAB = "output"
    KEYS = (
        ("i", "in any pane: type to the script; Enter sends the line, Esc leaves"),
        ("Ctrl-D", "end of input"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        typing_key("slash", "find", "Find"),
        Binding("i", "type", "Type to script"),
        Binding("escape", "leave_input", "Leave input"),
        Binding("ctrl+d", "end_input", "End of input", show=False, priority=True),
    ]

    class Typed(Message):
        """A line for the script."""

        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    class InputEnded(Message):
        """Ctrl-D was pressed."""

    def __init__(self, interactive: bool) -> None:
        super().__init__(id="output-pane")
        self._interactive = interactive
        self._output = OutputSnapshot()
        self._has_unseen = False
        self._asked_to_type = False
        self._failure = ""

    @classmethod
    def make(cls, script: ScriptTraits) -> Pane:
        """Make a pane, which takes input if there is a script to take it."""
        return cls(script.takes_input)

    def compose(self) -> ComposeResult:
        """Output above, input below."""
        yield OutputView(id="output-view")
        yield FindBar()
        yield Static(id="output-note")
        yield Input(
            id="input",
            placeholder="i: type to the script; then Enter sends, Esc leaves, Ctrl-C interrupts",
        )

    def on_mount(self) -> None:
        """Hide the input line of a recorded run."""
        self.query_one("#input").display = self._interactive
        self.query_one("#output-note").display = False
        self.show_state(ScriptState("starting"))

    def focus_main(self) -> None:
        """Focus the output, or the input line where `type_next` asked for it.

        It never focuses the input line by itself: keys that lead elsewhere would go to the script.
        """
        box = self.query_one("#input", Input)
        types, self._asked_to_type = self._asked_to_type and box.display, False
        take_keys(box if types else self.query_one("#output-view"))

    def type_next(self) -> None:
        """Focus the input line the next time that the pane gets the focus."""
        self._asked_to_type = True

    @property
    def is_typing(self) -> bool:
        """Whether keys go into the input line."""
        return self.is_ready and self.query_one("#input").has_focus

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Show the state of the script; `show_output` brings its output."""
        if self.is_ready:
            self.show_state(state)
            self.query_one("#output-view", OutputView).show(self._output)

    def show_failure(self, failure: str) -> None:
        """Say why the output cannot be read, unless it is that of the script on the pty."""
        self._failure = "" if self._interactive else failure

    def show_output(self, output: OutputSnapshot, in_sight: bool) -> None:
        """Show the script's output so far."""
        self._output, self._has_unseen = output, not in_sight
        if self.is_ready:
            self.query_one("#output-view", OutputView).show(output)

    def came_in_sight(self) -> None:
        """Clear the mark of new output, which is in sight now."""
        self._has_unseen = False

    def tab_mark(self) -> Text:
        """Return a mark if there is output that nobody has seen."""
        return Text(" •", style=palette.GOOD) if self._has_unseen else Text("")

    def copied_text(self) -> str:
        """The output that is kept, unwrapped."""
        return "\n".join(line.text for line in self._output.lines)

    def show_state(self, state: ScriptState) -> None:
        """Disable the input after the script's end."""
        view = self.query_one("#output-view", OutputView)
        view.empty_text = (
            "the script has printed nothing yet" if state.going_on else "the script printed nothing"
        )
        if self._failure:
            view.empty_text = f"the recording cannot be read: {self._failure}"
        view.refresh()
        box = self.query_one("#input", Input)
        if box.display and not state.going_on:
            if box.has_focus:
                view.focus()
            box.display = False

    def hide_typing(self, hidden: bool) -> None:
        """Show dots instead of letters, as while the script asks for a password."""
        if self.is_ready:
            self.query_one("#input", Input).password = hidden

    def show_note(self, note: str) -> None:
        """Show a line below the output; none if empty."""
        widget = self.query_one("#output-note", Static)
        widget.display = bool(note)
        widget.update(Text(note, style=palette.MUTED))

    @on(Input.Submitted)
    def _send_line(self, event: Input.Submitted) -> None:
        """Send the line."""
        event.stop()
        self.post_message(self.Typed(event.value))
        event.input.value = ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Permit typing only to a running script, and leaving only while typing."""
        if action == "leave_input":
            return self.is_mounted and self.is_typing
        if action == "find":
            return super().check_action(action, parameters)
        return action != "type" or (self.is_mounted and self.query_one("#input").display)

    def action_find(self) -> None:
        """Find text in the output."""
        self.query_one(FindBar).open(self.query_one("#output-view", OutputView))

    def action_type(self) -> None:
        """Focus the input line."""
        self.type_next()
        self.focus_main()

    def action_leave_input(self) -> None:
        """Focus the output."""
        self.query_one("#output-view").focus()

    def action_end_input(self) -> None:
        """Report Ctrl-D."""
        if self._interactive:
            self.post_message(self.InputEnded())
