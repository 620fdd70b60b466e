"""`tl.core`: upstream's home of most of the language; here the whole of it, and `to_tensor`."""

from __future__ import annotations

from typing import Any

from tkdebug.compiler.ops.table import NAMESPACES
from tkdebug.compiler.tensor import unwrap

_FUNCTIONS = NAMESPACES["tl.core"]
_unwrap_if_constexpr = unwrap


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    from tkdebug import language

    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(language, name)


def __dir__() -> list[str]:
    from tkdebug import language

    return sorted({*_FUNCTIONS, *language.__all__})
