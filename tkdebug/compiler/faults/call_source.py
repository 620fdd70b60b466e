"""The source text of the call that an op came from: its name, its mask, what a variable was set to.

Reads the kernel's source lines; says None when they cannot be had.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.process.named_files import source_line

# How far around an op's line its statement is looked for.
_STATEMENT_LINES = 12
# Where a mask stands that is passed without its name, in calls by their last name.
_MASK_POSITIONS = {"load": 1, "store": 2}
_ATOMIC_MASK_POSITION = 2
_BROADCASTS = names_of(tt.Broadcast, tt.ExpandDims, tt.Splat)


def call_name(op: Operation) -> str:
    """What the source calls `op`: "tl.atomic_add" rather than "tt.atomic_rmw"."""
    found = _call(op)
    if found is not None:
        return ast.unparse(found[0].func)
    return op.name.replace("tt.", "tl.")


def mask_argument(op: Operation) -> str | None:
    """The mask that the call of `op` is given, as its text; None when it is given none."""
    found = _call(op)
    if found is None:
        return None
    call, text = found
    for keyword in call.keywords:
        if keyword.arg == "mask":
            return ast.get_source_segment(text, keyword.value)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    place = _ATOMIC_MASK_POSITION if name.startswith("atomic_") else _MASK_POSITIONS.get(name)
    if place is None or name == "atomic_cas" or len(call.args) <= place:
        return None
    return ast.get_source_segment(text, call.args[place])


def mask_text(op: Operation, mask: Value) -> str | None:
    """The text of a mask: of the argument, or of what was assigned to its variable."""
    found = mask_argument(op)
    if found is not None and not found.isidentifier():
        return found
    defined = traced(mask, _BROADCASTS).defining_op
    if defined is not None:
        place = defined.location.primary
        for statement, text, _, _ in _statements(place.file, place.line):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                if found is None or statement.targets[0].id == found:
                    return ast.get_source_segment(text, statement.value)
    return found or mask.name


def _call(op: Operation) -> tuple[ast.Call, str] | None:
    """The call at an op's line and column, with the text it was parsed from."""
    place = op.location.primary
    for statement, text, first, indent in _statements(place.file, place.line):
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or first + node.lineno - 1 != place.line:
                continue
            # The outer one of `tl.load(…).to(…)` begins at the same place.
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
                continue
            row = text.splitlines()[node.lineno - 1].encode()
            if len(row[: node.col_offset].decode()) + indent + 1 == place.column:
                return node, text
    return None


def _statements(file: str, line: int) -> Iterator[tuple[ast.stmt, str, int, int]]:
    """The statement that covers a line: with its text, first line and indent; none or one."""
    for first in range(line, max(0, line - _STATEMENT_LINES), -1):
        text = ""
        for last in range(first, first + _STATEMENT_LINES):
            text += source_line(file, last)
            if last < line:
                continue
            dedented = textwrap.dedent(text)
            try:
                parsed = ast.parse(dedented)
            except SyntaxError:
                continue
            if parsed.body:
                begin = source_line(file, first)
                yield parsed.body[-1], dedented, first, len(begin) - len(begin.lstrip())
                return
