"""The parts of the home pane: their layout for each size of the screen, and what they show.

Beside the source is one form of the kernel, with the rows of the chosen line lit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.strip import Strip
from textual.widgets import Static

from tkdebug.instrument.home.pictures import TIMES
from tkdebug.instrument.home.records import Code, Place, StageModel, Step
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.drawing.highlight import highlight_ir, highlight_sass
from tkdebug.tui.drawing.lines import Code as Lines
from tkdebug.tui.home.facts import Panel, line_facts, line_head
from tkdebug.tui.home.kernels import Kernels, next_steps
from tkdebug.tui.home.sheet import HEATS, STAGES, RunIndex, Sheet
from tkdebug.tui.home.source import HomeSource
from tkdebug.tui.home.strip import TimeStripView
from tkdebug.tui.widgets.code_view import CodeView
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.rows_view import RowsView, wrapped
from tkdebug.tui.widgets.typing_keys import take_keys

_LEAST_SIZE = (40, 10)
_ONE_COLUMN_BELOW = (110, 28)
_SMALL_BELOW = (80, 24)
_HINT = Text.assemble(
    *((" n ", "bold"), "the next finding  ", (" f ", "bold"), "all that is known of the line  "),
    *((" Ctrl-P ", "bold"), "all by name"),
)
NO_STAGE = "no form of this kernel was recorded; tkdebug run --target sm_90a compiles it"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The run, and the place in it that is looked at.

    Attributes:
        index: the run; None before it is read.
        sheet: the specialisation; None without any kernel.
        finding: the number of the finding at the cursor, -1 for none.
        stage: the name of the stage, "" for the first.
        is_reading: whether more of the run is being read.
        has_moved: whether the user went anywhere yet.
        why_empty: why there is no source.
    """

    index: RunIndex | None
    sheet: Sheet | None
    kernel: int
    finding: int
    stage: str
    is_reading: bool
    has_moved: bool
    why_empty: str


class StageView(CodeView):
    """The rows of a stage, with their numbers or addresses."""

    KEEPS_COLOURS = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Its line")]

    def __init__(self) -> None:
        super().__init__(id="home-stage")
        self._stage: StageModel | None = None
        self._code_of: Code | None = None
        self._places: Sequence[frozenset[Place]] = ()

    def show_stage(self, code: Code | None, name: str) -> None:
        """Show a stage, the first of the code for a name that it does not have."""
        stages = () if code is None else code.stages
        stage = next((one for one in stages if one.name == name), stages[0] if stages else None)
        if stage is self._stage and code is self._code_of:
            return
        self._stage, self._code_of = stage, code
        self._places = () if code is None else [frozenset(chain) for chain in code.chains]
        if stage is None:
            self.show_code(Lines(), {})
            return
        spans = (highlight_sass if stage.name == "sass" else highlight_ir)(stage.text)
        self.show_code(Lines(stage.text, 1, spans), {})

    def light_place(self, place: Place | None) -> None:
        """Light the rows of a source line, and scroll to where most of them are."""
        lit = self.rows_of(place)
        self.light(lit, scroll=False)
        if lit:
            begin, end = _densest(lit, max(4, self.visible_rows))
            self.move_cursor(begin - 1, last=end - 1)

    def rows_of(self, place: Place | None) -> list[int]:
        """The numbers of the rows of a source line, from 1."""
        if self._stage is None or place is None:
            return []
        of_line = {number for number, found in enumerate(self._places) if place in found}
        return [row for row, chain in enumerate(self._stage.chains, 1) if chain in of_line]

    def source_of(self, index: int) -> Place | None:
        """The source line that a row comes from, or None."""
        if self._stage is None or self._code_of is None or index >= len(self._stage.chains):
            return None
        chain = self._stage.chains[index]
        return self._code_of.chains[chain][-1] if chain >= 0 else None

    def number_text(self, index: int) -> str:
        """The number of a row of the whole text, or an address."""
        if self._stage is None:
            return ""
        number = self._stage.numbers[index]
        return f"{number:04x}" if self._stage.name == "sass" else str(number)

    @property
    def _gutter_width(self) -> int:
        if self._stage is None or not self._stage.numbers:
            return 4
        return max(len(self.number_text(len(self._stage.numbers) - 1)), 2) + 3

    def render_gutter(self, index: int, is_lit: bool) -> list[Segment]:
        """Draw the sign of a row that is lit, and its number."""
        digits = self._gutter_width - 3
        style = Style.parse(palette.GOOD if is_lit else palette.MUTED)
        return [
            Segment("▌" if is_lit else " ", style),
            Segment(f"{self.number_text(index):>{digits}}  ", style),
        ]

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """Draw a row."""
        is_lit = index + 1 in self.lit
        room = max(0, width - self._gutter_width)
        code = self._code_strip(index).crop(left, left + room)
        return Strip([*self.render_gutter(index, is_lit), *code])


