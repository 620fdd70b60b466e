"""Watches as people write them: `FILE:LINE:NAME[:tile][@PROGRAMS][ if CONDITION]`.

`PROGRAMS` are positions in the grid along x, y and z: `@3`, `@2,0`, ranges `@0:4`, several of them
`@0+7`. Axes that are left out may be anything.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tkdebug.errors import UsageError, shown_path
from tkdebug.process.named_files import UnfitFileError, fresh_source

if TYPE_CHECKING:
    from tkdebug.watches.conditions import Node

_FORM = "FILE:LINE:NAME[:tile][@PROGRAMS][ if CONDITION]"
_TILE = "tile"
_MAX_PROGRAM = 1 << 31
# Positions along one axis: the first, and the one after the last.
Span = tuple[int, int]


@dataclass(frozen=True)
class Watch:
    """A value that is looked at.

    Attributes:
        file: absolute.
        line: the first line of the statement that binds the name, or the line where it is looked
            at.
        name: the name of the variable.
        programs: boxes of programs, a span for each axis from x on; () for all programs.
        condition: text; "" for always.
        whole: whether the whole tile is kept, and not its summary alone.
    """

    file: str
    line: int
    name: str
    programs: tuple[tuple[Span, ...], ...] = ()
    condition: str = ""
    whole: bool = False

    @cached_property
    def node(self) -> Node | None:
        """The parsed condition, None for always."""
        if not self.condition:
            return None
        from tkdebug.watches.conditions import read_condition

        return read_condition(self.condition, self.name)

    @cached_property
    def place(self) -> str:
        """The place as in messages: `examples/matmul.py:73:acc`."""
        return f"{shown_path(self.file)}:{self.line}:{self.name}"

    @cached_property
    def text(self) -> str:
        """The watch as text that `read_watch` reads."""
        return self.place + self._rest

    @property
    def absolute_text(self) -> str:
        """The watch as text that `read_watch` reads, with the file's whole path."""
        return f"{self.file}:{self.line}:{self.name}{self._rest}"

    @cached_property
    def _rest(self) -> str:
        programs = "+".join(",".join(map(_span_text, box)) for box in self.programs)
        return (
            (f":{_TILE}" if self.whole else "")
            + (f"@{programs}" if programs else "")
            + (f" if {self.condition}" if self.condition else "")
        )

    def may_be_in(self, grid: tuple[int, int, int]) -> bool:
        """Whether the grid may contain one of the watched programs."""
        return not self.programs or any(
            all(first < extent for (first, _), extent in zip(box, grid, strict=False))
            for box in self.programs
        )


def _span_text(span: Span) -> str:
    first, end = span
    return str(first) if end == first + 1 else f"{first}:{end}"


def real_file(file: str) -> str:
    """A file's path without links; a name that is no file's, such as a cell's, unchanged."""
    return os.path.realpath(file) if os.path.exists(file) else file


def read_watch(text: str) -> Watch:
    """Read the watch `text`.

    Raises:
        UsageError: it is no watch, or its file has no such line or name.
    """
    place, _, condition = text.partition(" if ")
    place, at, programs = place.strip().partition("@")
    parts = place.split(":")
    whole = len(parts) > 3 and parts[-1] == _TILE
    if whole:
        parts.pop()
    is_place = len(parts) > 2 and any(parts[:-2])
    if not (is_place and parts[-2].isdecimal() and parts[-1].isidentifier()):
        raise UsageError(f"got {text!r}, expected {_FORM}")
    if at and not programs:
        raise UsageError(f"got {text!r}, expected programs behind the @, as in @0 or @0:4")
    if " if " in f"{text} " and not condition.strip():
        raise UsageError(f"got {text!r}, expected a condition behind the `if`")
    file, line, name = ":".join(parts[:-2]), int(parts[-2]), parts[-1]
    return checked_watch(
        Watch(real_file(file), line, name, _boxes(programs), condition.strip(), whole)
    )


def checked_watch(watch: Watch) -> Watch:
    """Return `watch` after checking that its condition can be read and its line has the name.

    Raises:
        UsageError: one of these fails; for an unknown name the message offers near ones.
    """
    _ = watch.node  # says what is wrong with the condition
    functions = _functions(watch.file)
    _check_line(watch, functions)
    function = functions[watch.line]
    if watch.name not in function.names:
        near = ", ".join(function.bound_by(watch.line)) or "none"
        raise UsageError(
            f"{shown_path(watch.file)}:{watch.line}: {function.name} has no variable "
            f"`{watch.name}`; its variables up to this line: {near}"
        )
    return watch


@dataclass(frozen=True)
class _Function:
    """A function of a file: the names that it binds, with the lines at which it first does."""

    name: str
    names: Mapping[str, int] = field(default_factory=dict)

    def bound_by(self, line: int) -> list[str]:
        return [name for name, first in self.names.items() if first <= line]


def _check_line(watch: Watch, functions: Mapping[int, _Function]) -> None:
    if watch.line in functions:
        return
    near = min(
        functions, key=lambda each: (abs(each - watch.line), each < watch.line), default=None
    )
    offer = (
        "no function of the file has code"
        if near is None
        else f"the nearest one with code is {near}, in {functions[near].name}"
    )
    raise UsageError(
        f"{shown_path(watch.file)}:{watch.line}: no statement of a function begins at this line; "
        f"{offer}"
    )


def _functions(file: str) -> dict[int, _Function]:
    """Return the function that each statement is in, by the statement's line."""
    # Cells of notebooks are read, too.
    try:
        text = fresh_source(file)
    except UnfitFileError as error:
        raise UsageError(f"{shown_path(file)}: {error.strerror}") from None
    if not text:
        raise UsageError(f"{shown_path(file)}: cannot be read, or is empty")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{shown_path(file)}: is no Python source ({error})") from None
    found: dict[int, _Function] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            function = _Function(node.name, _bound_names(node))
            found.update(dict.fromkeys(_lines(node), function))
    return found


def _lines(function: ast.FunctionDef) -> Iterator[int]:
    for statement in function.body:
        for node in ast.walk(statement):
            match node:
                case ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None):
                    continue
                case ast.stmt():
                    yield node.lineno


def _bound_names(function: ast.FunctionDef) -> dict[str, int]:
    found: dict[str, int] = {}
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        found[argument.arg] = function.lineno
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = min(node.lineno, found.get(node.id, node.lineno))
    return dict(sorted(found.items(), key=lambda item: item[1]))


def read_programs(text: str) -> tuple[tuple[Span, ...], ...]:
    """The programs that a text after an @ names; () for "", which is all.

    Raises:
        UsageError: the text names none.
    """
    return _boxes(text)


def _boxes(text: str) -> tuple[tuple[Span, ...], ...]:
    return tuple(_box(part, text) for part in text.split("+")) if text else ()


def _box(part: str, text: str) -> tuple[Span, ...]:
    spans = tuple(_span(axis.strip(), text) for axis in part.split(","))
    if len(spans) > 3:
        raise UsageError(f"programs @{text}: a grid has 3 axes, got {len(spans)} positions")
    return spans


def _span(text: str, whole: str) -> Span:
    first, colon, end = text.partition(":")
    if not first.isdecimal() or (colon and not end.isdecimal()):
        raise UsageError(
            f"programs @{whole}: got {text!r}, expected a position such as 3, or a range 0:4"
        )
    span = int(first), int(end) if colon else int(first) + 1
    if span[0] >= span[1] or span[1] > _MAX_PROGRAM:
        raise UsageError(f"programs @{whole}: {text} has no program")
    return span
