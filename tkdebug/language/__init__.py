"""The kernel language: what `import triton.language as tl` gives.

Functions come by name from `tkdebug.compiler.ops.table.LANGUAGE`; this module adds
the types, the iterators and the markers. Invariant: no function of the language is listed here.
"""

from __future__ import annotations

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
from tkdebug.language.markers import PropagateNan, const, must_use_result

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
