"""How many registers of a thread a value takes."""

from __future__ import annotations

from tkdebug.compiler.ir.types import ScalarType, TensorType, Type, element_of
from tkdebug.compiler.layouts import REGISTER

_BITS = 32


def register_words(type_: Type) -> int:
    """The 32-bit registers that a thread has of a tile of numbers; 0 for all else."""
    if not isinstance(type_, TensorType) or type_.encoding is None:
        return 0
    element = element_of(type_)
    if not isinstance(element, ScalarType):
        return 0
    return type_.encoding.in_size(REGISTER) * element.bits // _BITS
