"""The constants of Tile IR and GPU IR as Python numbers."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.ir.core import Operation, Value


def constant_value(value: Value) -> int | float | bool | None:
    """The number that `value` is in every element, None if it is no constant."""
    op = value.owner
    if isinstance(op, Operation) and op.name == "arith.constant":
        number = op.attributes.get("value")
        return number if isinstance(number, bool | int | float) else None
    return None


def constant_values(values: Sequence[Value]) -> list[int | float | bool] | None:
    """The numbers of all `values`, None unless each is a constant."""
    numbers = []
    for value in values:
        number = constant_value(value)
        if number is None:
            return None
        numbers.append(number)
    return numbers
