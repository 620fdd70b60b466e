"""Types that lowerings share: LLVM types, registers, how an access is written, and their error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import PointerType, ScalarType, Type, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.errors import CompileError


class LoweringError(CompileError):
    """An op that native mode does not support, or not in this form."""

    @classmethod
    def at(cls, op: Operation, message: str) -> LoweringError:
        """The error at the op's place in the source."""
        return cls(message, frames=op.location.frames)


# A thread's part of a value: one entry for each register of its layout, one for a scalar.
Registers = list[LLVMValue]
Lower = Callable[..., Sequence[Registers]]
# The number of elements of each group of a checked access that are masked on and lie inside, from
# its first on; i32. A vector lies at a multiple of its size, so only one that crosses the tensor's
# end has some of both.
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


@dataclass(frozen=True, slots=True)
class Modifiers:
    """The cache modifiers of an instruction.

    Attributes:
        text: after `ld` or `st`: `.global.L1::evict_last.L2::cache_hint`.
        policy: the policy of L2, i64; None if the instruction has none.
    """

    text: str = ".global"
    policy: LLVMValue | None = None

    def last_operand(self, name_of: Callable[[LLVMValue], str]) -> str:
        """The policy as the instruction's last operand, `, $3`; "" if it has none."""
        return "" if self.policy is None else f", {name_of(self.policy)}"


@dataclass(frozen=True, slots=True)
class Vector:
    """The words of one instruction.

    Attributes:
        suffix: the instruction's: `.v4.b32`.
        bits: the bits of a word.
        words: the number of words.
        element_bits: the size of an element; a word has one or several.
    """

    suffix: str
    bits: int
    words: int
    element_bits: int

    @property
    def register(self) -> str:
        """LLVM type of a word's register."""
        return f"i{max(16, self.bits)}"

    @property
    def elements(self) -> int:
        """The number of elements of the vector."""
        return self.words * self.bits // self.element_bits

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return self.words * self.bits // 8

    @property
    def element_bytes(self) -> int:
        """The bytes of an element."""
        return self.element_bits // 8

    @property
    def is_packed(self) -> bool:
        """Whether a word has several elements."""
        return self.bits > self.element_bits
