"""The infinities that a kernel's source writes down."""

from __future__ import annotations

from collections.abc import Collection
from math import isinf

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.constants import constant_value


def written_infs(module: Module) -> Collection[float]:
    """The infinities that are constants of a kernel, or that an option of a load fills in."""
    found = module.derived.get(written_infs)
    if found is None:
        values = (constant_value(op.result) for op in module.walk() if arith.Constant.matches(op))
        found = frozenset(value for value in values if isinstance(value, float) and isinf(value))
        module.derived[written_infs] = found
    assert isinstance(found, frozenset)
    return found
