"""`tl.extra.libdevice`: NVIDIA's device library, from the op table."""

from __future__ import annotations

from tkdebug.compiler.ops.spec import Builtin
from tkdebug.compiler.ops.table import NAMESPACES

_FUNCTIONS = NAMESPACES["tl.extra.libdevice"]


def __getattr__(name: str) -> Builtin:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    raise AttributeError(f"tl.extra.libdevice has no {name!r}")


def __dir__() -> list[str]:
    return sorted(_FUNCTIONS)
