"""Elements of registers as the words of an access to memory and back, and modifiers of accesses.

PTX ISA, "ld" and "st": `.L1::evict_last` and the like set the priority in L1. The priority in L2 is
a policy of `createpolicy`, an operand after the address, which `.L2::cache_hint` announces (sm_80).
A cache operator excludes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, ZEROS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Modifiers, Registers, Vector
from tkdebug.compiler.targets.target import L2_POLICIES

# Width of a register -> LLVM's constraint letter, and the register's own width.
CONSTRAINTS = {8: ("h", 16), 16: ("h", 16), 32: ("r", 32), 64: ("l", 64)}
_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class Words:
    """The partition of elements into the words of one instruction.

    Attributes:
        count: words of the instruction.
        bits: the bits of a word.
        per_word: elements of a word.
    """

    count: int
    bits: int
    per_word: int

    @staticmethod
    def of(element_bits: int, elements: int) -> Words:
        """The words of an instruction that moves `elements` of so many bits."""
        total = element_bits * elements
        bits = max(element_bits, min(_WORD_BITS, total))
        return Words(total // bits, bits, bits // element_bits)

    @property
    def vector(self) -> Vector:
        """The words as instructions of checked accesses take them."""
        return Vector(self.suffix, self.bits, self.count, self.bits // self.per_word)

    def groups(self, words: Registers) -> Iterator[Registers]:
        """The words of a tile, grouped by instruction."""
        return (words[i : i + self.count] for i in range(0, len(words), self.count))

    @property
    def suffix(self) -> str:
        """The suffix of the instruction: `.v4.b32`."""
        return f"{f'.v{self.count}' if self.count > 1 else ''}.b{self.bits}"


def pack(ctx: Lowering, values: Sequence[LLVMValue], words: Words) -> Registers:
    """Elements as words of `words.bits`."""
    emit = ctx.emit
    packed = []
    for first in range(0, len(values), words.per_word):
        part = [_to_memory(ctx, value) for value in values[first : first + words.per_word]]
        if len(part) == 1:
            packed.append(part[0])
            continue
        known = [value.constant for value in part]
        if all(number is not None for number in known):
            width = int(part[0].type[1:])
            total = sum(((n or 0) & ((1 << width) - 1)) << width * i for i, n in enumerate(known))
            packed.append(integer(f"i{words.bits}", total))
            continue
        packed.append(emit.cast("bitcast", emit.vector(part), f"i{words.bits}"))
    return packed


def _to_memory(ctx: Lowering, value: LLVMValue) -> LLVMValue:
    if value.type == "i1":
        return ctx.emit.cast("zext", value, "i8")
    if value.text == ZEROS.get(value.type):
        return integer(f"i{TYPE_BITS[value.type]}", 0)
    return ctx.to_bits(value)


def unpack(
    ctx: Lowering, words: Sequence[LLVMValue], shape: Words, type_: str, element_bits: int
) -> list[LLVMValue]:
    """The elements that loaded words hold."""
    emit = ctx.emit
    elements: list[LLVMValue] = []
    for word in words:
        if shape.per_word == 1:
            elements.append(_from_memory(ctx, word, type_))
            continue
        piece = f"i{element_bits}" if type_ in ("i1", "i8", "i16") else type_
        vector = emit.cast("bitcast", word, f"<{shape.per_word} x {piece}>")
        elements += [
            _from_memory(ctx, value, type_)
            for value in emit.elements(vector, shape.per_word, piece)
        ]
    return elements


def _from_memory(ctx: Lowering, value: LLVMValue, type_: str) -> LLVMValue:
    if type_ == "i1":
        return ctx.emit.icmp("ne", value, 0)
    return value if value.type == type_ else ctx.from_bits(value, type_)


_PRIORITIES = frozenset(("evict_first", "evict_last"))


def modifiers_of(ctx: Lowering, op: Operation) -> Modifiers:
    """The modifiers of a tt.load or tt.store."""
    access = PointerAccess(op)
    if tt.Load.matches(op) and tt.Load(op).volatile:
        return Modifiers(".volatile.global")
    if access.cache or access.eviction not in _PRIORITIES:
        return Modifiers(f".global{access.cache}")
    text = f".global.L1::{access.eviction}"
    if not ctx.target.has(L2_POLICIES):
        return Modifiers(text)
    return Modifiers(f"{text}.L2::cache_hint", ctx.l2_policy(access.eviction))
