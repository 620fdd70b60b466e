"""`tl.standard`: upstream's home of the functions made of others; here the whole language."""

from __future__ import annotations

import sys
from types import ModuleType
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


def _language() -> ModuleType:
    """The package, which imports this module first."""
    assert __package__ is not None
    return sys.modules[__package__]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_language(), name)
