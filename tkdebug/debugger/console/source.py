"""Source lines around a stop."""

from __future__ import annotations

import ast
from collections.abc import Collection

from tkdebug.errors import UsageError
from tkdebug.process.named_files import source_lines


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
