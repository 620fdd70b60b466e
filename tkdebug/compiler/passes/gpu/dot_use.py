"""Whether a value ends up as an operand of a dot."""

from __future__ import annotations

from tkdebug.compiler.ir import Value


def feeds_dot(value: Value) -> bool:
    """Whether a dot multiplies `value`, or something computed from it in the same block."""
    return _feeds(value, set())


def _feeds(value: Value, seen: set[Value]) -> bool:
    if value in seen:
        return False
    seen.add(value)
    for user in value.uses:
        if user.name == "tt.dot":
            if value in user.operands[:2]:
                return True
        elif not user.regions and any(_feeds(result, seen) for result in user.results):
            return True
    return False
