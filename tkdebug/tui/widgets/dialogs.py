"""The dialogs: quitting while the script runs, choosing from a list, and the help on keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rich.table import Table as RichTable
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tkdebug.instrument.analyses.kernel_names import differing_parts
from tkdebug.instrument.records import RecordedKernel
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.pane import Keys, Pane
from tkdebug.tui.widgets.table import Cell, Column, Table

QuitChoice = Literal["stop", "run-on", "cancel"]
_BEFORE_PANES: Keys = (
    ("Tab", "to the next part of the screen"),
    ("↑ ↓ k j g G", "move, first, last; also PgUp, PgDn, Home, End"),
    ("← →", "scroll sideways"),
    ("/ :", "find text, in 1 and 2 filter; in code go to a line; Enter: next, Esc: close"),
    ("Ctrl-P", "palette: actions, findings, kernels, lines by a few letters"),
    ("Esc ~", "back to where one was, and forward"),
    ("e", "the line at the cursor in $VISUAL or $EDITOR"),
    ("y", "copy the details, the line or the output (OSC 52; else select with Shift)"),
    (
        "r R",
        "run the script again; whenever one of its files is saved; in 1 and 6 r is another key",
    ),
    ("w", "write what was recorded into a file of the current directory"),
    ("t T", "colours: dark, light, for any colour vision, none; TEXTUAL_THEME=textual-light"),
    ("Ctrl-C", "interrupt the script; under debug --tui: stop it in the debugger"),
    ("q", "quit; asks first while the script runs"),
    ("?", "this help; Esc closes it"),
)
_MARKS: Keys = (
    ("✖ ▲ ↳", "fault, warning, on the way to a fault"),
    ("◆ ◉ ▸5", "advice, watched values, five lines of inlined functions"),
    (
        "measured",
        "on a GPU; interpreted: on the CPU; compiled, predicted: without one",
    ),
    ("▌", "belongs to the line at the cursor"),
)


class QuitScreen(ModalScreen[QuitChoice]):
    """Asks whether the script goes on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "answer('stop')", "Stop"),
        Binding("l", "answer('run-on')", "Run on"),
        Binding("escape,c,q", "answer('cancel')", "Cancel"),
    ]
    _CHOICES: ClassVar[tuple[tuple[QuitChoice, str, str], ...]] = (
        ("stop", "s  stop the script", "Ctrl-C first, so it can clean up"),
        ("run-on", "l  let it run on", "the session goes on being recorded"),
        ("cancel", "c  cancel", "back to tkdebug"),
    )

    def compose(self) -> ComposeResult:
        """Lay out a question and three answers."""
        with Vertical(classes="dialog") as box:
            box.border_title = "the script is still running"
            yield Table((Column("quit and", 22), Column("", 0)), id="answers")

    def on_mount(self) -> None:
        """Show the answers."""
        table = self.query_one("#answers", Table)
        table.show_rows(
            [key for key, _, _ in self._CHOICES],
            lambda i: (Cell(self._CHOICES[i][1], "bold"), Cell(self._CHOICES[i][2])),
        )
        table.styles.height = len(self._CHOICES) + 1
        table.focus()

    @on(Table.Chosen)
    def _take_row(self, event: Table.Chosen) -> None:
        """Take the answer on Enter."""
        event.stop()
        self.dismiss(self._CHOICES[event.index][0])

    def action_answer(self, choice: QuitChoice) -> None:
        """Take the answer that a key is for."""
        self.dismiss(choice)


@dataclass(frozen=True, slots=True)
class Choice:
    """One row to choose: harmless text (see `display.shown`)."""

    name: str
    detail: str


def kernel_choices(kernels: Sequence[RecordedKernel]) -> list[Choice]:
    """Return a row for each specialisation, with the GPU that it is for if none is there."""
    parts = differing_parts(kernels)
    choices = []
    for kernel in kernels:
        detail = "  ".join(filter(None, (_for_arch(kernel), parts[kernel.hash], kernel.signature)))
        choices.append(Choice(display.shown(kernel.name, 60), display.shown(detail, 300)))
    return choices


