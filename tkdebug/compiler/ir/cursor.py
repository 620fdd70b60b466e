"""A position in IR text: its tokens, and errors at line and column.

Input is untrusted: nesting and number sizes are bounded, nothing is evaluated.
"""

from __future__ import annotations

import json
import re
import struct
from bisect import bisect_right

from tkdebug.errors import IRError

MAX_NESTING = 100
MAX_TEXT_CHARS = 64 << 20

_SPACE = re.compile(r"(?:\s|//[^\n]*)*")
_SPACE_IN_LINE = re.compile(r"[ \t]*")
_WORD = re.compile(r"[A-Za-z_][\w$]*(?:\.[\w$]+)*", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_VALUE_NAME = re.compile(r"%([\w$.-]*[\w$.])")
_NUMBER = re.compile(r"-?(?:inf\b|\d+(\.\d*)?([eE][+-]?\d+)?)")
_NAN = re.compile(r"nan(?:\(0x([0-9a-fA-F]{16})\))?")
_INTEGER = re.compile(r"\d{1,12}")
_TOKEN = re.compile(r"->|[\w$.%@^!\"]+|.", re.DOTALL)
# 2**64 has 20 digits; longer integers are no attribute of any op.
_MAX_NUMBER_CHARS = 48


class Cursor:
    """A place in `text` that only moves forward."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT_CHARS:
            raise IRError(f"<ir>: text has {len(text)} characters, the limit is {MAX_TEXT_CHARS}")
        self.text = text
        self.position = 0
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def line_column(self, position: int) -> tuple[int, int]:
        """1-based line and column of a character."""
        line = bisect_right(self._line_starts, position)
        return line, position - self._line_starts[line - 1] + 1

    def error(self, message: str, position: int | None = None) -> IRError:
        """An error at `position` (here by default), with the text line and a caret."""
        where = self.position if position is None else position
        line, column = self.line_column(where)
        start = self._line_starts[line - 1]
        source = self.text[start:].split("\n", 1)[0] if start < len(self.text) else ""
        shown = source[:200]
        caret = f"\n    {shown}\n    {' ' * (column - 1)}^" if column <= 200 else ""
        return IRError(f"<ir>:{line}:{column}: {message}{caret}")

    def expected(self, what: str) -> IRError:
        """An error: `what` should stand here."""
        self.skip()
        match = _TOKEN.match(self.text, self.position)
        got = repr(match[0][:40]) if match else "end of text"
        return self.error(f"got {got}, expected {what}")

    def skip(self) -> None:
        """Pass over white space and comments."""
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def at_end(self) -> bool:
        """Whether only white space and comments remain."""
        self.skip()
        return self.position >= len(self.text)

    def accept(self, token: str) -> bool:
        """Pass over punctuation `token` if it stands here."""
        self.skip()
        if self.text.startswith(token, self.position):
            self.position += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        """Pass over punctuation `token`, which must stand here."""
        if not self.accept(token):
            raise self.expected(repr(token))

    def looking_at(self, token: str) -> bool:
        """Whether `token` stands here."""
        self.skip()
        return self.text.startswith(token, self.position)

    def operand_follows_in_line(self) -> bool:
        """Whether `%` comes next on this line (the next line's `%x =` starts another op)."""
        match = _SPACE_IN_LINE.match(self.text, self.position)
        assert match is not None
        return self.text.startswith("%", match.end())

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Pass over what `pattern` matches, if it stands here."""
        self.skip()
        match = pattern.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def word(self) -> str | None:
        """A dotted name, if one stands here."""
        match = self.take(_WORD)
        return match[0] if match else None

    def at_word(self) -> bool:
        """Whether a dotted name stands here."""
        self.skip()
        return _WORD.match(self.text, self.position) is not None

    def accept_word(self, word: str) -> bool:
        """Pass over exactly `word` if it stands here."""
        self.skip()
        match = _WORD.match(self.text, self.position)
        if match is None or match[0] != word:
            return False
        self.position = match.end()
        return True

    def expect_word(self, word: str) -> None:
        """Pass over `word`, which must stand here."""
        if not self.accept_word(word):
            raise self.expected(repr(word))

    def string(self) -> str | None:
        """A quoted string, if one stands here."""
        start = self.position
        match = self.take(_STRING)
        if match is None:
            return None
        try:
            text: str = json.loads(match[0])
        except ValueError as error:
            raise self.error(f"malformed string: {error}", start) from None
        return text

    def string_value(self) -> str:
        """A quoted string, which must stand here."""
        value = self.string()
        if value is None:
            raise self.expected("a closed string")
        return value

    def name(self, what: str) -> str:
        """A bare or quoted name."""
        name = self.word()
        if name is None:
            name = self.string()
        if name is None:
            raise self.expected(what)
        return name

    def value_name(self) -> str:
        """The name of a value, without its `%`."""
        match = self.take(_VALUE_NAME)
        if match is None:
            raise self.expected("a value such as %x")
        return match[1]

    def integer(self, what: str) -> int:
        """A non-negative integer."""
        match = self.take(_INTEGER)
        if match is None:
            raise self.expected(what)
        return int(match[0])

    def number(self) -> int | float | None:
        """An int or float literal, if one stands here."""
        nan = self.take(_NAN)
        if nan is not None:
            bits: tuple[float] = struct.unpack(">d", bytes.fromhex(nan[1] or "7ff8000000000000"))
            return bits[0]
        match = self.take(_NUMBER)
        if match is None:
            return None
        text = match[0]
        if len(text) > _MAX_NUMBER_CHARS:
            raise self.error(f"number of {len(text)} characters", match.start())
        is_float = text.endswith("inf") or match[1] is not None or match[2] is not None
        return float(text) if is_float else int(text)

    def bound(self, depth: int) -> None:
        """Refuse what is nested deeper than any kernel is."""
        if depth > MAX_NESTING:
            raise self.error(f"nested deeper than {MAX_NESTING}")
