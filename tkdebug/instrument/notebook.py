"""A run in a notebook: its annotated source, kernels, faults, watched tiles, time, as HTML.

Responsible for objects whose `_repr_html_` a notebook shows; what is in them is the model's. The
HTML needs no script. In a terminal their `repr` is a line.

Pictures are SVG that stands alone: in notebooks, in files, wherever no page colours it. A role is a
class; colours come from custom properties with a fallback each, so that a page may say others.
Every text is escaped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.errors import UsageError, instead_of
from tkdebug.instrument.analyses.watched_values import recorded_values
from tkdebug.instrument.home.kernel_pictures import tile_values_picture
from tkdebug.instrument.home.model import model_of, short_names
from tkdebug.instrument.home.pictures import SERIES, Box, Dot, Line, Mark, Picture, Role, Text
from tkdebug.instrument.home.records import (
    FaultModel,
    KernelModel,
    LineFacts,
    Place,
    RunModel,
    TimeStrip,
    VariantModel,
)
from tkdebug.instrument.report import write_report
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import format_ns
from tkdebug.terminal.text import visible
from tkdebug.watches.records import summary_text

if TYPE_CHECKING:
    from jinja2 import Template

_GLYPHS = {"fault": "✖", "warning": "▲", "clean": "✓"}
_HEATS = {
    "stalls": "waits of warps, sampled",
    "timeline": "cycles of warps",
    "predicted": "time, predicted",
    "instructions": "instructions",
    "sectors": "sectors moved",
}
_MOST_KERNELS = 12
_MOST_LINES = 400
_HEAT_PIXELS = 40
_INK, _MUTED, _GROUND = "var(--tkd-fg, #1a2028)", "var(--tkd-mut, #57626f)", "var(--tkd-bg, #fff)"
_BAD, _BLUE = "var(--tkd-bad, #c8372d)", "var(--tkd-acc, #0b5cad)"
_FILLS: dict[Role, str] = {
    "frame": f'fill="{_GROUND}" stroke="{_MUTED}"',
    "bad": f'fill="{_BAD}"',
    "meant": f'fill="{_BLUE}"',
    "good": 'fill="#3f9a5a"',
    "off": 'fill="var(--tkd-off, #dfe4ea)"',
    "ink": f'fill="{_INK}"',
    "grid": 'fill="var(--tkd-line, #e1e5ea)"',
}
_STROKES: dict[Role, str] = {
    "frame": _INK,
    "bad": _BAD,
    "meant": _BLUE,
    "good": "#3f9a5a",
    "off": _MUTED,
    "ink": _INK,
    "grid": "var(--tkd-line, #e1e5ea)",
}
# Of kernels, in order of their share; all further ones, and others' kernels, are grey.
KERNEL_COLOURS = ("#1f6fb5", "#e08fbf", "#0a7d5c", "#dda01a", "#58b3e6")
_GREY = "#9aa4af"
_SERIES = dict(zip(SERIES, (*KERNEL_COLOURS, _GREY), strict=True))
_FILLS |= {role: f'fill="{colour}"' for role, colour in _SERIES.items()}
_STROKES |= _SERIES
_FONT = 'font-family="system-ui, sans-serif" font-size="10"'


class Run:
    """A recorded run.

    Attributes:
        path: the session.
        model: all that is known of the run.
    """

    def __init__(self, path: str | os.PathLike[str], kept: object = None) -> None:
        """Read the session at `path`.

        Args:
            path: the session.
            kept: an object to keep alive as long as this one, such as the session's folder.

        Raises:
            SessionError: it is not there, or no session.
        """
        self.path = Path(path)
        self._kept = kept
        with Session.open(self.path) as session:
            self.model: RunModel = model_of(session, code=False)
        names = short_names([source.file for source in self.model.files])
        self._names = _Names(names)
        self._sources = {one.file: one.text.splitlines() for one in self.model.files}

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, the one of most time first."""
        return tuple(Kernel(one, self) for one in self.model.kernels)

    @property
    def faults(self) -> tuple[FoundFault, ...]:
        """The faults, comparisons that failed first."""
        return tuple(FoundFault(one, self._names) for one in self.model.faults)

    @property
    def timeline(self) -> Timeline:
        """The launches in time."""
        return Timeline(self.model)

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name.

        Raises:
            UsageError: there is none.
        """
        for one in self.model.kernels:
            if one.name == name:
                return Kernel(one, self)
        known = [one.name for one in self.model.kernels]
        raise UsageError(f"{name}: no such kernel{instead_of(name, known)}")

    def tile(
        self, name: str, program: Sequence[int] = (0, 0, 0), iteration: int = 0, launch: int = 0
    ) -> Tile:
        """A watched value whose whole tile was kept (`--watch FILE:LINE:NAME:tile`).

        Args:
            name: the name of the variable.
            program: the position of the program in the grid, x first.
            iteration: the number of the program's earlier visits of the line.
            launch: the launch's number in its process; 0 for the first that has such a value.

        Raises:
            UsageError: no such value was kept.
        """
        place = (*program, 0, 0, 0)[:3]
        with Session.open(self.path) as session:
            for recorded in recorded_values(session):
                value = recorded.event
                if (value.name, value.program_id, value.iteration) != (name, place, iteration):
                    continue
                if value.tile and launch in (0, value.launch_id):
                    title = f"{name}, {value.type}, program {place}, iteration {iteration}"
                    return Tile(title, value.shape, value.values(), summary_text(value))
        raise UsageError(
            f"{name}: no tile of program {place} and iteration {iteration} was kept; "
            f"`--watch FILE:LINE:{name}:tile` keeps tiles"
        )

    def write_page(self, path: str | os.PathLike[str]) -> Path:
        """Write the page of the run, one HTML file, and return its path."""
        target = Path(path)
        with Session.open(self.path) as session:
            write_report(session, target, "html")
        return target

    def rows(self, kernel: KernelModel, variant: VariantModel | None) -> list[SourceRow]:
        """The lines of a kernel, annotated."""
        text = self._sources.get(kernel.file, [])
        facts = {} if variant is None else {one.place: one for one in variant.lines}
        heat = variant.heats[0] if variant is not None and variant.heats else ""
        most = max((one.heat.get(heat, 0.0) for one in facts.values()), default=0.0)
        last = min(kernel.end_line, len(text), kernel.line + _MOST_LINES)
        return [
            self._row(Place(kernel.file, line), text[line - 1], facts, heat, most)
            for line in range(kernel.line, last + 1)
        ]

    def _row(
        self, place: Place, text: str, facts: Mapping[Place, LineFacts], heat: str, most: float
    ) -> SourceRow:
        known = facts.get(place)
        share = 0.0 if known is None else known.heat.get(heat, 0.0)
        percent = round(100 * share)
        return SourceRow(
            line=place.line,
            text=text,
            share=f"{percent} %" if percent else "",
            width=round(_HEAT_PIXELS * share / most) if most else 0,
            fault=bool(known and known.faults),
            remark=bool(known and known.remarks),
            watch=bool(known and known.watches),
            notes=tuple(self._notes(known)) if known is not None else (),
        )

    def _notes(self, known: LineFacts) -> Iterator[tuple[str, str]]:
        for number in known.faults:
            fault = self.model.faults[number]
            is_named = fault.at and fault.of
            said = f"{fault.at} is outside of {fault.of}" if is_named else fault.message
            yield "tkd-bad", said
        for watch in known.watches:
            if watch.rounds:
                least = min(one.minimum for one in watch.rounds)
                most = max(one.maximum for one in watch.rounds)
                yield "tkd-val", f"{watch.name}: {least:.6g} to {most:.6g}, {watch.values:,} values"

    def __repr__(self) -> str:
        run, verdict = self.model.run, self.model.verdict.text
        return f"<Run of {visible(run.script)}: {verdict}, {run.launches} launches>"

    def _repr_html_(self) -> str:
        kernels = [
            (one.model, self.rows(one.model, one.variant), one.heat)
            for one in self.kernels[:_MOST_KERNELS]
        ]
        return _html("run", model=self.model, names=self._names, kernels=kernels)


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A line of a kernel with its annotations, as a notebook shows it."""

    line: int
    text: str
    share: str
    width: int
    fault: bool
    remark: bool
    watch: bool
    notes: tuple[tuple[str, str], ...]


