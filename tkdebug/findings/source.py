"""A source file as far as faults are matched with it: its statements, functions and comments.

Read with `tokenize`, so that a text in a string is no comment. For a file that is no Python (it was
edited meanwhile) only the lines are known.
"""

from __future__ import annotations

import ast
import io
import tokenize
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from tkdebug.process.named_files import source_lines

_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
_UNREADABLE = (tokenize.TokenError, SyntaxError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, and the lines of the statement that it is in; `first` is 0 outside of any."""

    line: int
    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a file.

    Attributes:
        code: by line, its tokens without insignificant blanks, comments left out.
        comments: the comments in order.
        functions: first and last line of each, decorators included.
    """

    lines: tuple[str, ...]
    code: dict[int, str]
    comments: tuple[Comment, ...]
    functions: tuple[tuple[int, int], ...]

    def text_of(self, line: int) -> str:
        """A line's code without what a formatter changes; "" for a line that is not there."""
        if line in self.code:
            return self.code[line]
        return " ".join(self.lines[line - 1].split()) if 0 < line <= len(self.lines) else ""

    def function_of(self, line: int) -> tuple[int, int]:
        """First and last line of the innermost function around `line`; of the file if none is."""
        around = [span for span in self.functions if span[0] <= line <= span[1]]
        return max(around, default=(1, len(self.lines)))

    def ordinal_of(self, line: int) -> int:
        """Count the lines before it in its function that have the same code."""
        text = self.text_of(line)
        first, _ = self.function_of(line)
        return sum(self.text_of(before) == text for before in range(first, line))


@lru_cache(maxsize=64)
def parsed(text: str) -> Source:
    """Parse a file's text."""
    lines = tuple(text.split("\n"))  # as Python counts them: `splitlines` knows more ends
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        tree = ast.parse(text)
    except _UNREADABLE:
        return Source(lines, {}, (), ())
    return Source(lines, _code(tokens), _comments(tokens), _functions(tree))


def text_of_file(file: str) -> str:
    """The text of a file, or of a notebook cell that Python calls so; "" if there is none."""
    return "".join(source_lines(file))


def _code(tokens: list[tokenize.TokenInfo]) -> dict[int, str]:
    words: dict[int, list[str]] = defaultdict(list)
    for token in tokens:
        if token.type not in _NO_CODE:
            words[token.start[0]].append(token.string)
    return {line: _joined(found) for line, found in words.items()}


def _joined(words: list[str]) -> str:
    """Tokens with a blank only where two words would become one."""
    text = ""
    for word in words:
        is_one = text[-1:].isidentifier() or text[-1:].isdigit()
        text += f" {word}" if is_one and (word[:1].isidentifier() or word[:1].isdigit()) else word
    return " ".join(text.split())


def _comments(tokens: list[tokenize.TokenInfo]) -> tuple[Comment, ...]:
    """The comments; a statement ends with a NEWLINE token, which a comment of its line precedes."""
    statements: list[tuple[int, int]] = []
    first = 0
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            statements.append((first, token.start[0]))
            first = 0
        elif token.type not in _NO_CODE and not first:
            first = token.start[0]
    starts = [start for start, _ in statements]
    found = []
    for token in tokens:
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            at = bisect_right(starts, line) - 1
            is_in = at >= 0 and line <= statements[at][1]
            found.append(Comment(line, token.string, *(statements[at] if is_in else (0, 0))))
    return tuple(found)


def _functions(tree: ast.Module) -> tuple[tuple[int, int], ...]:
    return tuple(
        (min(node.lineno, *(d.lineno for d in node.decorator_list), node.lineno), node.end_lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    )
