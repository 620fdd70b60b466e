"""What ops of several dialects share, so that code may ask for any of them at once."""

from __future__ import annotations

from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.op_view import (
    POINTERS,
    TILES_OR_BUFFERS,
    VALUES,
    OptionalOperandDef,
    OpView,
    attribute_def,
    operand_def,
    optional_attribute_def,
    result_def,
)


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


class OneResult(OpView):
    """An op of exactly one result."""

    result = result_def()


class Cast(OneResult):
    """One operand, whose elements become those of another type."""

    source = operand_def(VALUES)


class PointerAccess(OpView):
    """An access to global memory through pointers."""

    pointer = operand_def(POINTERS)
    cache = attribute_def("cache", str, "")
    eviction = attribute_def("eviction", str, "")
    # Why an access through a descriptor is no bulk copy.
    by_pointers = optional_attribute_def("by_pointers", str)


class MaskedAccess(PointerAccess):
    """An access that touches memory only where its mask holds, if it has one."""

    mask: OptionalOperandDef


class DotLike(OneResult):
    """A matrix product a @ b + accumulator."""

    a = operand_def(TILES_OR_BUFFERS)
    b = operand_def(TILES_OR_BUFFERS)
    accumulator = operand_def(TILES_OR_BUFFERS)
    input_precision = optional_attribute_def("input_precision", str)
    max_num_imprecise_acc = optional_attribute_def("max_num_imprecise_acc", int)
    # What computes it: "fma", "mma" or "wgmma".
    unit = optional_attribute_def("unit", str)
    # Elements along k that a thread holds in one 32-bit register.
    k_width = optional_attribute_def("k_width", int)
    reads_shared = attribute_def("reads_shared", bool, False)

    @property
    def factors(self) -> tuple[Value, Value]:
        """What is multiplied."""
        return self.a, self.b
