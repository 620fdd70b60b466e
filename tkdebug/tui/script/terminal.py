r"""The output of a script, as a bounded list of lines.

Responsible for the part of a terminal that scripts and progress bars use: carriage return and
backspace, colours, erasing, and moving the cursor about the last lines. Full-screen programs are
not supported: positions count from the top of the last screenful, and lines that scrolled off stay.

Invariants: at most `MAX_LINES` lines and `MAX_CHARS` characters are kept, whatever is fed; a `Line`
never changes, so that a snapshot is a tuple of the present lines; no control character gets into a
line.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

from rich.color import Color
from rich.style import Style

from tkdebug.tui.drawing.display import without_controls

MAX_LINES = 10_000
MAX_CHARS = 8 << 20
MAX_LINE_CHARS = 4096
MAX_STYLES = 4096
MAX_STRING_CHARS = 1 << 16

_TOKEN = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b(?P<string>[\]P_])"
    r"|\x1b[ -/]*[0-~]"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
    r"|(?P<run>[^\x00-\x1f\x7f-\x9f]+)"
)
_PARTIAL = re.compile(r"\x1b(?:\[[0-?]*)?[ -/]*")
_MAX_PARTIAL_CHARS = 128
# A line end too: a sequence cut off by Ctrl-C must not swallow what the script says next.
_STRING_END = re.compile(r"\x07|\x9c|\x1b\\|\x18|\x1a|\x1b(?=[^\\])|[\r\n]")
_FLAGS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
_FLAGS_OFF = {
    22: ("bold", "dim"),
    23: ("italic",),
    24: ("underline",),
    27: ("reverse",),
    29: ("strike",),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line: `styles` holds a number of `Screenful.palette` per character, None for all 0."""

    text: str = ""
    styles: array[int] | None = None


@dataclass(frozen=True, slots=True)
class OutputSnapshot:
    """The lines at one moment.

    Attributes:
        first: number of the first line kept, counted from 0 since the script began.
        changed_from: lines numbered below this are as in the snapshot before.
        palette: styles by number.
    """

    lines: tuple[Line, ...] = ()
    first: int = 0
    changed_from: int = 0
    palette: tuple[Style, ...] = (Style.null(),)

    def runs(self, index: int) -> list[tuple[str, Style]]:
        """The runs of one style in the line `lines[index]`."""
        line = self.lines[index]
        if line.styles is None:
            return [(line.text, self.palette[0])]
        runs: list[tuple[str, Style]] = []
        begin = 0
        for end in range(1, len(line.text) + 1):
            if end == len(line.text) or line.styles[end] != line.styles[begin]:
                runs.append((line.text[begin:end], self.palette[line.styles[begin]]))
                begin = end
        return runs


