"""`tl.standard`: upstream's home of the functions made of others; here the whole language."""

from __future__ import annotations

from typing import Any

from tkdebug.runtime.jit.constexpr_function import constexpr_function

# Kernels that sort in a way of their own import these two.


@constexpr_function
def _log2(i: int) -> int:
    """The exponent of a constant power of 2."""
    return int(i).bit_length() - 1


@constexpr_function
def _is_power_of_two(i: int) -> bool:
    """Whether a constant is a power of 2."""
    return i > 0 and i & (i - 1) == 0


def __getattr__(name: str) -> Any:
    from tkdebug import language

    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(language, name)