KERNEL_DETAILS = "how it differs, signature"


def kernel_title(kernels: Sequence[RecordedKernel], shown: RecordedKernel) -> Text:
    """Return the title of one of `kernels`: number, name, architecture, what differs."""
    number = next((i for i, k in enumerate(kernels, 1) if k.hash == shown.hash), 0)
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(f"{number}/{len(kernels)} ", style=palette.MUTED)
    title.append(display.shown(shown.name, 80), style=palette.STRONG)
    arch = _for_arch(shown)
    if arch:
        title.append(f" {display.shown(arch, 20)}")
    parts = differing_parts([k for k in kernels if k.name == shown.name]).get(shown.hash)
    if parts:
        title.append(f"  {display.shown(parts, 100)}", style=palette.GOOD)
    return title


def _for_arch(kernel: RecordedKernel) -> str:
    arch = kernel.options.get("arch")
    return f"for {arch}" if arch else ""


class PickScreen(ModalScreen["int | None"]):
    """A choice from a list, which returns the index, or None when left.

    Args:
        title: the thing that is chosen.
        choices: the list to choose from.
        detail_title: the title of their details; "" if they have none.
        begin: the number of the choice at the cursor.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "Cancel")]

    def __init__(
        self, title: str, choices: Sequence[Choice], detail_title: str = "", begin: int = 0
    ) -> None:
        super().__init__()
        self._title = title
        self._choices = choices
        self._detail_title = detail_title
        self._begin = begin

    def compose(self) -> ComposeResult:
        """Lay out the list."""
        widest = max((len(choice.name) for choice in self._choices), default=10)
        columns = [
            Column("name", min(34, max(8, widest)), keep_end=True),
            Column(self._detail_title, 0),
        ]
        if not self._detail_title:
            columns = [Column("name", 0)]
        with Vertical(classes="dialog wide") as box:
            box.border_title = self._title
            yield Table(columns, id="pick")

    def on_mount(self) -> None:
        """Fill it."""
        table = self.query_one("#pick", Table)
        choices = self._choices
        table.show_rows(
            range(len(choices)), lambda i: (Cell(choices[i].name), Cell(choices[i].detail))
        )
        table.move_cursor(self._begin)
        table.styles.height = min(len(choices), 16) + 1
        table.focus()

    @on(Table.Chosen)
    def _take_row(self, event: Table.Chosen) -> None:
        """Take the row on Enter."""
        event.stop()
        self.dismiss(event.index)

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)


def help_table(panes: Sequence[type[Pane]], first: type[Pane]) -> RichTable:
    """Return a table of all keys; text that a narrow screen wraps stays in its column.

    Args:
        panes: the panes, in the order of their tabs.
        first: the pane whose keys come first.
    """
    table = RichTable.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    choosing = (f"0 … {len(panes) - 1}", ", ".join(pane.TAB for pane in panes))
    rest = [pane for pane in panes if pane is not first]
    sections = [(pane.TAB.title(), pane.KEYS) for pane in (first, *rest) if pane.KEYS]
    own = int(bool(first.KEYS))
    sections[own:own] = [("Marks", _MARKS), ("Everywhere", (choosing, *_BEFORE_PANES))]
    for title, keys in sections:
        table.add_row(Text(title, style=palette.STRONG))
        for key, what in keys:
            table.add_row(Text(f"  {key}", style=palette.GOOD), Text(what))
    return table


class HelpScreen(ModalScreen[None]):
    """The keys.

    Args:
        panes: the panes of the app, in the order of their tabs.
        first: the pane in sight, whose keys come first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "app.pop_screen", "Close"),
    ]

    def __init__(self, panes: Sequence[type[Pane]], first: type[Pane]) -> None:
        super().__init__()
        self._panes, self._first = panes, first

    def compose(self) -> ComposeResult:
        """Lay out the box of keys."""
        with VerticalScroll(classes="dialog wide", can_focus=True) as box:
            box.border_title = "tkdebug: keys"
            yield Static(help_table(self._panes, self._first))
