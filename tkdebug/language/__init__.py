"""The kernel language: the module for `import triton.language as tl`.

Functions come by name from `tkdebug.compiler.ops.table.LANGUAGE`; this module adds
the types, the iterators and the markers. Invariant: no function of the language is listed here.
"""

from __future__ import annotations

import enum
from typing import Any

from tkdebug.compiler.dtypes import (
    MEMBERS,
    block_type,
    dtype,
    pointer_type,
    tensor_descriptor_type,
)
from tkdebug.compiler.ops.table import LANGUAGE
from tkdebug.compiler.tensor import constexpr, constexpr_type, tensor, tensor_descriptor
from tkdebug.language import core, extra, math, random, standard, target_info


class PropagateNan(enum.IntEnum):
    """Whether minimum and maximum give NaN when an operand is one."""

    NONE = 0
    ALL = 0xFFFF


class const:
    """Annotation of a pointer parameter whose memory may only be read."""


def must_use_result(x: Any, s: bool | str = True) -> Any:
    """Decorator of a jit function: a call whose result is dropped is a compile error.

    Args:
        x: the function, or words to add to the error.
        s: words to add to the error, or True for none.
    """
    if isinstance(x, str):
        return lambda function: must_use_result(function, x)
    x._must_use_result = s  # noqa: SLF001
    return x


tensor_descriptor_base = tensor_descriptor
# Tuples and slices of kernels are Python's own.
tuple = tuple
slice = slice
PropagateNAN = PropagateNan
TRITON_MAX_TENSOR_NUMEL = 1 << 20

__all__ = [
    *MEMBERS,
    *LANGUAGE,
    "PropagateNan",
    "block_type",
    "const",
    "constexpr",
    "constexpr_type",
    "core",
    "dtype",
    "extra",
    "math",
    "must_use_result",
    "pointer_type",
    "random",
    "slice",
    "standard",
    "target_info",
    "tensor",
    "tensor_descriptor",
    "tensor_descriptor_type",
    "tuple",
]


def __getattr__(name: str) -> Any:
    if name in LANGUAGE:
        return LANGUAGE[name]
    if name in MEMBERS:
        return MEMBERS[name]
    raise AttributeError(f"tkdebug's language has no {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
