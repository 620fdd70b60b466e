"""The app: passes messages of its feed's threads to the panes.

Responsible for the state of the script as shown, for keys that work everywhere, for the way back,
for quitting. Every widget is touched from the app's own loop alone.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.filter import LineFilter
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from tkdebug.debugger.remote.records import View
from tkdebug.errors import SessionError
from tkdebug.instrument.records import RunInfo
from tkdebug.instrument.session import Session
from tkdebug.terminal.text import visible
from tkdebug.tui.commands import RunCommands
from tkdebug.tui.debug.link import DebugAsked, DebugLink, DebugSaid, Gone, Runs
from tkdebug.tui.debug.pane import DebugPane
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.editor import edit
from tkdebug.tui.faults import FaultsPane
from tkdebug.tui.feed import Feed, child_state
from tkdebug.tui.home.kernels import totals
from tkdebug.tui.home.pane import HomePane
from tkdebug.tui.kernel.pane import KernelPane
from tkdebug.tui.launches.pane import LaunchesPane
from tkdebug.tui.messages import (
    FollowLine,
    Jumped,
    OpenFault,
    OpenKernel,
    OutputChanged,
    ScriptEnded,
    SessionFailed,
    SnapshotTaken,
    StopFinished,
    TabMarked,
    Told,
)
from tkdebug.tui.next_run import Again, RunAgain, Saves, command_of
from tkdebug.tui.output import OutputPane
from tkdebug.tui.pane import ScriptTraits
from tkdebug.tui.panes import PANES
from tkdebug.tui.passes import PassesPane
from tkdebug.tui.session.follow import AwaitedSession
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.status import status_line
from tkdebug.tui.tabs import PaneTabs, Visits
from tkdebug.tui.widgets.dialogs import Choice, HelpScreen, PickScreen, QuitChoice, QuitScreen
from tkdebug.tui.widgets.key_row import KeyRow
from tkdebug.tui.widgets.typing_keys import typing_key

if TYPE_CHECKING:
    from tkdebug.tui.script.child import Child

_SHOWN_AS_RUNNING_S = 0.3


class _RunScreen(Screen[None]):
    """The screen under all dialogs; a move of the focus does not redraw all of it."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)


