"""Kernels by share of time, and what to look at next: the words around the source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.text import Text
from textual import events
from textual.message import Message

from tkdebug.instrument.analyses.advice import saved_share
from tkdebug.instrument.home.pictures import TIMES
from tkdebug.instrument.home.records import Bucket, KernelModel, RunModel, Step
from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.display import count, duration, shown
from tkdebug.tui.home.sheet import Finding, FindingKind, RunIndex
from tkdebug.tui.home.strip import kernel_fill, kernel_style
from tkdebug.tui.widgets.rows_view import RowsView

_SPARKS = "▁▂▃▄▅▆▇█"
_KEYS = " ^P palette "
_STEP_MARKS = {
    "mismatch": palette.MARKS["fault"],
    "fault": palette.MARKS["fault"],
    "warning": palette.MARKS["warning"],
    "advice": ("◆", palette.ADVICE),
}


class Kernels(RowsView, can_focus=False):
    """The kernels as blocks of rows, or in one row of chips."""

    class Picked(Message):
        """A kernel, or a finding of the list below them, was clicked."""

        def __init__(self, kernel: int, finding: int = -1) -> None:
            self.kernel, self.finding = kernel, finding
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="home-kernels")
        self._of_rows: list[tuple[int, int]] = []
        self._chips: list[tuple[int, int]] = []
        self._shown: tuple[object, ...] = ()

    def show_index(
        self, index: RunIndex, kernel: int, finding: int, *, is_row: bool, width: int, height: int
    ) -> None:
        """Show the kernels, and where there is room the findings.

        Args:
            index: the run.
            kernel: the one that is chosen.
            finding: the finding at the cursor, -1 for none.
            is_row: whether there is only one row.
            width: the list's width in cells.
            height: the list's height in rows.
        """
        shown_now = (id(index), kernel, finding, is_row, width, height)
        if shown_now == self._shown:
            return
        self._shown = shown_now
        self._of_rows, self._chips = [], []
        if is_row:
            self.show_rows([self._chip_row(index, kernel, width)])
            return
        rows = self._blocks(index, kernel, finding, width, height)
        at = next((y for y, row in enumerate(self._of_rows) if row == (kernel, -1)), 0)
        most = max(0, len(rows) - height)
        self.show_rows(rows, min(most, max(0, at - height // 2)) if at + 3 > height else 0)

    def _blocks(
        self, index: RunIndex, kernel: int, finding: int, width: int, height: int
    ) -> list[Text]:
        model = index.model
        lines = [_title("kernels", model.run.basis, width)]
        self._of_rows.append((-1, -1))
        for number, one in enumerate(model.kernels):
            block = list(_block(index, number, one, number == kernel, width))
            lines += block
            self._of_rows += [(number, -1)] * len(block)
        if index.findings and len(lines) + 4 <= height:
            lines += [Text("─" * width, style=palette.FRAME), _title("findings", "n p", width)]
            self._of_rows += [(-1, -1)] * 2
            room = max(0, height - len(lines))
            begin = max(0, min(finding - room // 2, len(index.findings) - room))
            for number, one_ in enumerate(index.findings[begin : begin + room], begin):
                lines.append(finding_row(index, one_, number == finding, width))
                self._of_rows.append((-1, number))
        return lines

    def _chip_row(self, index: RunIndex, kernel: int, width: int) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        kernels = index.model.kernels
        # The chosen one is in sight, with those before it as far as they fit.
        first = 0
        while first < kernel and sum(_chip_cells(k) for k in kernels[first : kernel + 1]) > width:
            first += 1
        for number, one in enumerate(kernels[first:], first):
            begin = line.cell_len
            if begin >= width:
                break
            line.append("▌" if number == kernel else " ", style=palette.GOOD)
            line.append(kernel_fill(number), style=kernel_style(number))
            name = shown(one.name, 24).removesuffix("_kernel")
            line.append(f" {name} ", style=palette.STRONG if number == kernel else "")
            if one.basis:
                line.append(f"{100 * one.share:.0f} % ", style=palette.MUTED)
            line.append_text(_marks(index, one))
            self._chips += [(number, -1)] * (line.cell_len - begin)
        return line

    def on_click(self, event: events.Click) -> None:
        """Report what was clicked."""
        at = event.x if self._chips else event.y + self.top
        found = self._chips or self._of_rows
        if 0 <= at < len(found) and found[at] != (-1, -1):
            self.post_message(self.Picked(*found[at]))


def _chip_cells(kernel: KernelModel) -> int:
    return len(kernel.name[:24].removesuffix("_kernel")) + 12


def _title(text: str, how: str, width: int) -> Text:
    line = Text(f" {text}", style=palette.LABEL, no_wrap=True)
    line.append(how.rjust(max(0, width - line.cell_len - 1)), style=palette.MUTED)
    return line


def _marks(index: RunIndex, kernel: KernelModel) -> Text:
    text = Text()
    kinds: tuple[FindingKind, ...] = ("fault", "warning", "advice")
    for kind in kinds:
        mark, style = _STEP_MARKS[kind]
        if number := index.counts.get((kernel.name, kind), 0):
            text.append(f"{mark}{number} ", style=style)
    return text


def _block(
    index: RunIndex, number: int, kernel: KernelModel, is_chosen: bool, width: int
) -> Iterator[Text]:
    """Yield the rows of a kernel: its name and share, its launches, its sparkline."""
    bar = "▌" if is_chosen else " "
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(bar, style=palette.GOOD)
    line.append(kernel_fill(number), style=kernel_style(number))
    share = f"{100 * kernel.share:.0f} %" if kernel.basis else ""
    room = max(4, width - 4 - len(share))
    line.append(f" {shown(kernel.name, room):<{room}}", style=palette.STRONG if is_chosen else "")
    line.append(f"{share} ")
    yield line
    second = Text(no_wrap=True, overflow="ellipsis")
    second.append(bar, style=palette.GOOD)
    if kernel.launches:
        each = duration(kernel.total_ns / kernel.launches) if kernel.total_ns else "?"
        second.append(f"  {count(kernel.launches)} {TIMES} {each} ", style=palette.MUTED)
    else:
        second.append("  not launched ", style=palette.MUTED)
    second.append_text(_marks(index, kernel))
    yield second
    if len(kernel.sparkline) > 1:
        line = Text(bar, style=palette.GOOD, no_wrap=True)
        line.append(f"  {sparkline(kernel.sparkline, width - 4)}", style=kernel_style(number))
        yield line


def sparkline(buckets: Sequence[Bucket], most: int) -> str:
    """Return the mean times of launches in order as bars, from nothing to the longest."""
    step = max(1, math.ceil(len(buckets) / max(1, most)))
    means = []
    for begin in range(0, len(buckets), step):
        some = buckets[begin : begin + step]
        launches = sum(one.launches for one in some)
        means.append(sum(one.total_ns for one in some) / max(1, launches))
    longest = max(means, default=0.0) or 1.0
    return "".join(_SPARKS[min(7, int(8 * mean / longest))] for mean in means)


def finding_row(index: RunIndex, finding: Finding, is_chosen: bool, width: int) -> Text:
    """Return a row of the list of findings: what it is, its line, and what it would save."""
    model = index.model
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append("▌" if is_chosen else " ", style=palette.GOOD)
    mark, style = _STEP_MARKS[finding.kind]
    if finding.kind == "advice":
        remark = model.remarks[finding.number]
        kind, end = remark.kind, f" {saved_share(remark.gain, remark.judged, True)}"
    else:
        kind, end = model.faults[finding.number].kind, ""
    end = f" :{finding.place.line}{end}"
    line.append(f"{mark} ", style=style)
    room = max(3, width - 4 - len(end))
    line.append(f"{shown(kind, room):<{room}}")
    line.append(end, style=palette.MUTED)
    return line


# Next


def next_steps(index: RunIndex, width: int) -> tuple[Text, list[tuple[int, int, Step]]]:
    """Return what to look at next in one row, and the columns of each step."""
    model = index.model
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(" Next  ", style=palette.LABEL)
    if not model.steps:
        line.append(_nothing_found(model), style=palette.MUTED)
        return line, []
    room = width - line.cell_len
    said = [_step(index, step, 0) for step in model.steps]
    for brevity in (1, 2):
        for number in reversed(range(len(said))):
            if sum(one.cell_len + 2 for one in said) - 2 > room:
                said[number] = _step(index, model.steps[number], brevity)
    places: list[tuple[int, int, Step]] = []
    for step, text in zip(model.steps, said, strict=True):
        places.append((line.cell_len, line.cell_len + text.cell_len, step))
        line.append_text(text)
        line.append("  ")
    if line.cell_len + len(_KEYS) <= width:
        line.append(_KEYS.rjust(width - line.cell_len), style=palette.MUTED)
    return line, places


def _step(index: RunIndex, step: Step, brevity: int) -> Text:
    """Return a step in words: 0, all of them; 1, what and where; 2, where."""
    model = index.model
    mark, style = _STEP_MARKS[step.kind]
    text = Text()
    text.append(f"{mark} ", style=style)
    if step.place is not None:
        text.append(f"{shown(index.place_name(step.place), 40)} ", style=palette.STRONG)
    if brevity == 0:
        text.append(shown(step.text, 100))
        if step.gain:
            judged = model.remarks[step.number].judged
            text.append(f", saves {saved_share(step.gain, judged)}", style=palette.MUTED)
    elif step.kind == "advice":
        judged = model.remarks[step.number].judged
        text.append(f"saves {saved_share(step.gain, judged, True)}" if brevity == 1 else "")
    else:
        fault = model.faults[step.number]
        is_at = fault.at and step.kind != "mismatch"
        text.append(shown(fault.at if is_at else fault.kind, 30) if brevity == 1 else "")
    return text


def _nothing_found(model: RunModel) -> str:
    if model.run.not_looked_for:
        missing = ", ".join(model.run.not_looked_for)
        return shown(f"nothing found; run --check all looks for more: {missing}", 200)
    if model.remarks or "native" in model.run.mode:
        return "nothing found"
    return "nothing found; run --check all looks for more, --advise for what would be faster"


def totals(model: RunModel) -> str:
    """Return how long all launches took, for the first row of the screen."""
    run = model.run
    if not run.total_ns:
        return ""
    is_elsewhere = run.basis == "predicted" and run.machine
    where = f" on an {shown(run.machine, 20)}" if is_elsewhere else ""
    return f"{duration(run.total_ns)}{where} ({run.basis})"
