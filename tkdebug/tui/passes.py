"""The passes pane: the changes of each compiler pass to a kernel, and the life of one source line.

Its rows need no screen: changes op by op, a text diff, the life of a line. Texts come from a
session and are made harmless where they are drawn.
"""

from __future__ import annotations

import itertools
import re
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.widgets import Static

from tkdebug.errors import SessionError
from tkdebug.instrument.passes.diff import OpChange, OpRef, PassDiff, StageOps, text_diff
from tkdebug.instrument.passes.kernel_passes import (
    KernelPasses,
    LifeStep,
    LineLife,
    Place,
    line_life,
    load_kernel_passes,
)
from tkdebug.instrument.passes.summary import counts_text
from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.drawing.lines import TextRow
from tkdebug.tui.kernel.text import first_to_show, nothing_compiled
from tkdebug.tui.messages import FollowLine, OpenKernel, PassesLoaded, SessionFailed
from tkdebug.tui.pane import Pane
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.widgets.dialogs import KERNEL_DETAILS, PickScreen, kernel_choices, kernel_title
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.line_list import TextList
from tkdebug.tui.widgets.table import Cell, Column, Table
from tkdebug.tui.widgets.typing_keys import take_keys, typing_key

MAX_ROWS = 50_000
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
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


def size_text(diff: PassDiff) -> str:
    """Return the size of a pass's changes in a few characters: `+6 -2 ~3 a1 l60 m8`."""
    counts = diff.counts
    marks = (
        ("added", "+"),
        ("removed", "-"),
        ("replaced", "~"),
        ("attribute", "a"),
        ("layout", "l"),
        ("type", "t"),
        ("moved", "m"),
        ("operands", "o"),
    )
    return " ".join(f"{mark}{counts[kind]}" for kind, mark in marks if counts[kind])


def change_rows(passes: KernelPasses, diff: PassDiff) -> list[TextRow]:
    """Return the changes of a pass, op by op."""
    made = diff.number == 0 and not diff.changes
    said = f"{diff.op_count:,} ops made of the source" if made else counts_text(diff)
    rows = [TextRow(said, palette.STRONG)]
    if diff.error:
        rows.append(TextRow(f"failed: {diff.error}", palette.FAULT))
    rows += [
        TextRow(f"nothing is left of {file}:{line}", palette.WARNING, (file, line))
        for file, line in diff.gone_lines
    ]
    kind = ""
    for change in diff.changes[:MAX_ROWS]:
        if change.kind != kind:
            kind = change.kind
            rows += [TextRow(""), TextRow(kind, palette.LABEL)]
        rows += _rows_of(passes, diff, change)
    if diff.layouts:
        rows += [TextRow(""), TextRow("layouts", palette.LABEL)]
        rows += [TextRow(f"  {definition}") for definition in diff.layouts]
    return rows


def _rows_of(passes: KernelPasses, diff: PassDiff, change: OpChange) -> list[TextRow]:
    rule = f"  ({change.rule})" if change.rule else ""
    rows = []
    if change.in_place:
        op = change.new[0]
        if change.detail:
            head = f"  {op.name} #{op.id}  {change.detail}{rule}"
            return [TextRow(head, "", op.place)]
        return [_op_row("  ", passes, diff.after, op, rule)]
    for number, op in enumerate(change.old):
        rows.append(_op_row("  - ", passes, diff.before, op, "" if number else rule))
    known = passes.stages[diff.before].lines if diff.before in passes.stages else {}
    for op in change.new:
        stayed = change.kind == "replaced" and op.id in known
        mark = "    = " if stayed else "  + "
        own_rule = "" if change.old else rule
        rows.append(_op_row(mark, passes, diff.after, op, own_rule))
    return rows


def _op_row(mark: str, passes: KernelPasses, stage: str, op: OpRef, rule: str) -> TextRow:
    text = passes.stages[stage].line_text(op.id) if stage in passes.stages else ""
    style = {"-": palette.REMOVED, "+": palette.ADDED}.get(mark.strip(), "")
    return TextRow(f"{mark}#{op.id} {text or op.name}{rule}", style, op.place)


