"""`tl.random`: the random functions of the op table."""

from __future__ import annotations

from tkdebug.compiler.ops.random import DEFAULT_ROUNDS, LANGUAGE
from tkdebug.compiler.ops.spec import Builtin
from tkdebug.compiler.tensor import constexpr

N_ROUNDS_DEFAULT = constexpr(DEFAULT_ROUNDS)


def __getattr__(name: str) -> Builtin:
    if name in LANGUAGE:
        return LANGUAGE[name]
    raise AttributeError(f"tl.random has no {name!r}")


def __dir__() -> list[str]:
    return sorted([*LANGUAGE, "N_ROUNDS_DEFAULT"])
