"""Whether a value ends up as an operand of a dot."""

from __future__ import annotations

from tkdebug.compiler.ir import Value


def feeds_dot(value: Value) -> bool:
    """Whether a dot multiplies `value`, or something computed from it in the same block."""
    # Not recursive: unrolled loops make chains of thousands of ops.
    seen, pending = {value}, [value]
    while pending:
        current = pending.pop()
        for user in current.uses:
            if user.name == "tt.dot":
                if current in user.operands[:2]:
                    return True
            elif not user.regions:
                pending += (result for result in user.results if result not in seen)
                seen.update(user.results)
    return False
