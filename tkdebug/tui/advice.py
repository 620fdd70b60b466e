"""The advice pane: changes that would make the kernels faster, the most helpful first."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from rich.text import Text

from tkdebug.errors import Frame
from tkdebug.instrument.analyses.advice import (
    AT_THE_ROOF,
    Advice,
    advice_of,
    launch_costs,
    saved_share,
)
from tkdebug.instrument.session import Session
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.widgets.table import Cell, Column
from tkdebug.tui.widgets.table_pane import TablePane


class AdvicePane(TablePane[Advice]):
    """Remarks by rank."""

    TAB = "advice"
    KEYS = (
        ("saves", "share of the time of all kernels; * if their grids filled the GPU"),
        ("kernel", "how many times as fast its kernel would be"),
        ("Enter", "show the line in the kernel"),
    )
    COLUMNS = (
        Column("#", 3, right=True),
        Column("saves", 6, right=True),
        Column("kernel", 7, right=True, from_width=70),
        Column("what", 22, keep_end=True),
        Column("line", 22),
        Column("in", 0, keep_end=True),
    )
    RELOAD_S = 2.0

    def __init__(self) -> None:
        super().__init__()
        self._was_sought = False

    def reader(self, session: Session) -> Callable[[], object]:
        """Return a function that reads all remarks, and whether any launch was examined."""
        return lambda: (advice_of(session), bool(launch_costs(session)))

    def take(self, found: tuple[tuple[Advice, ...], bool]) -> None:
        """Take the remarks that were read, which are all there are now."""
        self.rows, self._was_sought = found

    def key(self, row: Advice) -> Hashable:
        """Return the key of a remark: its line and kind."""
        return row.kernel, row.file, row.line, row.kind

    def cells(self, row: Advice) -> tuple[Cell, ...]:
        """Return the cells of a remark: its gain and its place."""
        return _cells(row)

    def detail(self, row: Advice) -> Text:
        """Return a remark in full: its place, the line itself, the message."""
        text = Text()
        text.append(f"{display.shown(row.file, 300)}:{row.line}", style=palette.LABEL)
        text.append(f"  {display.shown(row.kernel, 100)}", style=palette.STRONG)
        text.append(f"  {display.shown(row.kind, 60)}\n", style=palette.WARNING)
        text.append(self.source_text(row.file, row.line))
        text.append("\n" + display.shown(row.message, 2000))
        return text

    def place(self, row: Advice) -> tuple[str, str, int]:
        """Return the kernel, file and line of a remark."""
        return row.kernel, row.file, row.line

    def count(self) -> str:
        """Count the remarks, without those that say that all is well."""
        number = sum(one.kind != AT_THE_ROOF for one in self.rows)
        return display.count(number) if number else ""

    def why_none(self) -> str:
        """Say why there are no remarks: no launches, none looked at, or nothing found."""
        if self.snapshot is None or not self.snapshot.launch_count:
            return (
                "no remarks: no kernel was launched yet"
                if self.state.going_on
                else "no remarks: no kernel was launched"
            )
        if self._was_sought or self.rows:
            return "no remarks: nothing found that would help"
        if self.snapshot.run.mode == "native":
            return (
                "no remarks: kernels ran on the GPU, advice is made of interpreted ones; "
                "tkdebug advise script.py interprets them"
            )
        return (
            "no remarks: launches were not looked at for advice; tkdebug run --advise script.py "
            "does that"
        )

    def filling(self) -> tuple[str, ...]:
        """Return the option that looks at interpreted launches for advice."""
        run = None if self.snapshot is None else self.snapshot.run
        is_sought = self._was_sought or self.state.going_on
        return () if is_sought or run is None or run.mode == "native" else ("--advise",)


def _cells(one: Advice) -> tuple[Cell, ...]:
    is_well = one.kind == AT_THE_ROOF
    style = palette.MUTED if is_well else ""
    return (
        Cell(str(one.rank), style),
        Cell(saved_share(one.predicted_gain, one.judged, True) or "-", style or palette.STRONG),
        Cell(f"{one.speedup:.3g}x" if one.saved else "-", style),
        Cell(display.shown(one.kind, 60), style or palette.WARNING),
        Cell(display.place(Frame(one.file, one.line, one.kernel), 22), style),
        Cell(display.shown(one.kernel, 200), style),
    )
