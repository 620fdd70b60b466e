"""Upstream's text form of types, as launch signatures write them: `i32`, `*kfp16`, `constexpr`."""

from __future__ import annotations

from typing import Any

from tkdebug.compiler.dtypes import LanguageType
from tkdebug.compiler.tensor import constexpr_type
from tkdebug.runtime.errors import ArgumentTypeError
from tkdebug.runtime.jit.parameters import type_named


def str_to_ty(name: str, c: Any = None) -> LanguageType | constexpr_type:
    """The type that `name` stands for; `c` is the value of a `constexpr`.

    Raises:
        ArgumentTypeError: no type has that name.
    """
    if name.startswith("constexpr"):
        return constexpr_type(c)
    named = type_named(name)
    if named is None:
        raise ArgumentTypeError(f"{name!r} names no type; expected one such as i32, fp16, *fp32")
    return named
