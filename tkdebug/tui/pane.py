"""The base class of panes, which the app asks, and of panes whose rows a text narrows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input

from tkdebug.instrument.session import Session
from tkdebug.tui.debug.link import Said
from tkdebug.tui.next_run import RunAgain
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.widgets.line_list import LineList
from tkdebug.tui.widgets.typing_keys import is_letter_of_text, take_keys


@dataclass(frozen=True, slots=True)
class ScriptTraits:
    """The actions that the script of the run permits.

    Attributes:
        takes_input: whether it is this app's own, to be typed to.
        can_stop: whether a debugger is in its process.
    """

    takes_input: bool = False
    can_stop: bool = False


Keys = tuple[tuple[str, str], ...]


class Pane(Container):
    """Base of the contents of a tab.

    It is mounted when its tab is first opened. `show`, `hear`, `has_nothing` and `tab_mark` are
    called before, too, when it has no parts yet; `show` is called again once it has.

    Attributes:
        TAB: the name of its tab, in small letters.
        KEYS: pairs of a key and its action, for the help.
        LISTS_LAUNCHES: whether it needs the rows of a snapshot.
        is_ready: whether its parts are mounted.
    """

    DEFAULT_CSS = "Pane { height: 1fr; layout: vertical; }"
    TAB: ClassVar[str] = ""
    KEYS: ClassVar[Keys] = ()
    LISTS_LAUNCHES: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "fill", "Run so", show=False)]
    is_ready = False

    @classmethod
    def make(cls, script: ScriptTraits) -> Pane:
        """Make a pane for a run of that script."""
        return cls()

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Show the run as it is now; None for parts that do not exist yet."""
        raise NotImplementedError

    def show_failure(self, failure: str) -> None:
        """Say where there is nothing to show why the recording cannot be read; "": it can."""
        for view in self.query(LineList):
            view.show_failure(failure)

    def focus_main(self) -> None:
        """Focus the main widget of the pane."""
        raise NotImplementedError

    def filling(self) -> tuple[str, ...]:
        """Return the options of a run that would give it something to show; () for none."""
        return ()

    def filling_text(self) -> str:
        """Return what Enter does while there is nothing to show, after why there is nothing."""
        return "; Enter runs it again so" if self.filling() else ""

    def action_fill(self) -> None:
        """Run the script again, so that there is something to show."""
        options = self.filling()
        if options and self.has_nothing():
            self.post_message(RunAgain(options))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Permit keys that begin a text only while no text is typed."""
        return not is_letter_of_text(action, self.app.focused)

    def copied_text(self) -> str:
        """Return the text for the clipboard, or "" if there is nothing to copy."""
        return ""

    def position(self) -> object:
        """Return what is looked at, for `restore`; None where there is nothing to come back to."""
        return None

    def restore(self, position: object) -> None:
        """Look again at what was looked at."""

    def source_place(self) -> tuple[str, int] | None:
        """The file and line at the cursor, None without any."""
        return None

    def must_hear_all(self) -> bool:
        """Whether its parts keep what `hear` brings, so that it is mounted from the beginning."""
        return False

    def has_nothing(self) -> bool:
        """Whether it has nothing to show; its tab is out of sight then."""
        return False

    def hear(self, said: Said) -> None:
        """Hear news of the script's debugger."""

    def came_in_sight(self) -> None:
        """Hear that its tab was opened."""

    def tab_mark(self) -> Text:
        """Return the mark after the name of its tab, such as the number of rows."""
        return Text("")


class FilteredPane(Pane):
    """Base of panes whose rows a text narrows.

    Each has one Input, hidden at first, and binds `filter` and Esc.
    """

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

    @on(Input.Changed)
    def _filter_by_input(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        self.set_filter(event.value)

    @on(Input.Submitted)
    def _keep_filter(self, event: Input.Submitted) -> None:
        """Keep the filter and go to the rows."""
        event.stop()
        event.input.display = False
        self.focus_main()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Permit to clear a filter only where there is one."""
        if action == "clear_filter":
            return bool(self.filter_text) or (self.is_mounted and self.query_one(Input).display)
        return super().check_action(action, parameters)

    def set_filter(self, text: str) -> None:
        """Show only rows with `text`; all for ""."""
        if text != self.filter_text:
            self.filter_text = text
            self.show_filtered()
