"""Integers that compare as the language orders numbers, and compare-and-swap on them.

A float's bits become an integer of the same order (negative ones have their lower bits flipped);
NaN counts as the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import ScalarType, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering import floats8
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Registers


@dataclass(frozen=True, slots=True)
class SortKeys:
    """How the elements of one op are compared.

    Attributes:
        element: their type.
        is_unsigned: whether integers are.
    """

    ctx: Lowering
    element: ScalarType
    is_unsigned: bool

    @staticmethod
    def of(ctx: Lowering, op: Operation) -> SortKeys:
        """The keys of a tt.sort, tt.topk or tt.bitonic_merge."""
        element = element_of(tt.Sorting(op).source.type)
        assert isinstance(element, ScalarType)
        is_unsigned = tt.Sorting(op).unsigned or element.bits == 1
        return SortKeys(ctx, element, is_unsigned)

    @property
    def _is_float8(self) -> bool:
        return self.element.is_float and self.element.bits == 8

    def comparable(self, values: Registers) -> Registers:
        """Values as numbers that the hardware compares: no fp8, no single bits."""
        if self._is_float8:
            return floats8.readable(self.ctx, self.element, values)
        if self.element.bits == 1:
            return [self.ctx.emit.cast("zext", value, "i8") for value in values]
        return values

    def restored(self, values: Registers) -> Registers:
        """The inverse of `comparable`."""
        if self._is_float8:
            return floats8.narrowed(self.ctx, values, self.element.name, False)
        if self.element.bits == 1:
            return [self.ctx.emit.cast("trunc", value, "i1") for value in values]
        return values

    def key(self, value: LLVMValue) -> LLVMValue:
        """A comparable value as an integer of the same order."""
        if not self.element.is_float:
            return value
        emit = self.ctx.emit
        width = TYPE_BITS[value.type]
        key = self._flipped(self.ctx.to_bits(value))
        largest = integer(key.type, (1 << (width - 1)) - 1)
        return emit.select(emit.fcmp("uno", value, value), largest, key)

    def value(self, key: LLVMValue, type_: str) -> LLVMValue:
        """The inverse of `key`; of NaN one of them."""
        return self.ctx.from_bits(self._flipped(key), type_) if self.element.is_float else key

    def _flipped(self, bits: LLVMValue) -> LLVMValue:
        emit = self.ctx.emit
        width = int(bits.type[1:])
        sign = emit.binary("ashr", bits, integer(bits.type, width - 1))
        return emit.xor(bits, emit.bit_and(sign, (1 << (width - 1)) - 1))

    def smaller(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """The smaller of two keys."""
        return self._extremum("min", a, b)

    def larger(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """The larger of two keys."""
        return self._extremum("max", a, b)

    def _extremum(self, name: str, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        letter = "u" if self.is_unsigned else "s"
        return self.ctx.emit.intrinsic(f"llvm.{letter}{name}.{a.type}", a, b)

    def is_greater(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """i1: a > b of comparable values, as the hardware compares them: false with NaN."""
        if a.type[0] != "i":
            return self.ctx.emit.fcmp("ogt", a, b)
        return self.ctx.emit.icmp("ugt" if self.is_unsigned else "sgt", a, b)