class TkdebugApp(App[None]):
    """Shows one run.

    Args:
        session: a recorded session, or one still to be created by `child`.
        child: the script, when it is this app that started it.
        link: the link to the debugger of `child`.
        opens: the tab of the pane to begin with.
        saves: the files that start another run when one of them is saved; () for none.

    Attributes:
        again: what the user asked for when the app ended; None for nothing.
    """

    CSS_PATH = "tkdebug.tcss"
    TITLE = "tkdebug"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {RunCommands}
    # The last one reached is set; not a ClassVar, as Textual declares it.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide"), (152, "-very-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            typing_key(str(i), f"tab('{pane.TAB}')", pane.TAB.title(), show=False)
            for i, pane in enumerate(PANES)
        ),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("y", "copy", "Copy", show=False),
        Binding("w", "save", "Save the recording", show=False),
        Binding("t,T", "turn_theme", "Colours", show=False),
        Binding("e", "edit", "Editor", show=False),
        Binding("escape,alt+left", "go_back", "Back", show=False),
        Binding("alt+right,tilde", "go_forward", "Forward", show=False),
        Binding("ctrl+p", "command_palette", "Palette", show=False, key_display="^p"),
        Binding("i", "type", "Type to script", show=False),
        Binding("r", "run_again", "Run again", show=False),
        Binding("R", "run_on_save", "Run again on each save", show=False),
        Binding("ctrl+c", "interrupt", "Stop", priority=True),
        Binding("ctrl+c", "interrupt_nothing", show=False, priority=True),
        Binding("ctrl+q", "ask_quit", "Quit", priority=True, show=False),
        Binding("q", "ask_quit", "Quit"),
    ]

    def __init__(
        self,
        session: Session | AwaitedSession,
        child: Child | None = None,
        link: DebugLink | None = None,
        opens: str = LaunchesPane.TAB,
        saves: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.again: Again | None = None
        self._saves = Saves(saves)
        self._opens = opens
        self._child, self._link = child, link
        self._feed = Feed(session, child, link, self.post_message)
        self._snapshot: Snapshot | None = None
        self._script = ScriptState("starting" if child is None else "running")
        self._failure = ""
        self._waits = False
        self._is_stopped = self._is_shown_as_stopped = self._has_stopped = False
        self.runs_on = False
        self._visits = Visits()
        self._filters_of: tuple[str, list[LineFilter]] = ("", [])
        for theme in palette.other_themes():
            self.register_theme(theme)

    def get_default_screen(self) -> Screen[None]:
        """Return the screen under all dialogs."""
        return _RunScreen(id="_default")

    def compose(self) -> ComposeResult:
        """Status, panes, keys."""
        yield Static(id="status")
        traits = ScriptTraits(self._child is not None, self._link is not None)
        yield PaneTabs(PANES, traits, self._opens)
        yield KeyRow()

    async def on_mount(self) -> None:
        """Show the first pane, and start the threads."""
        self._show_status()
        await self._tabs.begin()
        self._feed.read_launches(self._tabs.pane.LISTS_LAUNCHES)
        self.set_interval(0.5, self._tick)
        self.run_worker(self._feed.follow, thread=True, group="follow", exit_on_error=True)
        if self._child is not None:
            self.run_worker(self._feed.pump, thread=True, group="pump", exit_on_error=True)
        if self._link is not None:
            self.run_worker(self._feed.listen, thread=True, group="listen", exit_on_error=True)

    def on_unmount(self) -> None:
        """Let the threads end."""
        self._feed.stop()

    @property
    def _tabs(self) -> PaneTabs:
        return self.query_one(PaneTabs)

    # Messages of the threads.

    @on(SnapshotTaken)
    def _show_snapshot(self, event: SnapshotTaken) -> None:
        """Hand the news to the panes."""
        if self._ending:
            return
        self._snapshot, self._failure = event.snapshot, ""
        self._tabs.show_failure("")
        self._show(event.state)

    @on(SessionFailed)
    def _show_failure(self, event: SessionFailed) -> None:
        """Report the error in the status; records that were read stay."""
        if self._ending:
            return
        folder = "" if self._feed.session is None else f"{self._feed.session.path.parent}{os.sep}"
        self._failure = display.shown(event.reason.replace(folder, ""), 300)
        self._tabs.show_failure(self._failure)
        self._show_status()

    @on(OutputChanged)
    def _show_output(self, event: OutputChanged) -> None:
        """Show the output, or mark the tab."""
        if self._ending:
            return
        pane = self._tabs.get(OutputPane)
        pane.show_output(event.output, in_sight=self._tabs.pane is pane)
        self._tabs.show_marks()

    @on(ScriptEnded)
    async def _show_end(self, event: ScriptEnded) -> None:
        """Show how the script ended; the output says why one never got to a kernel."""
        if self._child is None or self._ending:
            return
        self._show(child_state(self._child))
        # The session's records of a launch may be read only after the debugger stopped in it.
        is_in_kernels = self._has_stopped or bool(self._snapshot and self._snapshot.launch_count)
        if not is_in_kernels and not self._tabs.user_chose and self._script.number:
            await self._tabs.open(OutputPane.TAB)

    @on(DebugSaid)
    async def _hear_debugger(self, event: DebugSaid) -> None:
        """Hand the debugger's news to the panes; show a stop unless the user types an input."""
        if self._ending:
            return
        self._tabs.hear(event.said)
        self._has_stopped = self._has_stopped or isinstance(event.said, View)
        is_stop = isinstance(event.said, View) and not self._is_stopped
        if isinstance(event.said, View | Runs | Gone):
            self._is_stopped = isinstance(event.said, View)
            self._show_stopped()
        is_elsewhere = self._tabs.active != DebugPane.TAB
        if is_stop and is_elsewhere and not isinstance(self.focused, Input):
            await self._tabs.open(DebugPane.TAB)

    @on(DebugAsked)
    def _ask_debugger(self, event: DebugAsked) -> None:
        """Send a request to the script's debugger; notify the user if it can have no effect."""
        if self._link is None:
            self.notify("a recorded run cannot be stopped; tkdebug debug --tui script.py can")
        elif not self._link.send(event.message):
            self.notify("the script's debugger does not answer", severity="error")
        elif event.message["do"] == "break" and self._mode == "native":
            self.notify(
                "kernels run on the GPU, where breakpoints do not stop; under `tkdebug run "
                "--mode interpret` they do"
            )

    @property
    def _mode(self) -> str:
        return "" if self._snapshot is None else self._snapshot.run.mode

    @property
    def _ending(self) -> bool:
        # The threads' last messages may come when the widgets have gone.
        return not self.is_running or not self.screen_stack

    def _show(self, state: ScriptState) -> None:
        if state != self._script:
            self._script = state
            self.refresh_bindings()
        self._tabs.show(self._snapshot, state, self._feed.session)
        self._show_status()

    def _show_status(self) -> None:
        waits = ""
        if self._waits and self._script.going_on:
            typing = self._tabs.get(OutputPane).is_typing
            waits = "script waits for input" + ("" if typing else ", i to type")
        status = status_line(
            self._snapshot,
            self._script,
            self._failure,
            waits,
            is_stopped=self._is_shown_as_stopped,
        )
        if self._saves.files:
            status.append("  ↻ on save", style=palette.GOOD)
        model = self._tabs.get(HomePane).model
        if model is not None and model.launches and not self._failure:
            status.append(f"  {totals(model)}", style=palette.MUTED)
        self.query_one("#status", Static).update(status)

    def _show_stopped(self) -> None:
        """Show that the script stopped, or, once it runs for longer than a step, that it runs."""
        if self._is_stopped:
            self._is_shown_as_stopped = True
        elif self._is_shown_as_stopped:
            self.set_timer(_SHOWN_AS_RUNNING_S, self._show_running)
        self._show_status()
        self.refresh_bindings()

    def _show_running(self) -> None:
        self._is_shown_as_stopped = self._is_stopped
        if not self._ending:
            self._show_status()

    # The next run.

    @on(RunAgain)
    def _run_with_options(self, event: RunAgain) -> None:
        """Run the script again with further options."""
        options = event.options
        if options == ("--watch",):
            watched = self._tabs.get(HomePane).watched()
            if not watched:
                self.notify("at home (0), go to a line that assigns a value; then 8 and Enter")
                return
            options = ("--watch", watched)
        self._run_again(options)

    def action_run_again(self) -> None:
        """Run the script again."""
        self._run_again(())

    def action_run_on_save(self) -> None:
        """Run the script again whenever one of its files is saved, or no longer."""
        if self._saves.files:
            self._saves = Saves(())
            self.notify("saves start no run any more", timeout=2)
        elif self._child is None or self._snapshot is None:
            self.notify("r runs it again first; then R does so on each save")
        else:
            kernels = (kernel.file for kernel in self._snapshot.kernels)
            self._saves = Saves({self._snapshot.run.script, *kernels})
            files = len(self._saves.files)
            self.notify(f"runs again when one of {files} files is saved", timeout=3)
        self._show_status()

    def _run_again(self, options: tuple[str, ...]) -> None:
        if self._script.going_on:
            self.notify("the script still runs: Ctrl-C stops it, then r runs it again")
        elif self._child is not None:
            tab = self._tabs.pane.TAB if options else ""
            self.again = Again(options, self._saves.files, tab)
            self.exit()
        elif self._snapshot is not None:
            self._ask_to_run(self._snapshot.run, options)

    def _ask_to_run(self, run: RunInfo, options: tuple[str, ...]) -> None:
        """Ask whether to run what a recording names: nobody has said so in this terminal yet."""
        command = command_of(run, options)
        if not command:
            script = display.shown(run.script, 100)
            self.notify(f"{script} is not here; r runs it where it is", markup=False)
            return
        choices = [Choice("run", display.shown(command, 300)), Choice("cancel", "")]

        def picked(index: int | None) -> None:
            if index == 0:
                self.again = Again(options)
                self.exit()

        self.push_screen(PickScreen("Run again", choices, "command"), picked)

    def _tick(self) -> None:
        if not self._ending and not self._script.going_on and self._saves.changed():
            self._run_again(())
        if self._ending or not self._script.going_on:
            return
        if self._child is not None:
            self._waits = self._child.waits_for_input()
            self._tabs.get(OutputPane).hide_typing(not self._child.echoes())
        self._show_status()

    # Messages of panes and keys.

    @on(OpenKernel)
    async def _open_kernel(self, event: OpenKernel) -> None:
        """Show a kernel's line."""
        self._note_place()
        (await self._tabs.ready(KernelPane)).open(event)
        await self._tabs.open(KernelPane.TAB)

    @on(OpenFault)
    async def _open_fault(self, event: OpenFault) -> None:
        """Show a fault."""
        self._note_place()
        (await self._tabs.ready(FaultsPane)).open(event)
        await self._tabs.open(FaultsPane.TAB)

    @on(FollowLine)
    async def _follow_line(self, event: FollowLine) -> None:
        """Show the life of a source line in the passes pane."""
        self._note_place()
        (await self._tabs.ready(PassesPane)).follow(event)
        await self._tabs.open(PassesPane.TAB)

    @on(PaneTabs.TabActivated)
    def _list_pane_in_sight(self) -> None:
        """Read launches one by one only if the pane in sight lists them."""
        self._feed.read_launches(self._tabs.pane.LISTS_LAUNCHES)

    @on(TabMarked)
    def _mark_tab(self, event: TabMarked) -> None:
        """Show the changed mark after the name of a pane's tab."""
        if not self._ending:
            self._tabs.show_marks()
            self._show_status()

    # The way back.

    @on(Jumped)
    def _remember_place(self, event: Jumped) -> None:
        """Remember where the user was."""
        self._visits.add(event.tab, event.position)

    def _note_place(self) -> None:
        """Remember the pane in sight, and what is looked at there."""
        self._visits.add(*self._tabs.place)

    async def action_go_back(self) -> None:
        """Go to the place before; home if there is none."""
        if not self._visits.back and self._tabs.active != HomePane.TAB:
            self._note_place()
            await self._tabs.open(HomePane.TAB)
        else:
            await self._tabs.go_to(self._visits.before(self._tabs.place))

    async def action_go_forward(self) -> None:
        """Go to the place that the user came back from."""
        await self._tabs.go_to(self._visits.after(self._tabs.place))

    def action_edit(self) -> None:
        """Open the editor at the line at the cursor."""
        place = self._tabs.pane.source_place()
        if place is None:
            self.notify("there is no line to edit here")
            return
        if problem := edit(self, *place):
            self.notify(problem, markup=False)

    async def action_tab(self, tab: str) -> None:
        """Show a pane."""
        self._tabs.user_chose = True
        if tab != self._tabs.active:
            self._note_place()
        await self._tabs.open(tab)

    async def action_type(self) -> None:
        """Type to the script, from any pane."""
        if self._child is None or not self._script.going_on:
            self.notify("there is no script to type to")
            return
        self._tabs.get(OutputPane).type_next()
        await self.action_tab(OutputPane.TAB)

    @on(OutputPane.Typed)
    def _type_into_script(self, event: OutputPane.Typed) -> None:
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

    @on(OutputPane.InputEnded)
    def _end_input(self) -> None:
        """Ctrl-D for the script."""
        if self._child is not None:
            self._child.end_input()

    def on_resize(self, event: events.Resize) -> None:
        """Tell the script the size of the output pane."""
        # Status, tabs and keys around it, the input line below; a blank at each side.
        rows, columns = max(2, event.size.height - 4), max(10, event.size.width - 3)
        self._feed.terminal.rows = rows
        if self._child is not None:
            self._child.resize(rows, columns)

    def action_interrupt(self) -> None:
        """Send Ctrl-C to the script."""
        if self._child is not None:
            self._child.interrupt()
            self.notify("sent Ctrl-C to the script", timeout=2)

    def action_interrupt_nothing(self) -> None:
        """Ignore Ctrl-C at a stop: nothing runs, and the script is not to end by mistake."""
        self.notify("the script is stopped in the debugger: c goes on, q quits", timeout=4)

    def action_turn_theme(self) -> None:
        """Go through dark, light, for any colour vision, without colours."""
        names = list(palette.THEMES)
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]
        self.notify(f"colours: {palette.THEMES[self.theme]}", timeout=2)
        self._tabs.get(HomePane).recolour()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters, and those of the theme for tkdebug's own colours."""
        if self._filters_of[0] != self.theme:
            self._filters_of = self.theme, palette.filters_of(self.theme, self.current_theme.dark)
        return [*self._filters_of[1], *super().get_line_filters()]

    def action_copy(self) -> None:
        """Copy the text in focus to the clipboard, by way of the terminal."""
        text = self._tabs.pane.copied_text().rstrip()
        if not text:
            self.notify("nothing to copy here")
            return
        # Where it is pasted may be a terminal, too.
        self.copy_to_clipboard(visible(text))
        lines = text.count("\n") + 1
        what = text.strip() if lines == 1 else f"{display.count(lines)} lines"
        self.notify(f"copied {display.shown(what, 60)}", timeout=2, markup=False)

    def action_save(self) -> None:
        """Keep the records so far, in a file named after the script."""
        session, snapshot = self._feed.session, self._snapshot
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

    @on(Told)
    def _show_message(self, event: Told) -> None:
        """Show the message for a while."""
        self.notify(visible(event.text), severity=event.severity, markup=False)

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(HelpScreen(PANES, type(self._tabs.pane)))

    def action_ask_quit(self) -> None:
        """Quit; ask first about a script that runs."""
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
        if self._link is not None:
            self._link.send({"do": "end"})  # else Ctrl-C would stop it in the debugger
        if self._child is not None:
            self._child.stop()
        self.post_message(StopFinished())

    @on(StopFinished)
    def _end(self, event: StopFinished) -> None:
        """End the app, as the script has ended."""
        self.exit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Show Ctrl-C only while there is a script to interrupt; digits may be a text's."""
        if action == "tab":
            return len(self.screen_stack) == 1 and not isinstance(self.focused, Input)
        if action == "interrupt_nothing":
            return self._is_stopped and self._script.going_on
        is_running = self._child is not None and self._script.going_on and not self._is_stopped
        return action != "interrupt" or is_running

    async def action_quit(self) -> None:
        """Ask before quitting in Textual's own way, too."""
        self.action_ask_quit()

    def close_session(self) -> None:
        """Close the session; call when the app has ended."""
        if self._feed.session is not None:
            self._feed.session.close()


def unused_path(folder: Path, script: str) -> Path:
    """Return an unused path in `folder`, named after `script`, whatever characters that has."""
    stem = re.sub(r"[^\w.-]", "_", Path(script).stem)[:60].strip(".-_") or "run"
    names = (f"{stem}{'' if number == 1 else f'-{number}'}.tkd" for number in itertools.count(1))
    return next(path for path in map(folder.joinpath, names) if not path.exists())
