"""A source file as far as faults are matched with it: its statements, functions and comments.

Read with `tokenize`, so that a text in a string is no comment. For a file that is no Python (it was
edited meanwhile) only the lines are known.

`# tkdebug: ignore[kind]` is a comment that ignores faults; mistakes in such comments are found. A
comment holds for its statement, on whichever of its physical lines it is: for faults at these
lines, and for faults of a device function that is called there. Kinds have to be named. Text after
the bracket is for readers.
"""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tkdebug.errors import instead_of, shown_path
from tkdebug.process.named_files import source_lines
from tkdebug.records.events import ENDING_KINDS, IGNORABLE_KINDS, Fault
from tkdebug.records.storage import stored

_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
_UNREADABLE = (tokenize.TokenError, SyntaxError, ValueError, RecursionError)
EXAMPLE = "# tkdebug: ignore[race]"
_WORD = "ignore"
_NAME = "tkdebug"
_DIRECTIVE = re.compile(
    r"#\s*(?P<name>\w+)\s*(?P<colon>:?)\s*(?P<word>[A-Za-z_-]*)\s*(?P<list>\[[^\]#]*\]?)?"
)
# Other files are not parsed for comments.
_MAY_HAVE_ANY = re.compile(r"#\s*tkdebug|:\s*ignore\s*\[")


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
        """Count the lines before `line` in its function that have the same code."""
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
    """The comments with their statements; the NEWLINE that ends one is after its last comment."""
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


@stored("ignore_comments")
@dataclass(frozen=True, slots=True)
class IgnoreComment:
    """A comment in the source that ignores faults, in a function of a kernel that was interpreted.

    Attributes:
        line: the line of the comment.
        first: line of the statement that it is in.
        last: the last line of its statement.
        kinds: the kinds of faults that it ignores; in records, only those that were looked for.
        problem: the mistake in it, "" for none.
    """

    file: str
    line: int
    first: int
    last: int
    kinds: tuple[str, ...]
    problem: str = ""

    def covers(self, fault: Fault, kind: str) -> bool:
        """Whether `fault` is of `kind` and has a frame in the comment's statement."""
        return fault.kind == kind and any(
            frame.file == self.file and self.first <= frame.line <= self.last
            for frame in fault.frames
        )

    @property
    def place(self) -> str:
        """The place of the comment, as one would type it."""
        return f"{shown_path(self.file)}:{self.line}"


@lru_cache(maxsize=64)
def comments_of(file: str, text: str) -> tuple[IgnoreComment, ...]:
    """The comments in a file of that text that are meant for tkdebug."""
    if _MAY_HAVE_ANY.search(text) is None:
        return ()
    found = (_read(file, comment) for comment in parsed(text).comments)
    return tuple(comment for comment in found if comment is not None)


def is_ignored(fault: Fault, text_of: Callable[[str], str] = text_of_file) -> bool:
    """Whether a comment at the fault's line, or at a call that leads there, ignores it."""
    return any(
        comment.covers(fault, fault.kind) and fault.kind in comment.kinds
        for file in {frame.file for frame in fault.frames}
        for comment in comments_of(file, text_of(file))
    )


def comments_around(
    places: Collection[tuple[str, int]], text_of: Callable[[str], str] = text_of_file
) -> Iterator[IgnoreComment]:
    """The comments in the functions that have a line among `places` (file, line)."""
    for file in sorted({file for file, _ in places}):
        text = text_of(file)
        comments = comments_of(file, text)
        if not comments:
            continue
        source = parsed(text)
        functions = {source.function_of(line) for other, line in places if other == file}
        for comment in comments:
            if source.function_of(comment.line) in functions:
                yield comment


def unused(comments: Iterable[IgnoreComment], faults: Iterable[Fault]) -> list[IgnoreComment]:
    """Comments with a kind that ignored no fault, each once and reduced to these kinds.

    Args:
        comments: the comments as recorded.
        faults: all faults of the run.
    """
    ignored = [fault for fault in faults if fault.state == "ignored"]
    kinds: dict[IgnoreComment, list[str]] = {}
    for comment in comments:
        known = kinds.setdefault(replace(comment, kinds=()), [])
        known.extend(kind for kind in comment.kinds if kind not in known)
    left = []
    for comment, looked_for in kinds.items():
        idle = [k for k in looked_for if not any(comment.covers(f, k) for f in ignored)]
        if idle:
            left.append(replace(comment, kinds=tuple(idle)))
    return sorted(left, key=lambda comment: (comment.file, comment.line))


def unused_lines(comments: Iterable[IgnoreComment], faults: Iterable[Fault]) -> list[str]:
    """Return a line for each comment that ignored nothing."""
    return [
        f"{comment.place}: unused ignore[{', '.join(comment.kinds)}]: no such fault came up there"
        for comment in unused(comments, faults)
    ]


def problem_lines(comments: Iterable[IgnoreComment]) -> list[str]:
    """Return the mistakes in comments, a line each."""
    wrong = {(c.file, c.line, problem_line(c)) for c in comments if c.problem}
    return [line for *_, line in sorted(wrong)]


def problem_line(comment: IgnoreComment) -> str:
    """Describe the mistake in a comment, in one line."""
    return f"{comment.place}: {comment.problem}"


def _read(file: str, comment: Comment) -> IgnoreComment | None:
    found = next(filter(_is_meant, _DIRECTIVE.finditer(comment.text)), None)
    if found is None:
        return None
    kinds, problem = _kinds(found)
    if kinds and not comment.first:
        kinds = ()
        problem = "ignore outside of any statement: put it at the end of the line it is for"
    return IgnoreComment(file, comment.line, comment.first, comment.last, kinds, problem)


def _is_meant(found: re.Match[str]) -> bool:
    """Whether a comment is meant to ignore faults, and is neither prose nor another tool's."""
    has_word = bool(difflib.get_close_matches(found["word"].lower(), (_WORD,), 1, 0.75))
    if found["name"] == _NAME:
        return found["list"] is not None or (has_word and bool(found["colon"]))
    is_near = bool(difflib.get_close_matches(found["name"].lower(), (_NAME,), 1, 0.75))
    return is_near and has_word and found["list"] is not None


def _kinds(found: re.Match[str]) -> tuple[tuple[str, ...], str]:
    """Return the known kinds that a comment names, and the first mistake in it, "" for none."""
    listed: str | None = found["list"]
    if (found["name"], found["colon"], found["word"]) != (_NAME, ":", _WORD):
        return (), f"got {found[0].rstrip()!r}, expected a comment such as {EXAMPLE}"
    if listed is None:
        return (), f"ignore without kinds; name them, as in {EXAMPLE}"
    if not listed.endswith("]"):
        return (), f"ignore{listed.rstrip()} has no closing bracket, expected {EXAMPLE}"
    names = [name.strip() for name in listed[1:-1].split(",")]
    if not all(names):
        return (), f"ignore{listed} lacks a kind; name it, as in {EXAMPLE}"
    kinds = tuple(name for name in names if name in IGNORABLE_KINDS)
    for name in names:
        if name in ENDING_KINDS:
            return kinds, f"ignore[{name}]: cannot be ignored, since the launch itself fails"
        if name not in IGNORABLE_KINDS:
            hint = instead_of(name, IGNORABLE_KINDS)
            return kinds, f"ignore[{name}]: there is no such kind of fault{hint}"
    return kinds, ""
