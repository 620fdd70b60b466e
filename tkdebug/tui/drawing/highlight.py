"""Colours of Python and IR text: spans by line.

Pygments knows Python; IR and PTX need a handful of patterns. A text too large to colour in a moment
stays plain.
"""

from __future__ import annotations

import re
from typing import Literal

Category = Literal[
    "keyword", "string", "number", "comment", "name", "builtin", "decorator", "type", "value"
]
Spans = tuple[tuple[int, int, Category], ...]  # begin, end (columns), what it is

MAX_PYTHON_CHARS = 1_000_000
MAX_IR_LINES = 50_000
MAX_LINE_CHARS = 2_000

_IR = re.compile(
    r"(?P<comment>//.*|\bloc\(.*)"
    r'|(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<value>%[\w.$#:]+|[\^@][\w.$]+)"
    r"|(?P<type>!?\btt\.ptr\b|!tt\.\w+|\b(?:tensor|vector)\b|\b(?:[su]?i|bf|fp|f|u|b|index)\d*\b(?!\.))"
    r"|(?P<keyword>\b[a-z_]+(?:\.[a-z_0-9]+)+)"
    r"|(?P<number>\b-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\b)"
)

_SASS = re.compile(
    r"(?P<comment>/\*.*?\*/|//.*)"
    r"|(?P<type>@!?U?P(?:T|\d+)\b)"
    r"|(?P<value>\b(?:U?R(?:Z|\d+)|U?P(?:T|\d+)|SR_\w+)\b(?:\.\w+)*)"
    r"|(?P<keyword>\b[A-Z][A-Z0-9_]+\b(?:\.\w+)*)"
    r"|(?P<number>-?\b(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?)\b)"
)


def highlight_ir(lines: tuple[str, ...]) -> tuple[Spans, ...]:
    """Spans of each line of IR or PTX."""
    return _highlight(_IR, lines)


def highlight_sass(lines: tuple[str, ...]) -> tuple[Spans, ...]:
    """Spans of each line of SASS: address, guard, instruction, registers, constants."""
    return _highlight(_SASS, lines)


def _highlight(pattern: re.Pattern[str], lines: tuple[str, ...]) -> tuple[Spans, ...]:
    if len(lines) > MAX_IR_LINES:
        return ()
    return tuple(
        tuple(
            (match.start(), match.end(), _category(match))
            for match in pattern.finditer(line[:MAX_LINE_CHARS])
        )
        for line in lines
    )


def _category(match: re.Match[str]) -> Category:
    return match.lastgroup  # type: ignore[return-value]  # the groups are named by category


def highlight_python(lines: tuple[str, ...]) -> tuple[Spans, ...]:
    """Spans of each line of Python."""
    if sum(map(len, lines)) > MAX_PYTHON_CHARS:
        return ()
    # Rich brings pygments and what little of it is needed; only when there is code to show.
    from rich.syntax import Syntax

    lexer = Syntax("", "python").lexer
    if lexer is None:
        return ()
    spans: list[list[tuple[int, int, Category]]] = [[] for _ in lines]
    row = column = 0
    for _, token, value in lexer.get_tokens_unprocessed("\n".join(lines)):
        category = _python_category(str(token))
        for number, part in enumerate(value.split("\n")):
            if number:
                row, column = row + 1, 0
            if part and category is not None and row < len(lines) and not part.isspace():
                spans[row].append((column, column + len(part), category))
            column += len(part)
    return tuple(map(tuple, spans))


def _python_category(token: str) -> Category | None:
    for prefix, category in _PYTHON_CATEGORIES:
        if token.startswith(prefix):
            return category
    return None


_PYTHON_CATEGORIES: tuple[tuple[str, Category], ...] = (
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Comment", "comment"),
    ("Token.Name.Decorator", "decorator"),
    ("Token.Name.Function", "name"),
    ("Token.Name.Class", "name"),
    ("Token.Name.Builtin", "builtin"),
)