class HomeView(Container):
    """Words, strip, and kernels, source and facts beside each other.

    Args:
        chosen: gives what is looked at now.
    """

    DEFAULT_CSS = """
    HomeView {
        height: 1fr;
        & #home-next { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        & #home-title, & #home-line, & #home-stage-head {
            height: 1; background: $panel; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
        }
        & #home-body { height: 1fr; layout: horizontal; }
        & Kernels { width: 25; height: 1fr; }
        & #home-middle { width: 1fr; height: 1fr; }
        & #home-source { height: 1fr; }
        & #home-source > .lines--cursor { background: $primary 30%; text-style: none; }
        & #home-source > .lines--cursor-blurred { background: $primary 18%; }
        & #home-right { width: 40; height: 1fr; border-left: solid $panel-lighten-1; }
        & #home-facts { height: 3fr; padding: 0 1; }
        & #home-stage-box { height: 2fr; }
        & #home-stage { scrollbar-size-horizontal: 0; }
        & #home-stage > .lines--cursor { background: $primary 30%; text-style: none; }
        & #home-small { display: none; padding: 1 1; }
        & #home-hint {
            height: 1; background: $accent 30%; text-wrap: nowrap; text-overflow: ellipsis;
        }
        &.-small #home-hint, &.-none #home-hint { display: none; }
        &.-large Kernels { width: 30; }
        &.-large #home-right { width: 40%; }
        &.-one #home-body { layout: vertical; }
        &.-one Kernels { width: 1fr; height: 1; }
        &.-one #home-right { width: 1fr; height: 36%; min-height: 9; border-left: none; }
        &.-one #home-title { display: none; }
        &.-one #home-stage-box { display: none; height: 1fr; }
        &.-one.-stage #home-stage-box { display: block; }
        &.-one.-stage #home-facts { display: none; }
        &.-one.-stage #home-line { display: none; }
        &.-small #home-right, &.-small Kernels, &.-small #home-strip { display: none; }
        &.-small.-stage #home-right { display: block; height: 50%; }
        &.-all #home-middle, &.-all Kernels, &.-all #home-stage-box { display: none; }
        &.-all #home-right { display: block; width: 1fr; height: 1fr; border-left: none; }
        &.-all #home-facts { display: block; }
        &.-all #home-line { display: block; }
        &.-none #home-right, &.-none Kernels, &.-none #home-title { display: none; }
        &.-tiny > * { display: none; }
        &.-tiny #home-small { display: block; }
    }
    """

    def __init__(self, chosen: Callable[[], Chosen]) -> None:
        super().__init__()
        self._chosen = chosen
        self._step_columns: list[tuple[int, int, Step]] = []
        self._fitted: tuple[object, ...] = ()
        self._laid_out = (0, 0)

    def compose(self) -> ComposeResult:
        """Lay out words, strip, and kernels, source and facts beside each other."""
        yield Static(id="home-small")
        yield Static(id="home-next")
        yield TimeStripView()
        yield Container(
            Kernels(),
            Vertical(Static(id="home-title"), HomeSource(), id="home-middle"),
            Vertical(
                Static(id="home-line"),
                RowsView(id="home-facts"),
                Vertical(Static(id="home-stage-head"), StageView(), id="home-stage-box"),
                id="home-right",
            ),
            id="home-body",
        )
        yield FindBar()
        yield Static(_HINT, id="home-hint")

    @property
    def source(self) -> HomeSource:
        """The annotated source."""
        return self.query_one(HomeSource)

    @property
    def stage(self) -> StageView:
        """The form of the kernel beside it."""
        return self.query_one(StageView)

    @property
    def strip(self) -> TimeStripView:
        """The strip of time."""
        return self.query_one(TimeStripView)

    def focus_main(self) -> None:
        """Focus the source, or the facts where they have the screen."""
        take_keys(self.query_one("#home-facts" if self.has_class("-all") else HomeSource))

    def show_all(self) -> None:
        """Show what is looked at now."""
        self._fitted = self._sizes()
        self._show_words(self._chosen())
        self.show_kernels()
        self.show_line()

    def _sizes(self) -> tuple[object, ...]:
        """Return the sizes that the parts are laid out for."""
        parts = ("#home-body", "#home-facts", "#home-stage-head")
        return (self.size, *(self.query_one(part).size for part in parts))

    def _fit(self) -> None:
        if self._sizes() != self._fitted:
            self.show_all()

    def show_empty(self) -> None:
        """Show why there is no source."""
        chosen = self._chosen()
        self._show_words(chosen)
        self.set_class(True, "-none")
        self.source.empty_text = chosen.why_empty
        self.source.show_rows(())

    def _show_words(self, chosen: Chosen) -> None:
        text = Text("")
        if chosen.index is not None:
            text, self._step_columns = next_steps(chosen.index, max(40, self.size.width))
        self.query_one("#home-next", Static).update(text, layout=False)

    def show_kernels(self) -> None:
        """Show the kernels, and which one is looked at."""
        chosen, kernels = self._chosen(), self.query_one(Kernels)
        if chosen.index is None:
            return
        is_row = self.has_class("-one")
        width = self.size.width if is_row else kernels.size.width or 22
        height = max(1, self.query_one("#home-body").size.height)
        kernels.show_index(
            chosen.index,
            chosen.kernel,
            chosen.finding,
            is_row=is_row,
            width=width,
            height=height,
        )

    def show_line(self) -> None:
        """Show what is known of the line at the cursor."""
        chosen, place = self._chosen(), self.source.place
        sheet = chosen.sheet
        was_none, is_none = self.has_class("-none"), sheet is None or place is None
        self.set_class(is_none, "-none")
        if was_none and not is_none:
            # What comes in sight now has its size only then.
            self.call_after_refresh(self.show_all)
        if sheet is None:
            self.source.empty_text = chosen.why_empty
            return
        self.source.empty_text = "the source of this kernel was not recorded"
        self._show_title(sheet)
        if chosen.has_moved:
            self.query_one("#home-hint").display = False
        if place is None:
            return
        facts = self.query_one("#home-facts", RowsView)
        width = max(20, facts.content_size.width)
        self.query_one("#home-line", Static).update(line_head(sheet, place, width), layout=False)
        has_source = self.source.is_whole and not self.has_class("-all")
        panel = Panel(width, facts.size.height, palette.is_plain(self.app), has_source)
        rows = line_facts(sheet, place, panel)
        facts.show_rows(wrapped(rows, width, self.app.console))
        self._show_stage(chosen, sheet, place)

    def _show_stage(self, chosen: Chosen, sheet: Sheet, place: Place) -> None:
        view, found = self.stage, sheet.lines.get(place)
        view.show_stage(sheet.code, chosen.stage)
        rows = dict(found.rows or {}) if found is not None else {}
        width = self.query_one("#home-stage-head").size.width - 2
        head = stage_head(sheet.code, chosen.stage, rows, width)
        self.query_one("#home-stage-head", Static).update(head, layout=False)
        view.empty_text = NO_STAGE
        if chosen.is_reading and sheet.code is None:
            view.empty_text = "reading the forms of this kernel…"
        elif sheet.variant is not None and sheet.variant.error:
            view.empty_text = "it did not compile"
        view.light_place(place)

    def _show_title(self, sheet: Sheet) -> None:
        title = Text(no_wrap=True, overflow="ellipsis")
        title.append("✖", style=palette.FAULT)
        title.append("◆", style=palette.ADVICE)
        title.append("◉ ", style=palette.VALUE)
        heat = HEATS.get(sheet.heat_by)
        said = " ".join(filter(None, heat)) if heat else "no heat: run --advise weighs lines"
        title.append(said, style=palette.MUTED)
        title.append(f"   {display.shown(sheet.name, 60)}", style=palette.STRONG)
        kernel, variant = sheet.kernel, sheet.variant
        if kernel is not None and len(kernel.variants) > 1 and variant is not None:
            number = kernel.variants.index(variant) + 1
            title.append(f"  v {number}/{len(kernel.variants)} ", style=palette.MUTED)
            title.append(display.shown(variant.differs, 80))
        if variant is not None and variant.launches:
            title.append(f"  {display.count(variant.launches)} {TIMES}", style=palette.MUTED)
        self.query_one("#home-title", Static).update(title, layout=False)

    def on_mount(self) -> None:
        """Lay out for the size."""
        self._lay_out()

    def on_resize(self) -> None:
        """Lay out for the size."""
        self._lay_out()
        # What is in it is laid out for its own width, known only then.
        self.call_after_refresh(self._fit)

    def _lay_out(self) -> None:
        if self.app.size == self._laid_out:  # where the pane only comes in sight again
            return
        self._laid_out = width, height = self.app.size
        self.set_class(width < _LEAST_SIZE[0] or height < _LEAST_SIZE[1], "-tiny")
        is_small = width < _SMALL_BELOW[0] or height < _SMALL_BELOW[1]
        is_one = is_small or width < _ONE_COLUMN_BELOW[0] or height < _ONE_COLUMN_BELOW[1]
        self.set_class(is_small, "-small")
        self.set_class(is_one, "-one")
        self.set_class(width >= 152, "-large")
        strip = self.strip
        strip.most_tracks = 1 if is_one else 2 if height < 40 else 4
        strip.has_head = not is_one
        strip.refresh(layout=True)
        needed = f"needs {_LEAST_SIZE[0]} columns and {_LEAST_SIZE[1]} rows"
        self.query_one("#home-small", Static).update(Text(needed))

    def step_at(self, event: events.Click) -> Step | None:
        """Return the next step that was clicked, if one was."""
        if event.widget is None or event.widget.id != "home-next":
            return None
        columns = self._step_columns
        return next((step for begin, end, step in columns if begin <= event.x < end), None)

    # Parts that have another's place

    def turn_facts(self) -> None:
        """Give the facts the whole screen, or take it back."""
        self.toggle_class("-all")
        self.focus_main()
        self.call_after_refresh(self.show_line)

    @property
    def lacks_stage(self) -> bool:
        """Whether the facts are where the stage would be."""
        return self.has_class("-one") and not self.has_class("-stage")

    @property
    def has_other(self) -> bool:
        """Whether the facts have the whole screen, or the stage has the facts' place."""
        return self.has_class("-all") or self.has_class("-stage")

    def turn_stage(self, *, is_shown: bool) -> None:
        """Show the stage, in one column in place of the facts; or the facts again."""
        self.set_class(is_shown and self.has_class("-one"), "-stage")
        self.remove_class("-all")
        self.focus_main()
        self.call_after_refresh(self.show_line)

    def leave(self) -> None:
        """Take the whole screen back from the facts, or else the facts' place from the stage."""
        if self.has_class("-all"):
            self.turn_facts()
        else:
            self.turn_stage(is_shown=False)


