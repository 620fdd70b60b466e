"""The constants of Tile IR and GPU IR as Python numbers, and the infinities among them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isinf

from tkdebug.compiler.ir.core import Module, Operation, Value

_CONSTANT = "arith.constant"


def constant_value(value: Value) -> int | float | bool | None:
    """The number that `value` is in every element, None if it is no constant."""
    op = value.owner
    if isinstance(op, Operation) and op.name == _CONSTANT:
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


def written_infs(module: Module) -> Collection[float]:
    """The infinities among the constants of a module, cached with the module."""
    found = module.derived.get(written_infs)
    if found is None:
        values = (constant_value(op.result) for op in module.walk() if op.name == _CONSTANT)
        found = frozenset(value for value in values if isinstance(value, float) and isinf(value))
        module.derived[written_infs] = found
    assert isinstance(found, frozenset)
    return found
