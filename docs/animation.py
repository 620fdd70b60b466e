"""A terminal in which commands are typed and answer, as an SVG that plays by CSS alone.

Without animations, or for those who want none, it shows its last moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rich.color import Color
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

_CELL, _ROW, _FONT = 12.2, 24.4, 20
_LEFT, _TOP, _BOTTOM = 12, 46, 14
_KEY_S, _ENTER_S = 0.05, 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """A command and what it printed.

    Attributes:
        command: the command as it is typed.
        output: its output, with the codes of colours.
        reading_s: the time until the next command.
        prompt: the text before it.
    """

    command: str
    output: str
    reading_s: float
    prompt: str = "$ "


@dataclass(frozen=True, slots=True)
class _Placed:
    """A step in time and rows; `row` is that of its command."""

    row: int
    prompt: str
    command: str
    typing_s: float
    answers_s: float
    lines: Sequence[Sequence[Segment]]

    @property
    def after(self) -> int:
        return self.row + 1 + len(self.lines)


def animated(title: str, steps: Sequence[Step], columns: int, rows: int) -> str:
    """Return the SVG.

    Args:
        title: what it shows, in the window's title and for those who do not see it.
        steps: the commands, in order.
        columns: the width of the terminal; longer lines are wrapped.
        rows: its height; it scrolls.
    """
    placed = list(_placed(steps, columns))
    whole_s = placed[-1].answers_s + steps[-1].reading_s
    width = columns * _CELL + 2 * _LEFT
    height = rows * _ROW + _TOP + _BOTTOM
    style, body = _style(placed, whole_s, rows), "".join(_body(placed, columns))
    bar = "".join(
        f'<circle cx="{20 + 22 * i}" cy="22" r="7" fill="{colour}"/>'
        for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n'
        f"<style>{style}</style>\n"
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#292929"/>{bar}'
        f'<text x="{width / 2:.0f}" y="28" text-anchor="middle" fill="#c5c8c6" '
        f'font-family="sans-serif" font-size="18">{escape(title)}</text>\n'
        f'<svg x="{_LEFT}" y="{_TOP}" width="{width - 2 * _LEFT:.1f}" height="{rows * _ROW:.1f}">'
        f'<g class="all">\n{body}</g></svg>\n</svg>\n'
    )


def _placed(steps: Sequence[Step], columns: int) -> Iterator[_Placed]:
    row, now_s = 0, 1.0
    for step in steps:
        lines = _lines(step.output, columns)
        answers_s = now_s + len(step.command) * _KEY_S + _ENTER_S
        yield _Placed(row, step.prompt, step.command, now_s, answers_s, lines)
        row += 1 + len(lines)
        now_s = answers_s + step.reading_s


def _lines(output: str, columns: int) -> list[list[Segment]]:
    console = Console(width=columns, color_system="truecolor", force_terminal=True)
    text = Text.from_ansi(output)
    return console.render_lines(text, pad=False) if output else []


def _style(placed: Sequence[_Placed], whole_s: float, rows: int) -> str:
    """Return the rules: what appears when, and how the terminal scrolls."""

    def at(time_s: float) -> str:
        return f"{100 * time_s / whole_s:.2f}%"

    def scrolled(row: int) -> str:
        return f"transform:translateY({-_ROW * max(0, row - rows):.1f}px)"

    rules = [
        f"text{{font:{_FONT}px 'Fira Code',ui-monospace,monospace;white-space:pre}}",
        f".all{{{scrolled(placed[-1].after)};animation:all {whole_s:.2f}s step-end infinite}}",
        ".typing{opacity:0}",
        "@media (prefers-reduced-motion:reduce){*{animation:none!important}}",
    ]
    scroll = [f"0%{{{scrolled(0)}}}"]
    for n, step in enumerate(placed):
        typed_s = step.answers_s - _ENTER_S
        timing = f"{whole_s:.2f}s step-end infinite"
        rules += [
            f".c{n}{{animation:c{n} {timing}}}.o{n}{{animation:o{n} {timing}}}",
            f".t{n}{{animation:t{n} {timing}}}",
            f"@keyframes c{n}{{0%{{opacity:0}}{at(step.typing_s)}{{opacity:1}}}}",
            f"@keyframes o{n}{{0%{{opacity:0}}{at(step.answers_s)}{{opacity:1}}}}",
            # The cover of a command moves from letter to letter, and goes when it answers.
            f"@keyframes t{n}{{0%{{opacity:0;transform:none}}"
            f"{at(step.typing_s)}{{opacity:1;transform:none;"
            f"animation-timing-function:steps({len(step.command)})}}"
            f"{at(typed_s)}{{opacity:1;transform:translateX({len(step.command) * _CELL:.1f}px)}}"
            f"{at(step.answers_s)}{{opacity:0}}}}",
        ]
        scroll += [
            f"{at(step.typing_s)}{{{scrolled(step.row + 1)}}}",
            f"{at(step.answers_s)}{{{scrolled(step.after)}}}",
        ]
    rules.append(f"@keyframes all{{{''.join(scroll)}}}")
    return "\n".join(rules)


def _body(placed: Sequence[_Placed], columns: int) -> Iterator[str]:
    for n, step in enumerate(placed):
        bold = Style(bold=True)
        y = step.row * _ROW
        yield f'<g class="c{n}">'
        command = Segment(step.prompt + step.command, bold)
        yield from _row([command], step.row)
        x = len(step.prompt) * _CELL
        yield (
            f'<g class="typing t{n}"><rect x="{x:.1f}" y="{y:.1f}" width="{columns * _CELL:.0f}" '
            f'height="{_ROW}" fill="#292929"/><rect x="{x:.1f}" y="{y + 2:.1f}" width="{_CELL}" '
            f'height="{_ROW - 2:.1f}" fill="#c5c8c6"/></g></g>\n<g class="o{n}">'
        )
        for i, line in enumerate(step.lines):
            yield from _row(line, step.row + 1 + i)
        yield "</g>\n"


def _row(line: Sequence[Segment], row: int) -> Iterator[str]:
    """Yield the texts of a line, each at its column, whatever the font."""
    column = 0
    for segment in line:
        text = segment.text.rstrip("\n")
        if text.strip():
            style = segment.style or Style()
            colour = style.color or Color.default()
            fill = colour.get_truecolor(SVG_EXPORT_THEME).hex
            weight = ' font-weight="bold"' if style.bold else ""
            yield (
                f'<text x="{column * _CELL:.1f}" y="{row * _ROW + 18:.1f}" fill="{fill}"{weight} '
                f'textLength="{len(text) * _CELL:.1f}">{escape(text, quote=False)}</text>'
            )
        column += segment.cell_length
