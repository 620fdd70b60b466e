"""Checks an operation against what its view class declares: counts, kinds of types, attributes."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.compiler.ir.attribute_text import attribute_text
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.op_view import Kind, OpView


def broken_declaration(op: Operation, view: type[OpView]) -> str | None:
    """What of `op` does not fit the declaration of its op, None where all does.

    Attributes that are not declared are let through: they mean nothing to the op.
    """
    declaration = view.declaration
    for attribute in declaration.attributes:
        if attribute.key not in op.attributes:
            if attribute.is_required:
                return f"attribute {attribute.key} is missing"
            continue
        value = op.attributes[attribute.key]
        if not attribute.holds(value):
            expected = " or ".join(map(_type_text, attribute.types))
            return f"attribute {attribute.key} is {attribute_text(value)}, expected {expected}"
    if not declaration.accepts_operands(op):
        return f"got {len(op.operands)} operands, expected {declaration.operand_count(op)}"
    least = len(declaration.results)
    if len(op.results) < least or (len(op.results) > least and not declaration.variadic_results):
        expected = f"at least {least}" if declaration.variadic_results else str(least)
        return f"got {len(op.results)} results, expected {expected}"
    for name, kind, given in _named(op, view):
        if not kind.holds(given.type):
            return f"{name}: got {given.type}, expected {kind.text}"
    return None


def _named(op: Operation, view: type[OpView]) -> Iterator[tuple[str, Kind, Value]]:
    """Every operand and result with its name and the kind that it must be of."""
    seen, declaration = view(op), view.declaration
    for place in (*declaration.operands, *declaration.optional, *declaration.results):
        value = getattr(seen, place.name)
        if value is not None:
            yield place.name, place.kind, value
    for group in (*declaration.variadic, *declaration.variadic_results):
        for index, value in enumerate(getattr(seen, group.name)):
            yield f"{group.name}[{index}]", group.kind, value


def _type_text(type_: object) -> str:
    return (
        type_.__name__ if isinstance(type_, type) and not hasattr(type_, "__args__") else str(type_)
    )
