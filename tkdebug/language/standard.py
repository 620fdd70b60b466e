"""`tl.standard`: upstream's home of the functions made of others; here the whole language."""

from __future__ import annotations

from typing import Any

from tkdebug.compiler.tensor import unwrap


def _log2(i: Any) -> int:
    """The exponent of a constant power of 2."""
    return int(unwrap(i)).bit_length() - 1


def _is_power_of_two(i: Any) -> bool:
    """Whether a constant is a power of 2."""
    value = int(unwrap(i))
    return value > 0 and value & (value - 1) == 0


def __getattr__(name: str) -> Any:
    from tkdebug import language

    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(language, name)
