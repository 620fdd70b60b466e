"""`tl.core`: upstream's home of most of the language; here the whole of it, and `to_tensor`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tkdebug.compiler.ops.table import NAMESPACES
from tkdebug.compiler.tensor import unwrap

_FUNCTIONS = NAMESPACES["tl.core"]
_unwrap_if_constexpr = unwrap


def _language() -> ModuleType:
    """The package, which imports this module first."""
    assert __package__ is not None
    return sys.modules[__package__]


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_language(), name)


def __dir__() -> list[str]:
    return sorted({*_FUNCTIONS, *_language().__all__})
