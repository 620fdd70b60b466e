"""`tl.extra.cuda`: what only NVIDIA GPUs have, from the op table."""

from __future__ import annotations

from tkdebug.compiler.ops.spec import Builtin
from tkdebug.compiler.ops.table import NAMESPACES
from tkdebug.language.extra import libdevice

_FUNCTIONS = NAMESPACES["tl.extra.cuda"]
__all__ = ["libdevice"]


def __getattr__(name: str) -> Builtin:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    raise AttributeError(f"tl.extra.cuda has no {name!r}")


def __dir__() -> list[str]:
    return sorted([*_FUNCTIONS, "libdevice"])
