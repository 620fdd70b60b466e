"""The tabs and the panes under them: which one is in sight, and which one has the keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Tab, TabbedContent, TabPane, Tabs

from tkdebug.instrument.session import Session
from tkdebug.tui.debug.link import Said
from tkdebug.tui.pane import Pane, ScriptTraits
from tkdebug.tui.session.snapshot import ScriptState, Snapshot

# Names where those of all tabs do not fit into the row.
_SHORT = {
    "launches": "Launch",
    "faults": "Fault",
    "output": "Out",
    "passes": "Pass",
    "watches": "Watch",
}
_MOST_BACK = 200
_Kind = TypeVar("_Kind", bound=Pane)
# A tab, and what is looked at there, as `Pane.position` gives it.
Place = tuple[str, object]


class PaneTabs(TabbedContent):
    """One tab for each pane that has something to show, `1 Launches` and so on.

    A pane is mounted when it is first opened: most are never looked at.

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
        self._panes = {kind.TAB: kind.make(script) for kind in panes}
        self._in_sight = self._panes[opens]
        self._run: tuple[Snapshot | None, ScriptState, Session | None]
        self._run = None, ScriptState("starting"), None
        self._mounting = asyncio.Lock()
        self._asked, self._failure = opens, ""
        self._is_clicked = False
        self._labels: dict[str, Text] = {}
        self.user_chose = False

    def compose(self) -> ComposeResult:
        """Lay out a place for each pane under its tab."""
        for number, tab in enumerate(self._panes):
            self.compose_add_child(TabPane(f"{number} {tab.title()}", id=tab))
        yield from super().compose()

    @property
    def panes(self) -> Iterable[Pane]:
        """The panes, in the order of their tabs."""
        return self._panes.values()

    @property
    def pane(self) -> Pane:
        """The pane in sight."""
        return self._in_sight

    def get(self, kind: type[_Kind]) -> _Kind:
        """Return the pane of a kind, which may not be ready yet."""
        pane = self._panes[kind.TAB]
        assert isinstance(pane, kind)
        return pane

    async def ready(self, kind: type[_Kind]) -> _Kind:
        """Return the pane of a kind, with its parts."""
        pane = self.get(kind)
        await self._make_ready(pane)
        return pane

    async def _make_ready(self, pane: Pane) -> None:
        async with self._mounting:
            if not pane.is_ready:
                await self.get_pane(pane.TAB).mount(pane)
                pane.is_ready = True
                pane.show(*self._run)
                pane.show_failure(self._failure)

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Show the run as it is now in all panes, and after the names of their tabs."""
        self._run = snapshot, state, session
        for pane in self.panes:
            pane.show(snapshot, state, session)
        self.show_marks()

    def show_failure(self, failure: str) -> None:
        """Show in all panes why the recording cannot be read; "": it can."""
        if failure != self._failure:
            self._failure = failure
            for pane in self.panes:
                pane.show_failure(failure)
            self.show(*self._run)

    def hear(self, said: Said) -> None:
        """Hand the debugger's news to the panes."""
        for pane in self.panes:
            pane.hear(said)
        self.show_marks()

    async def begin(self) -> None:
        """Show the pane to begin with."""
        for pane in self.panes:
            if pane.must_hear_all():
                await self._make_ready(pane)
        await self.open(self._asked)

    async def open(self, tab: str) -> None:
        """Show a pane, and focus it."""
        self._asked = tab
        pane = self._panes[tab]
        # One picture of all of it; and further keys are the pane's from here on.
        with self.app.batch_update():
            await self._make_ready(pane)
            if not self.is_attached or not self.app.is_running:
                return
            self.show_tab(tab)
            self.active = tab
            self._in_sight = pane
            pane.focus_main()
            pane.came_in_sight()
            self.show_marks()

    @property
    def place(self) -> Place:
        """The tab in sight, and what is looked at there."""
        return self.pane.TAB, self.pane.position()

    async def go_to(self, place: Place | None) -> None:
        """Show a place where the user was; nothing for None."""
        if place is not None:
            tab, position = place
            await self.open(tab)
            self.pane.restore(position)

    def show_marks(self) -> None:
        """Show the panes' marks after the names of their tabs, shorter ones where room is short."""
        found = {}
        for digit, (name, pane) in enumerate(self._panes.items()):
            is_hidden = pane.has_nothing() and self.active != name
            if self.get_tab(name).has_class("-hidden") != is_hidden:
                (self.hide_tab if is_hidden else self.show_tab)(name)
            if not is_hidden:
                found[name] = (str(digit), name.title(), _SHORT.get(name), pane.tab_mark())
        cells = sum(len(title) + mark.cell_len + 3 for _, title, _, mark in found.values())
        is_short = cells - 1 > self.size.width > 0
        for name, (number, title, short, mark) in found.items():
            label = Text(f"{number} {(is_short and short) or title}") + mark
            if self._labels.get(name) != label:
                self._labels[name] = label
                self.get_tab(name).label = label

    def on_resize(self) -> None:
        """Fit the names into the new width."""
        self.show_marks()

    @on(TabbedContent.TabActivated)
    async def _show_chosen_tab(self, event: TabbedContent.TabActivated) -> None:
        """Show the pane of a tab that the user chose among the tabs."""
        if not self.is_attached or not self.app.is_running:
            return
        pane = self._panes[event.pane.id or self._asked]
        is_chosen_here = isinstance(self.screen.focused, Tabs)
        if is_chosen_here:
            self._asked = pane.TAB
        elif pane.TAB != self._asked:
            # A pane that had the focus before another was asked for says so only now.
            self.active = self._asked
            return
        if not is_chosen_here and not self._is_clicked:
            return  # `open` has done it
        await self._make_ready(pane)
        self._in_sight = pane
        # A user who chooses a tab by keys stays there, one who clicks wants what is below.
        if self._is_clicked or not is_chosen_here:
            pane.focus_main()
        self._is_clicked = False
        pane.came_in_sight()
        self.show_marks()

    def on_click(self, event: events.Click) -> None:
        """Note that a tab is chosen by the mouse."""
        self._is_clicked = isinstance(event.widget, Tab)
        self.user_chose = self.user_chose or self._is_clicked


class Visits:
    """The places where the user was: tabs, each with what was looked at there.

    Attributes:
        back: the places before this one, the latest last.
        forward: the places that the user came back from, the latest last.
    """

    def __init__(self) -> None:
        self.back: list[Place] = []
        self.forward: list[Place] = []

    def add(self, tab: str, position: object) -> None:
        """Remember a place; there is nothing forward of it."""
        self.forward.clear()
        if not self.back or self.back[-1] != (tab, position):
            self.back = [*self.back[-_MOST_BACK:], (tab, position)]

    def before(self, here: Place) -> Place | None:
        """Take the latest place before `here`, which becomes one forward; None if none differs."""
        return _other(self.back, self.forward, here)

    def after(self, here: Place) -> Place | None:
        """Take the place that the user came back from, as `before` does; None if there is none."""
        return _other(self.forward, self.back, here)


def _other(places: list[Place], others: list[Place], here: Place) -> Place | None:
    while places:
        if (place := places.pop()) != here:
            others.append(here)
            return place
    return None
