"""LLVM types of IR types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tkdebug.compiler.ir.types import PointerType, ScalarType, Type, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue

# What a thread holds of a value: one entry for each register of its layout, one for a scalar.
Registers = list[LLVMValue]
Lower = Callable[..., Sequence[Registers]]
# How many elements of each group of a checked access are masked on and lie inside, from its first
# on; i32. A vector lies at a multiple of its size, so only one that crosses the tensor's end has
# some of both.
Good = Sequence[LLVMValue]

GLOBAL_POINTER = "ptr addrspace(1)"
SHARED_POINTER = "ptr addrspace(3)"
_FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


def llvm_scalar(type_: ScalarType | PointerType) -> str:
    """The LLVM type of one element; the fp8 types are plain bytes."""
    if isinstance(type_, PointerType):
        return GLOBAL_POINTER
    if type_.is_integer:
        return type_.name
    return _FLOATS.get(type_.name, "i8")


def llvm_type(type_: Type) -> str:
    """The LLVM type of a scalar, or of an element of a tensor."""
    return llvm_scalar(element_of(type_))


def memory_bits(type_: ScalarType | PointerType) -> int:
    """Bits that an element takes in memory; an i1 takes a byte."""
    return max(8, type_.bits)
