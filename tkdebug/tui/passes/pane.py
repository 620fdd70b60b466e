"""The passes pane: what each compiler pass did to a kernel, and what became of one source line."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.widgets import Static

from tkdebug.errors import SessionError
from tkdebug.instrument.passes.diff import PassDiff
from tkdebug.instrument.passes.kernel_passes import (
    KernelPasses,
    LifeStep,
    LineLife,
    Place,
    line_life,
    load_kernel_passes,
)
from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.kernel.text import first_to_show, nothing_compiled
from tkdebug.tui.messages import FollowLine, OpenKernel, PassesLoaded, SessionFailed
from tkdebug.tui.pane import Pane
from tkdebug.tui.passes.rows import change_rows, life_rows, size_text, text_diff_rows
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.widgets.dialogs import KERNEL_DETAILS, PickScreen, kernel_choices, kernel_title
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.table import Cell, Column, Table
from tkdebug.tui.widgets.text_list import TextList
from tkdebug.tui.widgets.typing_keys import typing_key

_COLUMNS = (
    Column("pass", 0),
    Column("time", 8, right=True),
    Column("ops", 6, right=True, from_width=46),
    Column("changes", 18),
)
_LIFE_COLUMNS = (
    Column("what became of the line", 0),
    Column("lines", 6, right=True),
    Column("changes", 18),
)


_LEGEND = Text(
    "+ added - removed ~ replaced a attributes l layouts t types m moved o operands",
    style=palette.MUTED,
)


class PassesPane(Pane):
    """Left (or above) the passes, right (or below) what the one at the cursor did."""

    TAB = "passes"
    KEYS = (
        ("d", "changes by op, or the diff of the texts"),
        ("o", "all passes, only those that changed something"),
        ("Enter", "to the changes; from there to the op's source line"),
        ("l Esc", "follow the op's source line, all ops again"),
        ("p n N", "pick a kernel, next, previous"),
        (
            "+ - ~ a l t m o",
            "added, removed, replaced; attributes, layouts, types, moved, operands",
        ),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        typing_key("slash", "find", "Find"),
        typing_key("colon", "find(True)", "Go to line", show=False),
        Binding("d", "turn_view", "Ops/text"),
        Binding("o", "only_changed", "All"),
        Binding("l", "follow", "Follow"),
        Binding("escape", "leave_line", "All ops"),
        Binding("p", "pick_kernel", "Kernel"),
        Binding("n", "kernel(1)", "Next kernel", show=False),
        Binding("N", "kernel(-1)", "Previous kernel", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="passes-pane")
        self._session: Session | None = None
        self._kernels: tuple[RecordedKernel, ...] = ()
        self._passes: KernelPasses | None = None
        self._wanted: str | None = None
        self._followed: Place | None = None
        self._life: LineLife | None = None
        self._rows: tuple[PassDiff, ...] = ()
        self._only_changed = True
        self._as_text = False
        self._begin_with_changes = False
        self._has_faults = False

    def compose(self) -> ComposeResult:
        """Whose passes, the list, and what one of them did."""
        yield Static(id="passes-title")
        with Horizontal(id="passes-split"):
            yield Table(_COLUMNS, id="pass-table")
            with Container(id="pass-side"):
                yield Static(id="pass-title", classes="side-title")
                yield TextList(id="pass-text")
        yield FindBar()
        yield Static(_LEGEND, id="pass-legend")

    def on_mount(self) -> None:
        """Begin empty."""
        self._show_empty(ScriptState("starting"))

    def focus_main(self) -> None:
        """Focus the list, and load what is not loaded yet."""
        self.query_one("#pass-table", Table).focus()
        if self._wanted is None and self._kernels:
            self._load(first_to_show(self._kernels))

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Take a new snapshot."""
        self._session = session
        self._kernels = snapshot.kernels if snapshot is not None else ()
        self._has_faults = snapshot is not None and bool(snapshot.faults)
        if self._passes is None:
            self._show_empty(state)
        else:
            self._show_title()

    def follow(self, request: FollowLine) -> None:
        """Show the life of a line."""
        kernel = next((k for k in self._kernels if k.hash == request.kernel_hash), None)
        if kernel is None:
            return
        self._followed = (request.file, request.line)
        self._life = None
        if self._passes is not None and self._passes.kernel.hash == kernel.hash:
            self._show_passes()
        else:
            self._load(kernel)

    def _load(self, kernel: RecordedKernel) -> None:
        session = self._session
        if session is None:
            return
        self._wanted = kernel.hash

        def load() -> None:
            try:
                passes = load_kernel_passes(session, kernel)
            except SessionError as error:
                self.app.post_message(SessionFailed(str(error)))
                return
            self.post_message(PassesLoaded(kernel.hash, passes))

        self.run_worker(load, thread=True, exclusive=True, group="passes")

    def on_passes_loaded(self, event: PassesLoaded) -> None:
        """Show them, unless others have been asked for meanwhile."""
        event.stop()
        if event.kernel_hash != self._wanted:
            return
        self._passes = event.passes
        self._begin_with_changes = True
        if event.passes is None:
            self._rows = ()
            self.query_one("#pass-table", Table).show_rows((), lambda index: ())
            self.query_one("#pass-text", TextList).show_rows(())
            self._say("what the passes did was not recorded for this kernel")
            return
        self._show_passes()

    def _show_empty(self, state: ScriptState) -> None:
        title = Text("passes", style=palette.MUTED)
        self.query_one("#passes-title", Static).update(title)
        if not self._kernels:
            self._say(
                "no kernel compiled yet; what each pass did shows here once one is"
                if state.going_on
                else nothing_compiled(self._has_faults)
            )

    def _say(self, text: str) -> None:
        table = self.query_one("#pass-table", Table)
        table.empty_text = text
        table.refresh()

    def _show_title(self) -> None:
        passes = self._passes
        if passes is None:
            return
        kernel = passes.kernel
        title = kernel_title(self._kernels, kernel)
        if self._followed is not None:
            file, line = self._followed
            title.append(f"  follows {display.file_name(file)}:{line}", style=palette.GOOD)
            source = self._source_line
            title.append(f"  {display.shown(source.strip(), 80)}" if source else "")
            title.append("  Esc: all ops", style=palette.MUTED)
        elif kernel.error is not None:
            title.append(f"  did not compile: {display.shown(kernel.error, 200)}", palette.FAULT)
        else:
            changed = sum(diff.changed for diff in passes.diffs)
            shown = f"{changed} of {len(passes.diffs)} passes, o: all"
            if not self._only_changed:
                shown = f"{len(passes.diffs)} passes, o: the {changed} that changed it"
            title.append(f"  {shown}", style=palette.GOOD)
            own, whole = map(display.duration, (passes.time_ns, kernel.compile_ns))
            title.append(f"  {own} of the compile's {whole} in passes", style=palette.MUTED)
            title.append(f"  {display.shown(kernel.signature, 300)}", style=palette.MUTED)
        self.query_one("#passes-title", Static).update(title)

    def _show_passes(self) -> None:
        passes = self._passes
        if passes is None:
            return
        table = self.query_one("#pass-table", Table)
        if self._followed is not None:
            # Keys of their own, so that the cursor begins with the front end.
            table.columns = _LIFE_COLUMNS
            table.move_cursor(0)
            life = self._life = line_life(passes, self._followed)
            steps = life.steps
            table.show_rows(
                [("step", index) for index in range(len(steps))],
                lambda index: (
                    Cell(display.shown(steps[index].name, 60)),
                    Cell(display.count(len(steps[index].lines))),
                    Cell(f"{len(steps[index].changes)} changed" if steps[index].changes else ""),
                ),
            )
        else:
            self._life = None
            table.columns = _COLUMNS
            rows = self._rows = tuple(
                d for d in passes.diffs if d.changed or not self._only_changed
            )
            table.show_rows([row.number for row in rows], lambda index: _cells(rows[index]))
            if self._begin_with_changes:
                # What the front end made is all there is; the first change is news.
                table.move_cursor(next((i for i, d in enumerate(rows) if d.changes), 0))
                self._begin_with_changes = False
        self.query_one("#pass-legend").display = self._life is None
        self.refresh_bindings()
        self._show_title()
        self._show_selected()

    @property
    def _source_line(self) -> str:
        """The text of the line followed, "" where it is not the kernel's own."""
        if self._passes is None or self._followed is None:
            return ""
        (file, line), kernel = self._followed, self._passes.kernel
        lines, index = kernel.source.split("\n"), line - kernel.line
        return lines[index] if file == kernel.file and 0 <= index < len(lines) else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only keys that do something now are shown."""
        if action in ("turn_view", "only_changed"):
            return self._life is None
        if action == "leave_line":
            return self._life is not None
        return super().check_action(action, parameters)

    def _show_selected(self) -> None:
        passes, index = self._passes, self.query_one("#pass-table", Table).cursor
        text, title = self.query_one("#pass-text", TextList), Text(no_wrap=True)
        if passes is None:
            return
        if self._life is not None:
            step = self._selected_step
            title.append("" if step is None else f"after {display.shown(step.name, 60)}")
            title.append(f"  {self._life.note}", style=palette.MUTED)
            text.show_rows(() if step is None else life_rows(step, is_first=index == 0))
        elif index < len(self._rows):
            diff = self._rows[index]
            title.append(display.shown(diff.name, 60))
            how = "diff of the texts, d: by op" if self._as_text else "by line and op, d: text"
            title.append(f"  {how}", style=palette.MUTED)
            rows = text_diff_rows if self._as_text else change_rows
            text.show_rows(rows(passes, diff))
        self.query_one("#pass-title", Static).update(title)

    def on_line_list_moved(self, event: Table.Moved) -> None:
        """Show what the pass selected now did."""
        event.stop()
        if event.line_list.id == "pass-table":
            self._show_selected()

    def on_line_list_chosen(self, event: Table.Chosen) -> None:
        """Enter goes to the right side; from there to the source line."""
        event.stop()
        text = self.query_one("#pass-text", TextList)
        if event.line_list.id == "pass-table":
            text.focus()
            return
        place = self._place()
        if place is not None and self._passes is not None:
            kernel = self._passes.kernel
            self.post_message(OpenKernel(kernel.hash, kernel.name, *place))

    def copied_text(self) -> str:
        """All that is shown of the pass."""
        text = self.query_one("#pass-text", TextList)
        return "\n".join(text.line_text(index) for index in range(text.line_count))

    def _place(self) -> Place | None:
        row = self.query_one("#pass-text", TextList).row
        return self._followed if self._followed is not None else row.place if row else None

    def action_turn_view(self) -> None:
        """Changes by op, or the diff of the texts."""
        self._as_text = not self._as_text
        self._show_selected()

    def action_only_changed(self) -> None:
        """List only passes that changed something, or all."""
        self._only_changed = not self._only_changed
        self._show_passes()

    def action_follow(self) -> None:
        """Follow the line of the op at the cursor."""
        place = self._place()
        if place is None:
            self.app.notify("put the cursor on an op, or press l on a line in 3 Kernel")
            return
        self._followed = place
        self._show_passes()

    def action_leave_line(self) -> None:
        """Show all ops again."""
        if self._followed is None:
            return
        step, passes = self._selected_step, self._passes
        self._followed = None
        self._show_passes()
        if step is not None and passes is not None:
            at = (d.number for d in passes.diffs if (d.name, d.after) == (step.name, step.stage))
            self.query_one("#pass-table", Table).select_key(next(at, None))

    @property
    def _selected_step(self) -> LifeStep | None:
        """Of the line followed, that at the cursor."""
        index = self.query_one("#pass-table", Table).cursor
        steps = self._life.steps if self._life is not None else ()
        return steps[index] if index < len(steps) else None

    def action_find(self, line: bool = False) -> None:
        """Find text, or go to a line, in the list in focus."""
        text, table = self.query_one("#pass-text", TextList), self.query_one("#pass-table", Table)
        self.query_one(FindBar).open(text if text.has_focus else table, line=line)

    def action_kernel(self, step: int) -> None:
        """Show another specialisation."""
        if not self._kernels:
            return
        at = next((i for i, k in enumerate(self._kernels) if k.hash == self._wanted), -step)
        self._choose(self._kernels[(at + step) % len(self._kernels)])

    def _choose(self, kernel: RecordedKernel) -> None:
        self._followed = None
        self._load(kernel)

    def action_pick_kernel(self) -> None:
        """Choose a specialisation from a list."""
        kernels = self._kernels
        at = next((i for i, k in enumerate(kernels) if k.hash == self._wanted), 0)

        def picked(index: int | None) -> None:
            if index is not None:
                self._choose(kernels[index])

        if kernels:
            screen = PickScreen("Kernels", kernel_choices(kernels), KERNEL_DETAILS, at)
            self.app.push_screen(screen, picked)


def _cells(diff: PassDiff) -> tuple[Cell, ...]:
    style = "" if diff.changed else palette.MUTED
    size = "failed" if diff.error else size_text(diff)
    return (
        Cell(display.shown(diff.name, 60), palette.FAULT if diff.error else style),
        Cell(display.duration(diff.time_ns), style),
        Cell(display.count(diff.op_count), style),
        Cell(size, palette.FAULT if diff.error else palette.GOOD),
    )
