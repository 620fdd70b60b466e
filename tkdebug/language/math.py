"""`tl.math`: the elementwise mathematics of the op table."""

from __future__ import annotations

from tkdebug.compiler.ops.math import LANGUAGE, MATH_MODULE
from tkdebug.compiler.ops.spec import Builtin


def __getattr__(name: str) -> Builtin:
    if name in MATH_MODULE:
        return LANGUAGE[name]
    raise AttributeError(f"tl.math has no {name!r}")


def __dir__() -> list[str]:
    return sorted(MATH_MODULE)
