"""The app: wires threads that follow the session and the script to the panes.

Responsible for the state of the script as shown, for what keys do everywhere, for quitting.
Threads only post messages; every widget is touched from the app's own loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.widgets import Footer, Static, Tab, TabbedContent, TabPane, Tabs

from tkdebug.errors import SessionError
from tkdebug.instrument.session import Session
from tkdebug.terminal_text import visible
from tkdebug.tui import display, palette
from tkdebug.tui.dialogs import HelpScreen, QuitChoice, QuitScreen
from tkdebug.tui.faults import FaultsPane
from tkdebug.tui.follow import AwaitedSession, Follower
from tkdebug.tui.kernel import KernelPane
from tkdebug.tui.launches import LaunchesPane
from tkdebug.tui.messages import (
    FollowLine,
    OpenFault,
    OpenKernel,
    OutputChanged,
    ScriptEnded,
    SessionFailed,
    SnapshotTaken,
    StopFinished,
    Told,
)
from tkdebug.tui.on_light import OnLight
from tkdebug.tui.output import OutputPane
from tkdebug.tui.pane import Pane
from tkdebug.tui.passes import PassesPane
from tkdebug.tui.saving import unused_path
from tkdebug.tui.snapshot import ScriptState, Snapshot
from tkdebug.tui.status import status_line
from tkdebug.tui.terminal import Terminal

if TYPE_CHECKING:
    from tkdebug.tui.child import Child

POLL_S = 0.15
POLL_ENDED_S = 1.0
_ON_LIGHT = OnLight()
# By tab, in their order; each is made knowing whether there is a script to type to.
_PANES: Mapping[str, Callable[[bool], Pane]] = {
    "launches": lambda typing: LaunchesPane(),
    "faults": lambda typing: FaultsPane(),
    "kernel": lambda typing: KernelPane(),
    "output": OutputPane,
    "passes": lambda typing: PassesPane(),
}
_TABS = tuple(_PANES)
_LABELS = {tab: f"{i} {tab.title()}" for i, tab in enumerate(_TABS, 1)}


class TkdebugApp(App[None]):
    """Shows one run.

    Args:
        session: a recorded session, or one still to be created by `child`.
        child: the script, when it is this app that started it.
    """

    CSS_PATH = "tkdebug.tcss"
    TITLE = "tkdebug"
    ENABLE_COMMAND_PALETTE = False
    # The last one reached is set; not a ClassVar, as Textual declares it.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide"), (152, "-very-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(i), f"tab('{tab}')", tab.title(), show=False)
            for i, tab in enumerate(_TABS, 1)
        ),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("y", "copy", "Copy", show=False),
        Binding("w", "save", "Save the recording", show=False),
        Binding("T", "turn_theme", "Light or dark", show=False),
        Binding("i", "type", "Type to script", show=False),
        Binding("ctrl+c", "interrupt", "Stop", priority=True),
        Binding("ctrl+q", "ask_quit", "Quit", priority=True, show=False),
        Binding("q", "ask_quit", "Quit"),
    ]

    def __init__(self, session: Session | AwaitedSession, child: Child | None = None) -> None:
        super().__init__()
        self._child = child
        self._awaited = session if isinstance(session, AwaitedSession) else None
        self._session = None if isinstance(session, AwaitedSession) else session
        self._snapshot: Snapshot | None = None
        self._script = ScriptState("starting" if child is None else "running")
        self._failure = ""
        self._quitting = threading.Event()
        self._terminal = Terminal()
        self._user_chose_tab = False
        self._asked_tab = _TABS[0]
        self._tab_clicked = False
        self._unseen_output = False
        self._waits = False
        self.runs_on = False

    def compose(self) -> ComposeResult:
        """Status, panes, keys."""
        yield Static(id="status")
        with TabbedContent(initial=_TABS[0]):
            for tab, make in _PANES.items():
                with TabPane(_LABELS[tab], id=tab):
                    yield make(self._child is not None)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Start the threads."""
        self._show_status()
        self.set_interval(0.5, self._tick)
        self.run_worker(self._follow, thread=True, group="follow", exit_on_error=True)
        if self._child is not None:
            self.run_worker(self._pump, thread=True, group="pump", exit_on_error=True)
        self.query_one(LaunchesPane).focus_main()

    def on_unmount(self) -> None:
        """Let the threads end."""
        self._stop_threads()

    def _stop_threads(self) -> None:
        self._quitting.set()
        if self._child is not None:
            self._child.stop_pump()

    # Threads.

    def _follow(self) -> None:
        follower: Follower | None = None
        last: tuple[Snapshot | None, ScriptState] | None = None
        interval_s = 0.0
        while not self._quitting.wait(interval_s):
            interval_s = POLL_S
            try:
                follower = follower or self._open()
                if follower is None:
                    continue
                news = (follower.poll(), self._state(follower))
                printed = follower.poll_output()
            except SessionError as error:
                self.post_message(SessionFailed(str(error)))
                interval_s = POLL_ENDED_S
                continue
            if printed:
                self._post_output()
            if last is None or news[0] != last[0] or news[1] != last[1]:
                last = news
                self.post_message(SnapshotTaken(*news))
            elif not news[1].going_on and not printed:
                interval_s = POLL_ENDED_S

    def _open(self) -> Follower | None:
        if self._session is None and self._awaited is not None:
            self._session = self._awaited.open()
        if self._session is None:
            return None
        # The pty has all that a script of ours prints; of others, the session has the most.
        return Follower(self._session, self._terminal.feed if self._child is None else None)

    def _state(self, follower: Follower) -> ScriptState:
        return follower.state() if self._child is None else _child_state(self._child)

    def _pump(self) -> None:
        child = self._child
        if child is None:
            return
        child.pump(self._terminal.feed, self._post_output)
        if child.status is not None:
            self.post_message(ScriptEnded())

    def _post_output(self) -> None:
        self.post_message(OutputChanged(self._terminal.snapshot()))

    # What the threads say.

    def on_snapshot_taken(self, event: SnapshotTaken) -> None:
        """Hand the news to the panes."""
        if self._ending:
            return
        self._snapshot, self._failure = event.snapshot, ""
        self._show(event.state)

    def on_session_failed(self, event: SessionFailed) -> None:
        """Say so in the status; what was read stays."""
        if self._ending:
            return
        self._failure = event.reason
        self._show_status()

    def on_output_changed(self, event: OutputChanged) -> None:
        """Show it, or mark the tab."""
        if self._ending:
            return
        self.query_one(OutputPane).show_output(event.output)
        if self.query_one(TabbedContent).active != "output" and not self._unseen_output:
            self._unseen_output = True
            self._show_labels()

    def on_script_ended(self, event: ScriptEnded) -> None:
        """Show how; a script that never got to a kernel has its reasons in the output."""
        if self._child is None or self._ending:
            return
        self._show(_child_state(self._child))
        if self._snapshot is None or not self._snapshot.launch_count:
            if not self._user_chose_tab and self._script.number:
                self._open_tab("output")

    @property
    def _ending(self) -> bool:
        # What the threads posted last may come when the widgets have gone.
        return not self.is_running or not self.screen_stack

    def _show(self, state: ScriptState) -> None:
        if state != self._script:
            self._script = state
            self.refresh_bindings()
        for pane in self.query(Pane):
            pane.show(self._snapshot, state, self._session)
        self._show_status()
        self._show_labels()

    def _show_status(self) -> None:
        waits = ""
        if self._waits and self._script.going_on:
            typing = self.query_one(OutputPane).is_typing
            waits = "script waits for input" + ("" if typing else ", i to type")
        status = status_line(self._snapshot, self._script, self._failure, waits)
        self.query_one("#status", Static).update(status)

    def _show_labels(self) -> None:
        tabs = self.query_one(TabbedContent)
        faults = 0
        if self._snapshot is not None:
            faults = sum(group.first.event.is_open for group in self._snapshot.faults)
        more = self._snapshot.more if self._snapshot is not None else ""
        labels = {tab: Text(label) for tab, label in _LABELS.items()}
        if faults:
            labels["faults"].append(f" ✖{display.count(faults)}{more}", style=palette.FAULT)
        if self._unseen_output:
            labels["output"].append(" •", style=palette.GOOD)
        for tab, label in labels.items():
            tabs.get_tab(tab).label = label

    def _tick(self) -> None:
        if self._ending or not self._script.going_on:
            return
        if self._child is not None:
            self._waits = self._child.waits_for_input()
            self.query_one(OutputPane).hide_typing(not self._child.echoes())
        self._show_status()

    # What the panes and keys say.

    def on_open_kernel(self, event: OpenKernel) -> None:
        """Show a kernel's line."""
        self.query_one(KernelPane).open(event)
        self._open_tab("kernel")

    def on_open_fault(self, event: OpenFault) -> None:
        """Show a fault."""
        self.query_one(FaultsPane).open(event)
        self._open_tab("faults")

    def on_follow_line(self, event: FollowLine) -> None:
        """Show what became of a source line."""
        self.query_one(PassesPane).follow(event)
        self._open_tab("passes")

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """Output that is looked at is no news; keys go to what the pane is about."""
        if self._ending:
            return
        if isinstance(self.focused, Tabs):
            self._asked_tab = event.pane.id or self._asked_tab
            if self._tab_clicked:
                # Who chooses by keys among the tabs stays there, who clicks wants what is behind.
                self._focus_pane(event.pane)
        elif event.pane.id != self._asked_tab:
            # A pane that had the focus before another was asked for says so only now.
            self.query_one(TabbedContent).active = self._asked_tab
            return
        else:
            self._focus_pane(event.pane)
        self._tab_clicked = False
        if event.pane.id == "output" and self._unseen_output:
            self._unseen_output = False
            self._show_labels()

    def on_click(self, event: events.Click) -> None:
        """Note which tabs are chosen by the mouse."""
        self._tab_clicked = isinstance(event.widget, Tab)
        self._user_chose_tab = self._user_chose_tab or self._tab_clicked

    def action_tab(self, tab: str) -> None:
        """Show a pane."""
        self._user_chose_tab = True
        self._open_tab(tab)

    def _open_tab(self, tab: str) -> None:
        self._asked_tab = tab
        tabs = self.query_one(TabbedContent)
        if tabs.active == tab:
            self._focus_pane(tabs.get_pane(tab))
            return
        # Until the pane is there, lest the focus of what goes out of sight falls on the tabs.
        self.set_focus(None)
        tabs.active = tab

    def _focus_pane(self, tab_pane: TabPane) -> None:
        self._pane_of(tab_pane).focus_main()

    @staticmethod
    def _pane_of(tab_pane: TabPane | None) -> Pane:
        assert tab_pane is not None
        pane = tab_pane.query_children().first()
        assert isinstance(pane, Pane)
        return pane

    def action_type(self) -> None:
        """Type to the script, from whatever pane."""
        if self._child is None or not self._script.going_on:
            self.notify("there is no script to type to")
            return
        self.query_one(OutputPane).type_next()
        self.action_tab("output")

    def on_output_pane_typed(self, event: OutputPane.Typed) -> None:
        """Type the line into the script."""
        if self._child is None:
            return
        data = (event.text + "\n").encode()
        written = self._child.write(data)
        note = (
            ""
            if written == len(data)
            else (f"the script is not reading: {len(data) - written} of {len(data)} bytes not sent")
        )
        self.query_one(OutputPane).show_note(note)

    def on_output_pane_input_ended(self) -> None:
        """Ctrl-D for the script."""
        if self._child is not None:
            self._child.end_input()

    def on_resize(self, event: events.Resize) -> None:
        """Tell the script the size of the output pane."""
        # Status, tabs (two rows) and keys around it, the input line below; a blank at each side.
        rows, columns = max(2, event.size.height - 5), max(10, event.size.width - 3)
        self._terminal.rows = rows
        if self._child is not None:
            self._child.resize(rows, columns)

    def action_interrupt(self) -> None:
        """Ctrl-C goes to the script."""
        if self._child is not None:
            self._child.interrupt()
            self.notify("sent Ctrl-C to the script", timeout=2)

    def action_turn_theme(self) -> None:
        """Light or dark."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's, and on a light theme one for our own colours."""
        filters = super().get_line_filters()
        return filters if self.current_theme.dark else [_ON_LIGHT, *filters]

    def action_copy(self) -> None:
        """Put what is looked at into the clipboard, by way of the terminal."""
        text = self._pane_of(self.query_one(TabbedContent).active_pane).copied_text().rstrip()
        if not text:
            self.notify("nothing to copy here")
            return
        # Where it is pasted may be a terminal, too.
        self.copy_to_clipboard(visible(text))
        lines = text.count("\n") + 1
        what = text.strip() if lines == 1 else f"{display.count(lines)} lines"
        self.notify(f"copied {display.shown(what, 60)}", timeout=2, markup=False)

    def action_save(self) -> None:
        """Keep what was recorded until now, in a file named after the script."""
        session, snapshot = self._session, self._snapshot
        if session is None or snapshot is None:
            self.notify("nothing was recorded yet")
            return
        path = unused_path(Path.cwd(), snapshot.run.script)

        def save() -> None:
            try:
                session.copy_to(path)
            except SessionError as error:
                self.post_message(Told(str(error), "error"))
                return
            self.post_message(Told(f"saved; tkdebug view {path.name} opens it"))

        self.run_worker(save, thread=True, group="save")

    def on_told(self, event: Told) -> None:
        """Show it for a while."""
        self.notify(visible(event.text), severity=event.severity, markup=False)

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(HelpScreen())

    def action_ask_quit(self) -> None:
        """Quit; a script that runs is asked about first."""
        if isinstance(self.screen, QuitScreen):
            return
        if self._child is None or self._child.status is not None:
            self.exit()
            return
        self.push_screen(QuitScreen(), self._quit)

    def _quit(self, choice: QuitChoice | None) -> None:
        match choice:
            case "stop":
                self.notify("stopping the script…", timeout=10)
                self.run_worker(self._stop_script, thread=True, group="stop")
            case "run-on":
                self.runs_on = True
                self.exit()
            case _:
                return

    def _stop_script(self) -> None:
        if self._child is not None:
            self._child.stop()
        self.post_message(StopFinished())

    def on_stop_finished(self, event: StopFinished) -> None:
        """It has ended: so does the app."""
        self.exit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ctrl-C is among the keys shown only while there is a script to interrupt."""
        return action != "interrupt" or (self._child is not None and self._script.going_on)

    async def action_quit(self) -> None:
        """Textual's own way to quit asks too."""
        self.action_ask_quit()

    def close_session(self) -> None:
        """Close the session; call when the app has ended."""
        if self._session is not None:
            self._session.close()


def _child_state(child: Child) -> ScriptState:
    status = child.status
    if status is None:
        return ScriptState("running", process=child.pid)
    if status < 0:
        return ScriptState("signalled", -status, child.pid)
    return ScriptState("ended", status, child.pid)