def stage_head(code: Code | None, shown: str, rows: Mapping[str, int], width: int) -> Text:
    """Return the stages in one row, each with how many of its rows come from the line.

    Args:
        code: the stages of the specialisation.
        shown: the stage that is shown.
        rows: the number of rows that come from the line, by stage.
        width: the width of the row in cells.
    """
    stages = () if code is None else code.stages
    names = [one.name for one in stages]
    at = shown if shown in names else next(iter(names), "")
    head = _stage_names(names, at, rows)
    if head.cell_len > width - 2:  # the counts of others matter least
        head = _stage_names(names, at, {at: rows.get(at, 0)})
    if names:
        head.append("s".rjust(max(2, width - head.cell_len)), style=palette.MUTED)
    return head


def _stage_names(names: Sequence[str], at: str, rows: Mapping[str, int]) -> Text:
    head = Text(no_wrap=True, overflow="ellipsis")
    for name in names:
        number = rows.get(name, 0)
        label = f"{STAGES.get(name, name)} {number}" if number else STAGES.get(name, name)
        if name == at:
            head.append(f"[{label}]", style=f"bold {palette.GOOD}")
        else:
            head.append(f" {label} ", style=palette.LABEL)
    return head


def _densest(rows: Sequence[int], height: int) -> tuple[int, int]:
    """Return the first and the last of the largest group of rows that fits into a height."""
    best, first = (0, 0), 0
    for last, row in enumerate(rows):
        while row - rows[first] >= height:
            first += 1
        if last - first + 1 > best[1] - best[0] + 1 or last == 0:
            best = first, last
    return rows[best[0]], rows[best[1]]
