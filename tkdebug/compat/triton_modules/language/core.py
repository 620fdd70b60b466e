"""`triton.language.core`: upstream's home of some of the language; here the whole of it."""

from __future__ import annotations

from typing import Any

from tkdebug import language as _language
from tkdebug.compat.finder import missing_attribute
from tkdebug.compiler.aggregates import aggregate
from tkdebug.compiler.dtypes import dtype as _dtype
from tkdebug.compiler.tensor import constexpr as _constexpr
from tkdebug.runtime.jit.constexpr_function import constexpr_function as _constexpr_function

__all__ = list(_language.__all__)
_missing = missing_attribute(__name__)
_aggregate = aggregate
# Kernels that were copied from upstream's sort have it as a default.
CONSTEXPR_0 = _constexpr(0)


@_constexpr_function
def get_int_dtype(bitwidth: int, signed: bool) -> _dtype:
    """The integer type of that width."""
    sizes = (1, 8, 16, 32, 64)
    if bitwidth not in sizes:
        raise ValueError(f"no integer type has {bitwidth} bits; {sizes} are the widths")
    return _dtype(f"int{bitwidth}" if signed or bitwidth == 1 else f"uint{bitwidth}")


def __getattr__(name: str) -> Any:
    value = getattr(_language.core, name, None)
    if value is None:
        value = getattr(_language, name, None)
    return _missing(name) if value is None else value


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_language)})
