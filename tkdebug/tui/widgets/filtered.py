"""A pane whose rows a text narrows: `/` asks for it, Enter keeps it, Esc shows all."""

from __future__ import annotations

from textual.widgets import Input

from tkdebug.tui.pane import Pane
from tkdebug.tui.widgets.typing_keys import take_keys


class FilteredPane(Pane):
    """Base of such panes. Each has one Input, hidden at first, and binds `filter` and Esc."""

    filter_text = ""

    def show_filtered(self) -> None:
        """Show the rows that pass `filter_text`, and the line about them."""
        raise NotImplementedError

    def action_filter(self) -> None:
        """Ask what to show."""
        box = self.query_one(Input)
        box.display = True
        take_keys(box)

    def action_clear_filter(self) -> None:
        """Show all rows; the one at the cursor stays there."""
        box = self.query_one(Input)
        typing = box.has_focus
        box.value = ""
        box.display = False
        self.set_filter("")
        if typing:
            self.focus_main()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        self.set_filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go to the rows."""
        event.stop()
        event.input.display = False
        self.focus_main()

    def set_filter(self, text: str) -> None:
        """Show only rows with `text`; all for ""."""
        if text != self.filter_text:
            self.filter_text = text
            self.show_filtered()