class Kernel:
    """A kernel of a run: its source with heat, faults and values, and what bounds it."""

    def __init__(self, model: KernelModel, run: Run) -> None:
        self.model = model
        self._run = run

    @property
    def variant(self) -> VariantModel | None:
        """The first specialisation with a fault, else the one of most time; None without any."""
        for one in self.model.variants:
            if any(line.faults for line in one.lines):
                return one
        return self.model.variants[0] if self.model.variants else None

    @property
    def heat(self) -> str:
        """The measure of the heat of its lines, in words; "" if there is none."""
        variant = self.variant
        return _HEATS[variant.heats[0]] if variant is not None and variant.heats else ""

    def __repr__(self) -> str:
        return f"<Kernel {visible(self.model.name)}: {self.model.launches} launches>"

    def _repr_html_(self) -> str:
        rows = self._run.rows(self.model, self.variant)
        return _html("kernel", one=self.model, rows=rows, heat=self.heat)


class FoundFault:
    """A fault of a run with its pictures; of a comparison that failed, with what fixes it."""

    def __init__(self, model: FaultModel, names: Mapping[str, str]) -> None:
        self.model = model
        self._names = names

    def __repr__(self) -> str:
        return f"<{self.model.kind}: {visible(self.model.message)}>"

    def _repr_html_(self) -> str:
        return _html("fault", one=self.model, names=self._names)


class Tile:
    """A watched tile, its elements as colours."""

    def __init__(
        self, title: str, shape: Sequence[int], values: Sequence[float], summary: str
    ) -> None:
        self.picture: Picture = tile_values_picture(title, shape, values, summary)

    def __repr__(self) -> str:
        return f"<Tile: {self.picture.caption}>"

    def _repr_html_(self) -> str:
        return _html("picture", one=self.picture)


