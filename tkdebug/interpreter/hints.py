"""What to change in the source for an access that left its tensor.

Reads the kernel's source lines; never fails when they cannot be had.
"""

from __future__ import annotations

import ast
import linecache
import textwrap

from tkdebug.compiler.ir import Operation, Value
from tkdebug.interpreter.buffers import Buffer

# How far around an op's line its statement is looked for.
_STATEMENT_LINES = 12


def access_hint(op: Operation, buffer: Buffer, mask: Value | None, index: int) -> str:
    """The fix for access `op`, whose offset `index` is no element of `buffer`."""
    name = buffer.name or "the tensor"
    elements = f"`{name}` has {counted(buffer.hull_elems)}"
    if buffer.is_expanded:
        return (
            f"{elements} in memory for a shape of {list(buffer.shape)}: it was expanded (strides "
            "of 0), as gradients often are; pass it as .contiguous(), or use its strides"
        )
    if 0 <= index < buffer.hull_elems:
        strides = ", ".join(map(str, buffer.tensor.stride()))
        return (
            f"`{name}` has strides ({strides}): multiply its indices by them, "
            "or pass it as .contiguous()"
        )
    if op.name.startswith("tt.descriptor"):
        return f"the shape or the strides given to the tensor descriptor do not fit: {elements}"
    checked = op.attributes.get("boundary_check")
    if isinstance(checked, tuple):
        return _block_pointer_hint(op, checked, elements)
    if mask is None:
        call = _CALLS.get(op.name, op.name)
        if index < 0:
            return f"the offset is negative; check the index arithmetic before this {call}"
        return (
            f"this {call} has no mask: pass mask=offsets < n, with n at most "
            f"{buffer.hull_elems} for `{name}`"
        )
    source = _mask_source(op, mask)
    shown = f"mask is `{source}`" if source else "the mask allows it"
    if index < 0:
        return f"{shown}: it does not exclude negative offsets"
    return f"{shown} but {elements}"


def counted(elements: int) -> str:
    """A number of elements, in words."""
    return f"{elements} element{'s' * (elements != 1)}"


_CALLS = {"tt.load": "tl.load", "tt.store": "tl.store"}


def _block_pointer_hint(op: Operation, checked: tuple[object, ...], elements: str) -> str:
    shape = op.operands[0].type
    rank = len(getattr(shape, "shape", ()))
    missing = [axis for axis in range(rank) if axis not in checked]
    if missing:
        everything = ", ".join(str(axis) for axis in range(rank))
        comma = "," if rank == 1 else ""
        return (
            f"boundary_check leaves out {'axis' if len(missing) == 1 else 'axes'} "
            f"{', '.join(map(str, missing))}: pass boundary_check=({everything}{comma})"
        )
    return f"the shape or the strides given to make_block_ptr do not fit: {elements}"


def _mask_source(op: Operation, mask: Value) -> str | None:
    """The source text of a mask: of its keyword, or of what was assigned to its variable."""
    place = op.location.primary
    found = _keyword_mask(place.file, place.line)
    if found is not None and not found.isidentifier():
        return found
    defined = mask.defining_op
    while defined is not None and defined.name in ("tt.broadcast", "tt.expand_dims", "tt.splat"):
        defined = defined.operands[0].defining_op
    if defined is not None:
        place = defined.location.primary
        for statement, text in _statements(place.file, place.line):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                if found is None or statement.targets[0].id == found:
                    return ast.get_source_segment(text, statement.value)
    return found or mask.name


def _keyword_mask(file: str, line: int) -> str | None:
    """What follows `mask=` in the call on a line."""
    for statement, text in _statements(file, line):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == "mask":
                        return ast.get_source_segment(text, keyword.value)
    return None


def _statements(file: str, line: int) -> list[tuple[ast.stmt, str]]:
    """The statement that covers a line, with the text it was parsed from; [] when there is none."""
    for first in range(line, max(0, line - _STATEMENT_LINES), -1):
        text = ""
        for last in range(first, first + _STATEMENT_LINES):
            text += linecache.getline(file, last)
            if last < line:
                continue
            dedented = textwrap.dedent(text)
            try:
                parsed = ast.parse(dedented)
            except SyntaxError:
                continue
            if parsed.body:
                return [(parsed.body[-1], dedented)]
    return []
