"""The class of all ops, and classes that ops of several dialects share.

`Op` is the meaning that every op declares on its class, besides operands, results and attributes:
effects, type rule, verifier, how it folds, and the facts that passes, checks and advice ask for.
How an op runs is a rule of an executor: `interpreter/rules` and `targets/nvptx/lowering`.

With a shared class, code asks for any of its ops at once, as in `MaskedAccess.matches(op)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from enum import Flag, auto
from typing import Any, ClassVar, Literal

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
    OpView,
    attribute_def,
    operand_def,
    optional_attribute_def,
    result_def,
)
from tkdebug.errors import IRError

INPUT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


class Effects(Flag):
    """Effects of an op besides its results."""

    PURE = 0
    # Global memory; the first operand points to what is written.
    READ = auto()
    WRITE = auto()
    # Buffers in shared memory.
    READ_SHARED = auto()
    WRITE_SHARED = auto()
    # Ends its block (scf.yield, tt.return).
    TERMINATOR = auto()
    # Observable otherwise: prints, asserts, barriers.
    OTHER = auto()


class Op(OpView):
    """One op, or the base class of several.

    Attributes:
        effects: its effects besides its results; passes may erase, merge and move an op without
            any.
        terminators: the ops that end each of its regions, None if any op may or it has none.
        is_isolated: whether its regions use no value from outside, so that nothing is moved or
            merged across their border.
        has_effects_of_regions: whether it has the effects of the ops inside it, and no others.
        is_repeatable: whether its effects other than accesses are the same when it runs again;
            false for clocks, inline assembly and asynchronous ops.
        takes_any_layout: whether its tiles may have any layouts, since its lowering brings
            elements to the threads that need them.
        makes_nan: whether it may give NaN for operands that are not NaN.
        makes_inf: whether it may give an infinity for finite operands.
    """

    effects: ClassVar[Effects] = Effects.PURE
    terminators: ClassVar[tuple[type[Op], ...] | None] = None
    is_isolated: ClassVar[bool] = False
    has_effects_of_regions: ClassVar[bool] = False
    is_repeatable: ClassVar[bool] = False
    takes_any_layout: ClassVar[bool] = False
    makes_nan: ClassVar[bool] = True
    makes_inf: ClassVar[bool] = False

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """Return the result types, or None if the builder has to be given them."""
        declared = cls.declaration
        return None if declared.results or declared.variadic_results else ()

    def verify(self) -> None:
        """Raise IRError if the op breaks a rule that its declaration does not express."""

    def fold(self, numbers: Sequence[Any]) -> Any:
        """Return the constant result for constant operands, or None if there is none."""
        return None

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the class's docstring, which describes the op."""
        return inspect.cleandoc(cls.__doc__ or "").splitlines()[0]


# Expectations of verifiers on operands. They run when an op is emitted and after each pass that is
# verified, so they stay cheap.


def expect_one_type(op: Operation) -> None:
    """Check that all operands are of one type."""
    types = {value.type for value in op.operands}
    if len(types) > 1:
        raise IRError(f"{op.name}: operand types differ: {', '.join(map(str, types))}")


def expect_kind(op: Operation, type_: Type, kind: Kind) -> None:
    """Check that a type is of a kind."""
    if not kind.holds(type_):
        raise IRError(f"{op.name}: got {type_}, expected {kind.text}")


def expect_count(op: Operation, name: str, least: int = 0) -> None:
    """Check that an attribute is a number from `least` up."""
    count = op.attributes.get(name)
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise IRError(f"{op.name}: {name} is {count!r}, expected an int from {least} up")


def expect_same_tile(op: Operation, a: Type, b: Type) -> None:
    """Check that two types have the same shape and element type."""
    if (ir.shape_of(a), ir.element_of(a)) != (ir.shape_of(b), ir.element_of(b)):
        raise IRError(f"{op.name}: {a} and {b} differ in shape or element")


def expect_buffer(op: str, type_: Type, *, mutable: bool = False) -> ir.MemDescType:
    """Return the type of a shared-memory buffer, after a check that it is one (and `mutable`)."""
    if not isinstance(type_, ir.MemDescType):
        raise IRError(f"{op}: got {type_}, expected a shared-memory buffer")
    if mutable and not type_.mutable:
        raise IRError(f"{op}: got {type_}, expected a mutable buffer to write to")
    return type_


def accessed(op: Operation) -> Value:
    """The pointer, descriptor or buffer through which an op with effects on memory accesses it.

    It is the first operand of every such op.
    """
    return op.operands[0]


def stored(op: Operation) -> Value:
    """The tile or buffer that an op with one such operand writes to memory.

    It is the second operand of every such op.
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
    """Moves the elements of its operands elsewhere, whatever their values are."""

    makes_nan = False


class SameElements(Op):
    """Gives the elements of its operand unchanged: moved, in another layout, or with a hint."""


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
        width: the width of the result's elements compared with the operand's; None for any width.
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
    # The reason why an access through a descriptor is lowered to pointers, not to a bulk copy.
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
