"""Lines of source files: those that a breakpoint can be at, seen without running, and listings."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Collection
from functools import lru_cache

from tkdebug.errors import UsageError
from tkdebug.process.named_files import UnfitFileError, fresh_source, source_lines


def statement_lines(file: str) -> dict[int, str]:
    """The first lines of the statements in functions of a file, with the function's name.

    Raises:
        UsageError: the file cannot be read, or is no Python source.
    """
    try:
        text = fresh_source(file)
    except UnfitFileError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    if not text:
        raise UsageError(f"{file}: cannot be read, or is empty")
    return _lines_of(file, text)


@lru_cache(maxsize=64)
def _lines_of(file: str, text: str) -> dict[int, str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{file}: is no Python source ({error})") from None
    found: dict[int, str] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node in ast.walk(statement):
                    if isinstance(node, ast.stmt) and not _is_nothing(node):
                        found[node.lineno] = function.name
    return found


def code_lines(file: str) -> frozenset[int]:
    """The first lines of all statements of a file, also of those in no function.

    Raises:
        UsageError: the file cannot be read, or is no Python source.
    """
    statement_lines(file)  # says what is wrong with it
    tree = ast.parse("".join(source_lines(file)))
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    return frozenset(
        node.lineno
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.ClassDef) or not _is_nothing(node)
    )


def kernel_lines(file: str) -> dict[int, str]:
    """All lines of the functions that a decorator makes kernels or device functions, by name.

    Raises:
        UsageError: the file cannot be read, or is no Python source.
    """
    found: dict[int, str] = {}
    for node in _kernels(file):
        first = node.body[0].lineno
        found.update(dict.fromkeys(range(first, (node.end_lineno or first) + 1), node.name))
    return found


def kernel_heads(file: str) -> frozenset[int]:
    """The lines of their decorators and signatures: Python runs them, and no kernel does.

    Raises:
        UsageError: the file cannot be read, or is no Python source.
    """
    return frozenset(
        line
        for node in _kernels(file)
        for line in range(node.decorator_list[0].lineno, node.body[0].lineno)
    )


def _kernels(file: str) -> list[ast.FunctionDef]:
    statement_lines(file)  # says what is wrong with it
    return [
        node
        for node in ast.walk(ast.parse("".join(source_lines(file))))
        if isinstance(node, ast.FunctionDef) and any(map(_makes_kernel, node.decorator_list))
    ]


def _makes_kernel(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] in ("jit", "autotune", "heuristics")


def _is_nothing(node: ast.stmt) -> bool:
    """Whether a statement counts as no code: a docstring, a bare annotation, a definition."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None):
            return True
        case ast.FunctionDef() | ast.ClassDef():
            return True
    return False


def nearest_code(file: str, line: int) -> str:
    """The end of a message that names the line with code nearest to a line; "" for none."""
    try:
        known = code_lines(file)
    except UsageError:
        return ""
    near = min(known, key=lambda each: (abs(each - line), each < line), default=None)
    return "" if near is None else f"; the nearest one with code is {near}"


def checked_line(file: str, line: int) -> int:
    """`line`, if a statement of a function begins there.

    Raises:
        UsageError: none does; the message offers the nearest line that does.
    """
    known = statement_lines(file)
    if line in known:
        return line
    count = len(source_lines(file))
    if line > count:
        raise UsageError(f"{file}:{line}: the last line is {count}")
    near = min(known, key=lambda each: (abs(each - line), each < line), default=None)
    offer = (
        "; no function has a line with code there"
        if near is None
        else (f"; the nearest one with code is {near}, in {known[near]}")
    )
    raise UsageError(f"{file}:{line}: no statement of a function begins at this line{offer}")


def loaded_files(file: str) -> list[str]:
    """The source files of loaded modules whose path ends with `file`."""
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    return sorted(each for each in files if is_path_end(file, each))


def is_path_end(end: str, path: str) -> bool:
    """Whether `path` ends with the parts of `end`."""
    parts = os.path.normpath(end).split(os.sep)
    return path.split(os.sep)[-len(parts) :] == parts


def function_line(file: str, name: str) -> int | None:
    """The first line of a function's body, or None if the file has no such function."""
    lines = [line for line, function in statement_lines(file).items() if function == name]
    return min(lines, default=None)


def listing(
    file: str, first: int, last: int, current: int, marked: Collection[int] = ()
) -> list[str]:
    """Lines with their numbers, `->` at the current one and `B` at those with breakpoints.

    Raises:
        UsageError: the file has no such lines.
    """
    lines = source_lines(file)
    if not 1 <= first <= len(lines):
        raise UsageError(f"{file}: has {len(lines)} lines" if lines else f"{file}: cannot be read")
    found = []
    for number in range(first, min(last, len(lines)) + 1):
        sign = "->" if number == current else ""
        has = "B" if number in marked else " "
        found.append(f"{number:4d} {has}{sign:2}\t{lines[number - 1].rstrip()}")
    return found


def function_around(file: str, line: int) -> tuple[int, int]:
    """First and last line of the innermost function around a line; the whole file for none."""
    lines = source_lines(file)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return 1, len(lines)
    found = (1, len(lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first <= line <= node.end_lineno and first >= found[0]:
                found = (first, node.end_lineno)
    return found