class Timeline:
    """Launches in time, a row for each stream."""

    def __init__(self, model: RunModel) -> None:
        self._model = model

    def __repr__(self) -> str:
        return f"<Timeline of {self._model.run.launches} launches>"

    def _repr_html_(self) -> str:
        from markupsafe import Markup  # of jinja2, which only HTML needs

        names = tuple(one.name for one in self._model.kernels)
        return _html(
            "timeline",
            strip=Markup(strip_svg(self._model.strip, names)),
            legend=list(zip(names, KERNEL_COLOURS, strict=False)),
        )


class _Names(dict[str, str]):
    """Short names of files; "" for one that has none."""

    def __missing__(self, key: str) -> str:
        return ""


def _html(part: str, **values: object) -> str:
    return _template().render(part=part, glyph=_GLYPHS, style=_style(), **values)


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from tkdebug.instrument.renderers.page import asset

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.globals["svg"] = lambda picture: Markup(to_svg(picture))
    environment.globals["time"] = format_ns
    return environment.from_string(asset("notebook.html.j2"))


def _style() -> str:
    from tkdebug.instrument.renderers.page import asset

    return asset("notebook.css")


def to_svg(picture: Picture) -> str:
    """Return a picture as an SVG element."""
    width, height = _number(picture.width), _number(picture.height)
    marks = "".join(map(_mark, picture.marks))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{_text(picture.label)}" {_FONT}>'
        f"{marks}</svg>"
    )


def _mark(mark: Mark) -> str:
    match mark:
        case Box(role=role, outline=True):
            style = f'fill="none" stroke="{_STROKES[role]}" stroke-width="1.5"'
            return f"<rect {_place(mark)} {style}>{_title(mark.title)}</rect>"
        case Box(role=role, weight=weight):
            opacity = "" if weight == 1 else f' opacity="{_number(weight)}"'
            return f"<rect {_place(mark)} {_FILLS[role]}{opacity}>{_title(mark.title)}</rect>"
        case Line(role=role, points=points, dashed=dashed):
            at = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
            dash = ' stroke-dasharray="3 2"' if dashed else ""
            return f'<polyline points="{at}" fill="none" stroke="{_STROKES[role]}"{dash}/>'
        case Dot(role=role, x=x, y=y, radius=radius, title=title):
            at = f'cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"'
            return f"<circle {at} {_FILLS[role]}>{_title(title)}</circle>"
        case Text(role=role, x=x, y=y, text=text, anchor=anchor):
            fill = _BAD if role == "bad" else _MUTED
            at = f'x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}"'
            return f'<text {at} fill="{fill}">{_text(text)}</text>'


def _place(box: Box) -> str:
    parts = ("x", box.x), ("y", box.y), ("width", box.width), ("height", box.height)
    return " ".join(f'{name}="{_number(value)}"' for name, value in parts)


def _title(text: str) -> str:
    return f"<title>{_text(text)}</title>" if text else ""


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _text(text: str) -> str:
    return escape(visible(text), quote=True)


# Time

_ROW, _WIDTH, _MOST_TRACKS = 18, 860, 8


def strip_svg(strip: TimeStrip, kernels: tuple[str, ...]) -> str:
    """Return launches in time, a row for each stream.

    Args:
        strip: the time strip of a run.
        kernels: names of kernels, by the numbers that spans have for them.
    """
    tracks = strip.tracks[:_MOST_TRACKS]
    height = 14 + len(tracks) * (_ROW + 14)
    label = f"launches of {len(kernels)} kernels in {strip.end_ns / 1e6:.3g} ms"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="{_text(label)}" {_FONT}>'
    )
    rows = []
    for row, track in enumerate(tracks):
        y = row * (_ROW + 14)
        name = _text(f"{track.name} ({track.basis})")
        rows.append(f'<text x="0" y="{y + 10}" fill="{_MUTED}">{name}</text>')
        rows += _bars(strip, row, y + 14, kernels)
    at = f'x="{_WIDTH}" y="10" text-anchor="end" fill="{_MUTED}"'
    end = f"<text {at}>{format_ns(strip.end_ns)}</text>"
    return head + "".join(rows) + end + "</svg>"


def _bars(strip: TimeStrip, row: int, y: int, kernels: tuple[str, ...]) -> Iterator[str]:
    """Yield the bars of a track; short ones of a kernel in the same half pixel are drawn once."""
    scale = _WIDTH / max(1, strip.end_ns)
    drawn: set[tuple[int, int]] = set()
    for span in strip.tracks[row].spans:
        x, width = span.start_ns * scale, max(0.5, span.duration_ns * scale)
        cell = int(2 * x), span.kernel
        if width <= 0.5 and cell in drawn:
            continue
        drawn.add(cell)
        is_known = 0 <= span.kernel < len(KERNEL_COLOURS)
        fill = KERNEL_COLOURS[span.kernel] if is_known else _GREY
        name = kernels[span.kernel] if 0 <= span.kernel < len(kernels) else strip.names[span.name]
        title = _title(f"{name}, {format_ns(span.duration_ns)}")
        at = f'x="{_number(x)}" y="{y}" width="{_number(width)}" height="{_ROW}"'
        yield f'<rect {at} fill="{fill}">{title}</rect>'
