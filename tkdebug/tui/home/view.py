"""The parts of the home pane: their layout for each size of the screen, and what they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.widgets import Static

from tkdebug.instrument.home.pictures import TIMES
from tkdebug.instrument.home.records import Place, Step
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.home.facts import Panel, line_facts, line_head
from tkdebug.tui.home.kernels import Kernels, next_steps
from tkdebug.tui.home.sheet import HEATS, RunIndex, Sheet
from tkdebug.tui.home.source import HomeSource
from tkdebug.tui.home.stage import StageView, stage_head
from tkdebug.tui.home.strip import TimeStripView
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

    # What has another's place

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
        """Whether something has the place of what is there usually."""
        return self.has_class("-all") or self.has_class("-stage")

    def turn_stage(self, *, is_shown: bool) -> None:
        """Show the stage, in one column in place of the facts; or the facts again."""
        self.set_class(is_shown and self.has_class("-one"), "-stage")
        self.remove_class("-all")
        self.focus_main()
        self.call_after_refresh(self.show_line)

    def leave(self) -> None:
        """Take back what has another's place."""
        if self.has_class("-all"):
            self.turn_facts()
        else:
            self.turn_stage(is_shown=False)
