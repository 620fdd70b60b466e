"""The Python source of a kernel or device function, with true line numbers and columns.

Responsible for finding and parsing the text; knows nothing of the language. Invariant: every AST
node's `lineno` and `col_offset` are those of the file on disk.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType

from tkdebug.errors import CompileError, Frame
from tkdebug.process.named_files import STDIN, is_unnamed, source_lines, unnamed_lines


@dataclass(frozen=True, eq=False)
class KernelSource:
    """The definition of a kernel: its place and its text.

    Attributes:
        file: path as the code object names it.
        first_line: 1-based line of the first decorator, or of `def`.
        text: the dedented source, decorators included.
        definition: the function's AST; never modified.
        lines: the file's lines `first_line`…, as they are in the file.
    """

    name: str
    file: str
    first_line: int
    text: str
    definition: ast.FunctionDef
    lines: tuple[str, ...]
    _returning: dict[int, bool] = field(default_factory=dict)

    @staticmethod
    def of(fn: FunctionType) -> KernelSource:
        """The source of a Python function.

        Raises:
            CompileError: the source cannot be found, or is no plain `def`.
        """
        return _source_of(_SameCode(fn))

    def line(self, number: int) -> str | None:
        """The text of file line `number`, or None if it is outside of the function."""
        index = number - self.first_line
        return self.lines[index] if 0 <= index < len(self.lines) else None

    def column(self, node: ast.AST) -> int:
        """1-based column of `node` in characters (the AST counts UTF-8 bytes)."""
        offset: int = getattr(node, "col_offset", 0)
        if self.text.isascii():
            return offset + 1
        text = self.line(getattr(node, "lineno", 0))
        if text is None or text.isascii():
            return offset + 1
        return len(text.encode()[:offset].decode(errors="ignore")) + 1

    def with_lines(self, lines: Sequence[str]) -> KernelSource:
        """Return the source with other lines in the place of its own.

        Raises:
            SyntaxError: the lines do not parse.
        """
        text = "".join(f"{line}\n" for line in lines)
        definition = _parse(text, self.first_line, self.name)
        if definition is None:
            raise SyntaxError(f"no `def {self.name}`")
        return KernelSource(
            self.name, self.file, self.first_line, textwrap.dedent(text), definition, tuple(lines)
        )

    def contains_return(self, statements: Iterable[ast.stmt]) -> bool:
        """Whether `statements` contain a `return`, at any depth."""
        return any(self._statement_returns(statement) for statement in statements)

    def _statement_returns(self, statement: ast.stmt) -> bool:
        key = id(statement)
        if key not in self._returning:
            self._returning[key] = any(isinstance(n, ast.Return) for n in ast.walk(statement))
        return self._returning[key]


class _SameCode:
    """One cache key for all functions that share a code object, as closures made repeatedly do."""

    __slots__ = ("code", "fn")

    def __init__(self, fn: FunctionType) -> None:
        self.fn = fn
        self.code = fn.__code__

    def __eq__(self, other: object) -> bool:
        # Not `==` of the codes, which ignores comments and the file.
        return isinstance(other, _SameCode) and other.code is self.code

    def __hash__(self) -> int:
        return id(self.code)


# Few: an AST is hundreds of objects, and each full garbage collection walks those that are kept.
@lru_cache(maxsize=64)
def _source_of(key: _SameCode) -> KernelSource:
    fn, code = key.fn, key.code
    file, first_line = code.co_filename, code.co_firstlineno
    if is_unnamed(file):
        file_lines = unnamed_lines(code)
    else:
        file_lines = source_lines(file, fn.__globals__)
    if not file_lines or first_line > len(file_lines):
        raise CompileError(
            f"kernel source not available for `{fn.__name__}` (defined in a REPL or by exec?), "
            f"looked for line {first_line} of {file}; define the kernel in a .py file and import it"
            + ("; `tkdebug run -` reads a script from stdin, too" if file == STDIN else "")
        )
    try:
        lines, definition = _read(file_lines, first_line, fn.__name__)
    except SyntaxError as error:
        raise _changed(fn, f"does not parse ({error.msg})") from None
    if definition is None:
        raise _changed(fn, f"does not hold `def {fn.__name__}`")
    stripped = tuple(line.rstrip("\r\n") for line in lines)
    text = textwrap.dedent("".join(lines))
    return KernelSource(fn.__name__, file, first_line, text, definition, stripped)


def _changed(fn: FunctionType, what: str) -> CompileError:
    code = fn.__code__
    return CompileError(
        f"kernel source not available: the text here {what}; "
        "was the file edited after it was imported, or is the kernel a lambda? "
        "Restart the script, and define kernels with `def`",
        frames=(Frame(code.co_filename, code.co_firstlineno, fn.__name__),),
        kernel=fn.__name__,
    )


def _read(
    file_lines: list[str], first_line: int, name: str
) -> tuple[list[str], ast.FunctionDef | None]:
    """The function's lines and its AST, which is None if they are no `def` of that name."""
    lines = _indented_block(file_lines, first_line)
    try:
        return lines, _parse("".join(lines), first_line, name)
    except SyntaxError:
        # Cut short by a string or brackets whose lines stand further left than `def`.
        lines = inspect.getblock(file_lines[first_line - 1 :])
        return lines, _parse("".join(lines), first_line, name)


def _indented_block(file_lines: list[str], first_line: int) -> list[str]:
    """The function's lines from `first_line`, found by indentation.

    This is faster than `inspect.getblock`, which reads all tokens. If the end that it finds is
    inside a string or brackets, the lines do not parse.
    """
    first = file_lines[first_line - 1]
    indent = first[: len(first) - len(first.lstrip())]
    inside, end = False, first_line
    for number in range(first_line, len(file_lines) + 1):
        line = file_lines[number - 1]
        stripped = line.strip()
        if not stripped or stripped[0] == "#":
            continue
        if not (line.startswith(indent) and line[len(indent)] in " \t"):
            if inside and stripped[0] not in ")]}":
                break
            inside = inside or stripped.startswith("def ")
        end = number
    return file_lines[first_line - 1 : end]


# A script that generates its kernels generates the same text again and again.
@lru_cache(maxsize=64)
def _parse(text: str, first_line: int, name: str) -> ast.FunctionDef | None:
    indented = text[:1] in (" ", "\t")
    # An enclosing `if` makes an indented function parse where it stands, so columns stay true
    # and multi-line strings keep their text; dedenting would change both. Empty lines before it
    # give the file's line numbers.
    before = "\n" * (first_line - 1 - indented)
    body = ast.parse(before + ("if 1:\n" if indented else "") + text).body
    if indented and body and isinstance(body[0], ast.If):
        body = body[0].body
    definition = body[0] if body else None
    if not isinstance(definition, ast.FunctionDef) or definition.name != name:
        return None
    if indented and first_line == 1:
        ast.increment_lineno(definition, -1)
    return definition
