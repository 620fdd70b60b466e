"""The tabs and the panes under them: which one is in sight, and which one has the keys."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.widgets import Tab, TabbedContent, TabPane, Tabs

from tkdebug.tui.pane import Pane, ScriptTraits


class PaneTabs(TabbedContent):
    """One tab for each pane that has something to show, `1 Launches` and so on.

    Args:
        panes: the panes in the order of the digit keys.
        script: the actions that the run's script permits.
        opens: the tab of the pane to begin with.

    Attributes:
        user_chose: whether a tab was chosen by the user.
    """

    SCOPED_CSS = False
    DEFAULT_CSS = """
    PaneTabs { height: 1fr; }
    PaneTabs > ContentSwitcher { height: 1fr; }
    PaneTabs TabPane { padding: 0; height: 1fr; }
    PaneTabs Tabs { height: 1; }
    PaneTabs Underline { display: none; }
    PaneTabs Tab.-active { text-style: bold reverse; }
    .-narrow PaneTabs Tab { padding: 0 1 0 0; }
    .-narrow PaneTabs Tab.-active { padding: 0; margin: 0 1 0 0; }
    """

    def __init__(self, panes: Sequence[type[Pane]], script: ScriptTraits, opens: str) -> None:
        super().__init__(initial=opens)
        self._panes = panes
        self._script = script
        self._asked = opens
        self._is_clicked = False
        self._marks: dict[str, Text] = {}
        self.user_chose = False

    def compose(self) -> ComposeResult:
        """Lay out the panes, each under its tab."""
        for number, pane in enumerate(self._panes):
            under = TabPane(f"{number} {pane.TAB.title()}", pane.make(self._script))
            under.id = pane.TAB
            self.compose_add_child(under)
        yield from super().compose()

    @property
    def kinds(self) -> Sequence[type[Pane]]:
        """The kinds of panes, in the order of their tabs."""
        return self._panes

    @property
    def pane(self) -> Pane:
        """The pane in sight."""
        return self._under(self.get_pane(self.active))

    def open(self, tab: str) -> None:
        """Show a pane, and focus it."""
        self._asked = tab
        self.show_tab(tab)
        if self.active == tab:
            self._focus(self.get_pane(tab))
            return
        # Until the pane is there, lest the focus of what goes out of sight falls on the tabs.
        self.screen.set_focus(None)
        self.active = tab

    def show_marks(self) -> None:
        """Show the panes' marks after the names of their tabs."""
        for number, kind in enumerate(self._panes):
            pane = self._under(self.get_pane(kind.TAB))
            tab, is_hidden = self.get_tab(kind.TAB), pane.has_nothing() and self.active != kind.TAB
            if tab.has_class("-hidden") != is_hidden:
                (self.hide_tab if is_hidden else self.show_tab)(kind.TAB)
            mark = pane.tab_mark()
            if self._marks.get(kind.TAB) != mark:
                self._marks[kind.TAB] = mark
                tab.label = Text(f"{number} {kind.TAB.title()}") + mark

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """Focus the main widget of the pane."""
        event.stop()
        if not self.is_attached or not self.app.is_running:
            return
        if isinstance(self.screen.focused, Tabs):
            self._asked = event.pane.id or self._asked
            if self._is_clicked:
                # Who chooses by keys among the tabs stays there, who clicks wants what is behind.
                self._focus(event.pane)
        elif event.pane.id != self._asked:
            # A pane that had the focus before another was asked for says so only now.
            self.active = self._asked
            return
        else:
            self._focus(event.pane)
        self._is_clicked = False
        self._under(event.pane).came_in_sight()
        self.show_marks()

    def on_click(self, event: events.Click) -> None:
        """Note that a tab is chosen by the mouse."""
        self._is_clicked = isinstance(event.widget, Tab)
        self.user_chose = self.user_chose or self._is_clicked

    def _focus(self, tab_pane: TabPane) -> None:
        self._under(tab_pane).focus_main()

    @staticmethod
    def _under(tab_pane: TabPane) -> Pane:
        pane = tab_pane.query_children().first()
        assert isinstance(pane, Pane)
        return pane
