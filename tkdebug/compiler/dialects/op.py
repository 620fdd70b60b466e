"""The meaning that every op declares on its class, besides operands, results and attributes.

An op's class has its effects, its type rule, its verifier, how it folds, and the facts that passes,
checks and advice ask for. Facts that ops of several dialects share are classes of `interfaces`. How
an op runs is a rule of an executor: `interpreter/rules` and `targets/nvptx/lowering`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from enum import Flag, auto
from typing import Any, ClassVar

from tkdebug.compiler.ir import Operation, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.op_view import Kind, OpView
from tkdebug.errors import IRError


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
        takes_any_layout: whether its tiles may lie anyhow, since its lowering brings elements to
            the threads that need them.
        makes_nan: whether it may give NaN of operands that are numbers.
        makes_inf: whether it may give an infinity of finite operands.
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
        """Raise IRError if the op breaks rules that its declaration does not have."""

    def fold(self, numbers: Sequence[Any]) -> Any:
        """Return the constant result for constant operands, or None if there is none."""
        return None

    @classmethod
    def summary(cls) -> str:
        """One line on its result."""
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
    """Two types have the same shape and elements."""
    if (ir.shape_of(a), ir.element_of(a)) != (ir.shape_of(b), ir.element_of(b)):
        raise IRError(f"{op.name}: {a} and {b} differ in shape or element")


def expect_buffer(op: str, type_: Type, *, mutable: bool = False) -> ir.MemDescType:
    """Check that a type is a buffer in shared memory, a writable one if it must be `mutable`."""
    if not isinstance(type_, ir.MemDescType):
        raise IRError(f"{op}: got {type_}, expected a shared-memory buffer")
    if mutable and not type_.mutable:
        raise IRError(f"{op}: got {type_}, expected a mutable buffer to write to")
    return type_
