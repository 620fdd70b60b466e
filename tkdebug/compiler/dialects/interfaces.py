"""Classes that ops of several dialects share, so that code may ask for any of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from tkdebug.compiler.dialects.op import Effects, Op, expect_kind, expect_one_type
from tkdebug.compiler.ir import Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute, Operation, Value
from tkdebug.compiler.ir.op_view import (
    FLOATS,
    POINTERS,
    TILES_OR_BUFFERS,
    VALUES,
    Kind,
    OperandDef,
    OptionalOperandDef,
    attribute_def,
    operand_def,
    optional_attribute_def,
    result_def,
)
from tkdebug.errors import IRError

INPUT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


def accessed(op: Operation) -> Value:
    """The pointer, descriptor or buffer through which an op with effects on memory accesses it.

    It comes first in all of them.
    """
    return op.operands[0]


def stored(op: Operation) -> Value:
    """The tile or buffer that an op with one such operand writes to memory.

    It comes second in all of them.
    """
    return op.operands[1]


class OneResult(Op):
    """An op of exactly one result."""

    result = result_def()


class LikeFirst(OneResult):
    """An op whose result is of its first operand's type."""

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The first operand's type."""
        return (operands[0],)


class Terminator(Op):
    """Ends its block."""

    takes_any_layout = True
    effects = Effects.TERMINATOR


# How elements go from operands to results


class SameLayout(Op):
    """The operands and results share one layout."""


class Elementwise(SameLayout):
    """Computes each element of its results from the operands' elements at the same place."""


class Moving(Op):
    """Puts the elements of its operands elsewhere, and looks at none of them."""

    makes_nan = False


class SameElements(Op):
    """Gives the elements of its operand: in another place or layout, or with something said."""


# Arithmetic


class FloatOp(Elementwise, LikeFirst):
    """Computes floats from floats of the same type.

    The interpreter may write the result into given memory, also into an operand's. It computes in
    the type of the tensors that it gets, which may be wider than the op's own.

    Attributes:
        torch: the function of torch that computes it, "" if a rule of the interpreter does.
    """

    torch: ClassVar[str] = ""

    def verify(self) -> None:
        """Check that all operands are floats of one type."""
        expect_one_type(self.op)
        expect_kind(self.op, self.op.operands[0].type, FLOATS)


class Cast(Elementwise, OneResult):
    """Converts the elements of its operand to another type.

    Attributes:
        takes: the kind of the operand.
        gives: the kind of the result.
        width: the width of the result's elements against the operand's, in words.
    """

    takes: ClassVar[Kind]
    gives: ClassVar[Kind]
    width: ClassVar[Literal["narrower", "wider", "of equal width"] | None] = None
    source = operand_def(VALUES)

    def verify(self) -> None:
        """Check the kinds, shapes and widths of operand and result.

        Raises:
            IRError: a kind, shape or width is wrong.
        """
        op, before, after = self.op, self.source.type, self.result.type
        expect_kind(op, before, self.takes)
        expect_kind(op, after, self.gives)
        if ir.shape_of(before) != ir.shape_of(after):
            raise IRError(f"{op.name}: shapes differ: {before} and {after}")
        source, target = ir.element_of(before).bits, ir.element_of(after).bits
        fits = {"narrower": target < source, "wider": target > source, None: True}
        if not fits.get(self.width, target == source):
            raise IRError(f"{op.name}: got {after} for {before}, expected it {self.width}")


# Memory


class MemoryAccess(Op):
    """An access to global memory.

    Attributes:
        access: the kind of access.
    """

    access: ClassVar[Literal["load", "store", "atomic"]]


class PointerAccess(MemoryAccess):
    """An access to global memory through pointers."""

    pointer = operand_def(POINTERS)
    cache = attribute_def("cache", str, "")
    eviction = attribute_def("eviction", str, "")
    # Why an access through a descriptor is no bulk copy.
    by_pointers = optional_attribute_def("by_pointers", str)


class MaskedAccess(PointerAccess):
    """An access that touches memory only where its mask holds, if it has one."""

    mask: OptionalOperandDef


class Writing(MemoryAccess):
    """Stores a tile to global memory, or combines it with the memory's value."""

    value: OperandDef


# Products


class DotLike(OneResult):
    """A matrix product a @ b + accumulator."""

    a = operand_def(TILES_OR_BUFFERS)
    b = operand_def(TILES_OR_BUFFERS)
    accumulator = operand_def(TILES_OR_BUFFERS)
    input_precision = optional_attribute_def("input_precision", str)
    max_num_imprecise_acc = optional_attribute_def("max_num_imprecise_acc", int)
    # The unit that computes it: "fma", "mma" or "wgmma".
    unit = optional_attribute_def("unit", str)
    # Elements along k that a thread holds in one 32-bit register.
    k_width = optional_attribute_def("k_width", int)
    reads_shared = attribute_def("reads_shared", bool, False)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The accumulator's type."""
        return (operands[2],)

    @property
    def factors(self) -> tuple[Value, Value]:
        """The two factors of the product."""
        return self.a, self.b


class PlainDot(DotLike):
    """A matrix product of elements as they are, without scales."""

    def verify(self) -> None:
        """Check that the shapes fit."""
        a, b, acc = (ir.shape_of(value.type) for value in self.op.operands)
        if a[-1] != b[-2] or acc[-2:] != (a[-2], b[-1]) or a[:-2] != b[:-2] or acc[:-2] != a[:-2]:
            raise IRError(f"{self.op.name}: shapes {a}, {b} and {acc} do not fit")


# Control


class StatementRegions(Op):
    """Has regions that are statements of a kernel, and run whenever control reaches them."""

    is_repeatable = True


class ElementFunction(Op):
    """Applies its region, a function of single elements, to tiles."""

    is_isolated = True


class ProgramBarrier(Op):
    """All threads of the program wait for each other."""

    effects = Effects.OTHER
    is_repeatable = True