def text_diff_rows(passes: KernelPasses, diff: PassDiff) -> list[TextRow]:
    """The unified diff of a pass's texts."""
    before, after = passes.stages.get(diff.before), passes.stages.get(diff.after)
    if before is None or after is None or before is after:
        return [TextRow("the text is the same", palette.MUTED)]
    old_places, new_places = _places_by_line(before), _places_by_line(after)
    rows: list[TextRow] = []
    old = new = 0
    for line in itertools.islice(text_diff(before, after), MAX_ROWS):
        head = line[:1]
        style = {"-": palette.REMOVED, "+": palette.ADDED, "@": palette.LABEL}.get(head, "")
        hunk = _HUNK.match(line)
        if hunk is not None:
            old, new = int(hunk[1]) - 1, int(hunk[2]) - 1
        elif len(rows) > 2:
            old, new = old + (head != "+"), new + (head != "-")
        place = old_places.get(old) if head == "-" else new_places.get(new)
        rows.append(TextRow(line, style, None if head == "@" else place))
    return rows or [TextRow("the text is the same", palette.MUTED)]


def _places_by_line(stage: StageOps) -> dict[int, Place]:
    return {
        line: stage.facts[id_].places[0]
        for id_, line in stage.lines.items()
        if id_ in stage.facts and stage.facts[id_].places
    }


def life_rows(step: LifeStep, *, is_first: bool) -> list[TextRow]:
    """Return the changes to the followed line in one pass, or its lines at one later stage.

    Args:
        step: the pass or stage.
        is_first: whether it is the front end, before which the line had no op.
    """
    rows = []
    for change in step.changes:
        rule = f"  ({change.rule})" if change.rule else ""
        old = "" if change.in_place else _names(change.old)
        arrow = " -> " if old and change.new else ""
        detail = f"  {change.detail}" if change.detail else ""
        text = f"{change.kind} {old}{arrow}{_names(change.new)}{detail}{rule}"
        rows.append(TextRow(text, palette.WARNING))
    if rows:
        rows.append(TextRow(""))
    for line in step.lines[:MAX_ROWS]:
        op = "" if line.op_id is None else f"#{line.op_id}"
        rows.append(TextRow(f"{line.line:>6} {op:>5}  {line.text.strip()}"))
    if not step.lines:
        said = "no op of this kernel" if is_first else "nothing any more"
        rows.append(TextRow(f"{said} comes from this line", palette.MUTED))
    return rows


def _names(ops: tuple[OpRef, ...]) -> str:
    return ", ".join(f"{op.name} #{op.id}" for op in ops)


class PassesPane(Pane):
    """Left (or above) the passes, right (or below) the changes of the one at the cursor."""

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
        """Lay out the title, the list of passes, and the changes of one of them."""
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
        """Focus the list, and load the passes if that is not done yet."""
        take_keys(self.query_one("#pass-table"))
        if self._wanted is None and self._kernels:
            self._load(first_to_show(self._kernels))

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Take a new snapshot."""
        self._session = session
        self._kernels = snapshot.kernels if snapshot is not None else ()
        self._has_faults = snapshot is not None and bool(snapshot.faults)
        if not self.is_ready:
            return
        if self._passes is None:
            self._show_empty(state)
        else:
            self._show_title()

    def has_nothing(self) -> bool:
        """Whether no kernel was compiled."""
        return not self._kernels

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

    @on(PassesLoaded)
    def _show_loaded(self, event: PassesLoaded) -> None:
        """Show the passes that were read, unless others have been asked for meanwhile."""
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
                # The front end's result is all there is; the first change is news.
                table.move_cursor(next((i for i, d in enumerate(rows) if d.changes), 0))
                self._begin_with_changes = False
        self.query_one("#pass-legend").display = self._life is None
        self.refresh_bindings()
        self._show_title()
        self._show_selected()

    @property
    def _source_line(self) -> str:
        """The text of the followed line, "" if it is not the kernel's own."""
        if self._passes is None or self._followed is None:
            return ""
        (file, line), kernel = self._followed, self._passes.kernel
        lines, index = kernel.source.split("\n"), line - kernel.line
        return lines[index] if file == kernel.file and 0 <= index < len(lines) else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Permit only keys that do something now."""
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

    @on(Table.Moved)
    def _show_pass_at_cursor(self, event: Table.Moved) -> None:
        """Show the changes of the selected pass."""
        event.stop()
        if event.line_list.id == "pass-table":
            self._show_selected()

    @on(Table.Chosen)
    def _go_across(self, event: Table.Chosen) -> None:
        """Go to the right side by Enter, and from there to the source line."""
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
        """The shown text of the pass."""
        text = self.query_one("#pass-text", TextList)
        return "\n".join(text.line_text(index) for index in range(text.line_count))

    def _place(self) -> Place | None:
        row = self.query_one("#pass-text", TextList).row
        return self._followed if self._followed is not None else row.place if row else None

    def action_turn_view(self) -> None:
        """Switch between changes by op and the diff of the texts."""
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
        """Return the step at the cursor in the life of the followed line, or None."""
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