class Terminal:
    """A terminal that takes a script's output, and makes snapshots.

    Args:
        rows: height of the screen the script believes in: how far up its cursor may go.
    """

    def __init__(self, rows: int = 24) -> None:
        self.rows = rows
        self._lines: deque[Line] = deque([Line()])
        self._chars = 0
        self._first = 0
        self._row = 0  # index into _lines
        self._column = 0
        self._pending = ""
        self._string_chars: int | None = None  # length so far inside OSC, DCS and the like
        self._graphics = _Graphics()
        self._style = 0  # its number in the palette
        self._palette = [Style.null()]
        self._numbers: dict[_Graphics, int] = {_Graphics(): 0}
        self._changed_from = 0

    def snapshot(self) -> OutputSnapshot:
        """Return the lines as they are; the next snapshot says what changed since this one."""
        lines = tuple(self._lines)
        if lines and not lines[-1].text:
            lines = lines[:-1]
        snapshot = OutputSnapshot(lines, self._first, self._changed_from, tuple(self._palette))
        self._changed_from = self._first + len(self._lines)
        return snapshot

    def feed(self, text: str) -> None:
        """Take `text`; an escape sequence may be cut anywhere between two calls."""
        text = self._pending + text
        self._pending = ""
        cut = text.rfind("\x1b", -_MAX_PARTIAL_CHARS)
        if cut >= 0 and _PARTIAL.fullmatch(text, cut):
            self._pending = text[cut:]
            text = text[:cut]
        at = 0
        while at < len(text):
            if self._string_chars is not None:
                at = self._skip_string(text, at)
                continue
            token = _TOKEN.match(text, at)
            if token is None:
                at += 1
                continue
            at = token.end()
            self._take(token)

    def _take(self, token: re.Match[str]) -> None:
        if (run := token["run"]) is not None:
            self._write(without_controls(run))
        elif (control := token["control"]) is not None:
            self._control(control)
        elif (final := token["final"]) is not None:
            self._sequence(token["parameters"], final)
        elif token["string"] is not None:
            self._string_chars = 0

    def _skip_string(self, text: str, at: int) -> int:
        end = _STRING_END.search(text, at)
        stop = end.end() if end is not None else len(text)
        skipped = (self._string_chars or 0) + stop - at
        # One that never ends must not swallow the output that follows.
        done = end is not None or skipped > MAX_STRING_CHARS
        self._string_chars = None if done else skipped
        if end is not None and end.group() in "\x1b\r\n":
            return end.start()
        return stop

    def _control(self, control: str) -> None:
        match control:
            case "\n" | "\x0b" | "\x0c":
                self._new_line()
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(0, self._column - 1)
            case "\t":
                self._column = min((self._column // 8 + 1) * 8, MAX_LINE_CHARS)
            case _:
                pass

    def _new_line(self) -> None:
        self._row += 1
        self._column = 0
        self._reach_row()

    def _reach_row(self) -> None:
        while self._row >= len(self._lines):
            self._lines.append(Line())
        while len(self._lines) > MAX_LINES or (self._chars > MAX_CHARS and len(self._lines) > 1):
            self._chars -= len(self._lines.popleft().text)
            self._first += 1
            self._row = max(0, self._row - 1)

    def _write(self, run: str) -> None:
        room = MAX_LINE_CHARS - self._column
        begin = self._column
        self._column = min(begin + len(run), MAX_LINE_CHARS)
        run = run[: max(0, room)]
        if not run:
            return
        line = self._lines[self._row]
        styles = line.styles
        if begin == len(line.text) and not styles and not self._style:
            self._set(Line(line.text + run))
            return
        head = line.text[:begin].ljust(begin)
        tail = line.text[begin + len(run) :]
        if styles is not None or self._style:
            old = styles if styles is not None else array("H", bytes(2 * len(line.text)))
            styles = old[:begin]
            styles.extend([0] * (begin - len(styles)))
            styles.extend([self._style] * len(run))
            styles.extend(old[begin + len(run) :])
        self._set(Line(head + run + tail, styles))

    def _set(self, line: Line, row: int | None = None) -> None:
        row = self._row if row is None else row
        self._chars += len(line.text) - len(self._lines[row].text)
        self._lines[row] = line
        self._changed_from = min(self._changed_from, self._first + row)

    def _sequence(self, parameters: str, final: str) -> None:
        if final == "m":
            self._select_graphics(parameters)
            return
        numbers = [int(p[:5]) if p.isdecimal() else 0 for p in parameters.split(";")[:2]]
        step = max(1, numbers[0])
        top = max(0, len(self._lines) - self.rows)
        match final:
            case "A" | "F":
                self._row = max(top, self._row - step)
            case "B" | "E":
                self._row = min(max(self._row, top + self.rows - 1), self._row + step)
            case "C":
                self._column = min(self._column + step, MAX_LINE_CHARS)
            case "D":
                self._column = max(0, self._column - step)
            case "G":
                self._column = min(step - 1, MAX_LINE_CHARS)
            case "H" | "f":
                column = max(1, numbers[1]) if len(numbers) > 1 else 1
                self._row = top + min(step, self.rows) - 1
                self._column = min(column - 1, MAX_LINE_CHARS)
            case "K":
                self._erase_in_line(numbers[0])
            case "J":
                self._erase_in_display(numbers[0])
            case _:
                pass
        if final in "EF":
            self._column = 0
        self._reach_row()

    def _erase_in_line(self, what: int) -> None:
        line = self._lines[self._row]
        if what == 0:
            styles = line.styles[: self._column] if line.styles is not None else None
            self._set(Line(line.text[: self._column], styles))
        elif what == 1:
            column, style = self._column, self._style
            self._column = self._style = 0
            self._write(" " * min(column + 1, len(line.text)))
            self._column, self._style = column, style
        elif what == 2:
            self._set(Line())

    def _erase_in_display(self, what: int) -> None:
        if what == 0:
            self._erase_in_line(0)
            for row in range(self._row + 1, len(self._lines)):
                self._set(Line(), row)
        elif what in (2, 3) and any(line.text for line in self._lines):
            # A cleared screen begins below what is there: nothing printed is lost.
            self._row = len(self._lines) + self.rows - 1
            self._reach_row()
            self._row = max(0, len(self._lines) - self.rows)

    def _select_graphics(self, parameters: str) -> None:
        graphics = self._graphics = _after(self._graphics, parameters)
        number = self._numbers.get(graphics)
        if number is None:
            number = len(self._palette) if len(self._palette) < MAX_STYLES else 0
            if number:
                self._numbers[graphics] = number
                self._palette.append(graphics.style())
        self._style = number


@dataclass(frozen=True, slots=True)
class _Graphics:
    """The colours and flags that escape sequences have selected."""

    foreground: Color | None = None
    background: Color | None = None
    flags: frozenset[str] = frozenset()

    def style(self) -> Style:
        """Return the style for Rich."""
        style = Style.from_color(self.foreground, self.background)
        return style + Style.parse(" ".join(sorted(self.flags))) if self.flags else style


@lru_cache(maxsize=4096)
def _after(graphics: _Graphics, parameters: str) -> _Graphics:
    """Return the selection after `ESC [ parameters m`. ECMA-48, 8.3.117."""
    codes = [int(p[:5]) if p.isdecimal() else 0 for p in re.split("[;:]", parameters)[:64]]
    foreground, background = graphics.foreground, graphics.background
    flags = set(graphics.flags)
    at = 0
    while at < len(codes):
        code = codes[at]
        at += 1
        if code == 0:
            foreground = background = None
            flags.clear()
        elif code in _FLAGS:
            flags.add(_FLAGS[code])
        elif code in _FLAGS_OFF:
            flags.difference_update(_FLAGS_OFF[code])
        elif code in (38, 48):
            colour, at = _extended_colour(codes, at)
            if code == 38:
                foreground = colour
            else:
                background = colour
        elif 30 <= code <= 37 or 90 <= code <= 97:
            foreground = Color.from_ansi(code - 30 if code < 90 else code - 82)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            background = Color.from_ansi(code - 40 if code < 100 else code - 92)
        elif code == 39:
            foreground = None
        elif code == 49:
            background = None
    return _Graphics(foreground, background, frozenset(flags))


def _extended_colour(codes: list[int], at: int) -> tuple[Color | None, int]:
    """Return the colour of `38;5;n` or `38;2;r;g;b`, or None, and the index of the next code."""
    if codes[at : at + 1] == [5] and at + 1 < len(codes):
        return Color.from_ansi(min(codes[at + 1], 255)), at + 2
    if codes[at : at + 1] == [2] and at + 3 < len(codes):
        red, green, blue = (min(c, 255) for c in codes[at + 1 : at + 4])
        return Color.from_rgb(red, green, blue), at + 4
    return None, len(codes)
