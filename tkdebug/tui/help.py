"""The keys: what they do everywhere, and in each pane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.table import Table as RichTable
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tkdebug.tui.drawing import palette
from tkdebug.tui.pane import Keys, Pane

_BEFORE_PANES: Keys = (
    ("Tab", "to the next part of the screen"),
    ("↑ ↓ k j g G", "move, first, last; also PgUp, PgDn, Home, End"),
    ("← →", "scroll sideways"),
    ("/ :", "in 3 and 5: find text, go to a line; Enter: next, Esc: close"),
    ("y", "copy the details, the line or the output (OSC 52; else select with Shift)"),
    ("w", "write what was recorded into a file of the current directory"),
    ("T", "light or dark; TEXTUAL_THEME=textual-light begins light"),
    ("Ctrl-C", "interrupt the script; under debug --tui: stop it in the debugger"),
    ("q", "quit; asks first while the script runs"),
    ("?", "this help; Esc closes it"),
)
_MARKS: Keys = (
    ("✖ ▲ ↳", "fault, warning, on the way to a fault"),
    ("▌", "belongs to the line at the cursor"),
)


def help_table(panes: Sequence[type[Pane]]) -> RichTable:
    """All keys; what a narrow screen wraps stays in its column."""
    table = RichTable.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    choosing = (f"1 … {len(panes)}", ", ".join(pane.TAB for pane in panes))
    sections = [("Everywhere", (choosing, *_BEFORE_PANES))]
    sections += [(pane.TAB.title(), pane.KEYS) for pane in panes if pane.KEYS]
    for title, keys in (*sections, ("Marks", _MARKS)):
        table.add_row(Text(title, style=palette.STRONG))
        for key, what in keys:
            table.add_row(Text(f"  {key}", style=palette.GOOD), Text(what))
    return table


class HelpScreen(ModalScreen[None]):
    """The keys.

    Args:
        panes: those of the app, in the order of their tabs.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "app.pop_screen", "Close"),
    ]

    def __init__(self, panes: Sequence[type[Pane]]) -> None:
        super().__init__()
        self._panes = panes

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll(classes="dialog wide", can_focus=True) as box:
            box.border_title = "tkdebug: keys"
            yield Static(help_table(self._panes))
