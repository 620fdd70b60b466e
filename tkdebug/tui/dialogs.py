"""The dialogs: help, quitting while the script runs, and choosing from a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rich.table import Table as RichTable
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.variants import telling_parts
from tkdebug.tui import display, palette
from tkdebug.tui.table import Cell, Column, Table

QuitChoice = Literal["stop", "run-on", "cancel"]

_HELP: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Everywhere",
        (
            ("1 … 5", "launches, faults, kernel, output, passes"),
            ("Tab", "to the next part of the screen"),
            ("↑ ↓ k j g G", "move, first, last; also PgUp, PgDn, Home, End"),
            ("← →", "scroll sideways"),
            ("/ :", "in 3 and 5: find text, go to a line; Enter: next, Esc: close"),
            ("y", "copy the details, the line or the output (OSC 52; else select with Shift)"),
            ("w", "write what was recorded into a file of the current directory"),
            ("T", "light or dark; TEXTUAL_THEME=textual-light begins light"),
            ("Ctrl-C", "interrupt the script"),
            ("q", "quit; asks first while the script runs"),
            ("?", "this help; Esc closes it"),
        ),
    ),
    (
        "Launches",
        (
            ("Enter", "on a launch: its kernel; on a kernel: only its launches"),
            ("/", "filter both tables by kernel or scope; Esc shows all again"),
            ("x", "what was wrong with it"),
            ("o r", "sort by the next column, reverse; or click a title"),
        ),
    ),
    (
        "Faults",
        (
            ("Enter", "show the line in the kernel"),
            ("/", "filter by kind, kernel, line or tensor; Esc shows all again"),
        ),
    ),
    (
        "Kernel",
        (
            ("↑ ↓", "on either side light what belongs to it on the other"),
            ("[ ]", "previous, next lit line on the other side"),
            ("Enter", "to the other side; to the file that the op is from"),
            ("p n N", "pick a kernel, next, previous"),
            ("s S t", "next stage of the compiler, previous, pick one"),
            ("l", "follow the source line through every pass"),
            ("f", "next source file"),
            ("x", "next faulting line"),
            ("v", "sides beside or above each other"),
        ),
    ),
    (
        "Output",
        (
            ("i", "in any pane: type to the script; Enter sends the line, Esc leaves"),
            ("Ctrl-D", "end of input"),
        ),
    ),
)
_PASSES_HELP = (
    ("d", "changes by op, or the diff of the texts"),
    ("o", "all passes, only those that changed something"),
    ("Enter", "to the changes; from there to the op's source line"),
    ("l Esc", "follow the op's source line, all ops again"),
    ("p n N", "pick a kernel, next, previous"),
    ("+ - ~ a l t m o", "added, removed, replaced; attributes, layouts, types, moved, operands"),
)
_MARKS_HELP = (
    ("✖ ▲ ↳", "fault, warning, on the way to a fault"),
    ("▌", "belongs to the line at the cursor"),
)


def help_table() -> RichTable:
    """All keys; what a narrow screen wraps stays in its column."""
    table = RichTable.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for title, keys in (*_HELP, ("Passes", _PASSES_HELP), ("Marks", _MARKS_HELP)):
        table.add_row(Text(title, style=palette.STRONG))
        for key, what in keys:
            table.add_row(Text(f"  {key}", style=palette.GOOD), Text(what))
    return table


class HelpScreen(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "app.pop_screen", "Close"),
    ]

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll(classes="dialog wide", can_focus=True) as box:
            box.border_title = "tkdebug: keys"
            yield Static(help_table())


class QuitScreen(ModalScreen[QuitChoice]):
    """Asks what becomes of the script."""

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
        """A question and three answers."""
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

    def on_line_list_chosen(self, event: Table.Chosen) -> None:
        """Enter on an answer."""
        event.stop()
        self.dismiss(self._CHOICES[event.index][0])

    def action_answer(self, choice: QuitChoice) -> None:
        """A key for an answer."""
        self.dismiss(choice)


@dataclass(frozen=True, slots=True)
class Choice:
    """One row to choose: harmless text (see `display.shown`)."""

    name: str
    detail: str


def kernel_choices(kernels: Sequence[RecordedKernel]) -> list[Choice]:
    """A row for each specialisation; of kernels compiled for a GPU that is not there, for which."""
    told = telling_parts(kernels)
    choices = []
    for kernel in kernels:
        detail = "  ".join(filter(None, (_for_arch(kernel), told[kernel.hash], kernel.signature)))
        choices.append(Choice(display.shown(kernel.name, 60), display.shown(detail, 300)))
    return choices


KERNEL_DETAILS = "what tells it apart, signature"


def kernel_title(kernels: Sequence[RecordedKernel], shown: RecordedKernel) -> Text:
    """Which of `kernels` is shown: number, name, architecture, what tells it from its like."""
    number = next((i for i, k in enumerate(kernels, 1) if k.hash == shown.hash), 0)
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(f"{number}/{len(kernels)} ", style=palette.MUTED)
    title.append(display.shown(shown.name, 80), style=palette.STRONG)
    arch = _for_arch(shown)
    if arch:
        title.append(f" {display.shown(arch, 20)}")
    told = telling_parts([k for k in kernels if k.name == shown.name]).get(shown.hash)
    if told:
        title.append(f"  {display.shown(told, 100)}", style=palette.GOOD)
    return title


def _for_arch(kernel: RecordedKernel) -> str:
    arch = kernel.options.get("arch")
    return f"for {arch}" if arch else ""


class PickScreen(ModalScreen["int | None"]):
    """Chooses from a list; gives the index, None when left.

    Args:
        title: what is chosen.
        choices: from what.
        detail_title: the title of their details; "" where they have none.
        begin: which one the cursor begins on.
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
        """A list."""
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

    def on_line_list_chosen(self, event: Table.Chosen) -> None:
        """Enter on a row."""
        event.stop()
        self.dismiss(event.index)

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)
