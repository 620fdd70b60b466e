"""Global memory: pointers, tensor descriptors, atomics."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import MaskedAccess, OneResult, PointerAccess
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.ir.op_view import (
    CONDITIONS,
    DESCRIPTORS,
    INTEGER,
    INTEGERS,
    NUMBERS,
    POINTER,
    POINTERS,
    TILES,
    VALUES,
    OpView,
    VariadicOperandsDef,
    attribute_def,
    operand_def,
    optional_attribute_def,
    optional_operand_def,
    variadic_operands_def,
)


class AddPtr(OneResult):
    """A pointer moved by a number of elements."""

    name = "tt.addptr"
    pointer = operand_def(POINTERS)
    offset = operand_def(INTEGERS)


class Load(MaskedAccess, OneResult):
    """Reads memory where the mask holds; `other` (or zero) elsewhere."""

    name = "tt.load"
    mask = optional_operand_def(CONDITIONS)
    other = optional_operand_def(VALUES)
    volatile = attribute_def("volatile", bool, False)
    boundary_check = optional_attribute_def("boundary_check", tuple[int, ...])


class Store(MaskedAccess):
    """Writes memory where the mask holds."""

    name = "tt.store"
    value = operand_def(VALUES)
    mask = optional_operand_def(CONDITIONS)
    boundary_check = optional_attribute_def("boundary_check", tuple[int, ...])


# Of a descriptor's base, and of its strides but the last in bytes, as Triton's reference of
# make_tensor_descriptor asks: tensor maps have no others (CUDA driver API, cuTensorMapEncodeTiled).
DESCRIPTOR_ALIGNMENT_BYTES = 16


class MakeTensorDescriptor(OneResult):
    """A descriptor from base pointer, rank shape values and rank strides."""

    name = "tt.make_tensor_descriptor"
    base = operand_def(POINTER)
    shape = variadic_operands_def(INTEGER)
    strides = variadic_operands_def(INTEGER)
    # "nan" or "zero": what is read outside of the tensor.
    padding = attribute_def("padding", str, "zero")
    by_launch = attribute_def("by_launch", bool, False)
    by_kernel = attribute_def("by_kernel", bool, False)
    non_negative = attribute_def("non_negative", bool, False)


class DescriptorAccess(OpView):
    """An access to memory through a tensor descriptor."""

    descriptor = operand_def(DESCRIPTORS)
    # Why it is no bulk copy.
    by_pointers = optional_attribute_def("by_pointers", str)


class DescriptorBlockAccess(DescriptorAccess):
    """An access to the block of a tensor at some offsets."""

    offsets: VariadicOperandsDef


class DescriptorLoad(DescriptorBlockAccess, OneResult):
    """Reads a block at the given offsets; outside the tensor it is padded."""

    name = "tt.descriptor_load"
    offsets = variadic_operands_def(INTEGER)
    cache = attribute_def("cache", str, "")
    eviction = attribute_def("eviction", str, "")


class DescriptorStore(DescriptorBlockAccess):
    """Writes a block at the given offsets; outside the tensor nothing is written."""

    name = "tt.descriptor_store"
    value = operand_def(TILES)
    offsets = variadic_operands_def(INTEGER)


class DescriptorGather(DescriptorAccess, OneResult):
    """The rows at an index tile, from a column on; outside the tensor padded."""

    name = "tt.descriptor_gather"
    rows = operand_def(INTEGERS)
    column = operand_def(INTEGER)


class DescriptorScatter(DescriptorAccess):
    """Writes a tile's rows to the rows at an index tile, from a column on."""

    name = "tt.descriptor_scatter"
    value = operand_def(TILES)
    rows = operand_def(INTEGERS)
    column = operand_def(INTEGER)


class DescriptorReduce(DescriptorBlockAccess):
    """Combines a tile into memory with `kind`, atomically, at the given offsets."""

    name = "tt.descriptor_reduce"
    value = operand_def(TILES)
    offsets = variadic_operands_def(INTEGER)
    kind = attribute_def("kind", str)


class Atomic(PointerAccess, OneResult):
    """An atomic access; it gives the old value."""

    sem = attribute_def("sem", str, "acq_rel")
    scope = attribute_def("scope", str, "gpu")


class AtomicLoad(Atomic, MaskedAccess):
    """Reads memory atomically where the mask holds, zero elsewhere."""

    name = "tt.atomic_load"
    mask = optional_operand_def(CONDITIONS)


class AtomicRmw(Atomic, MaskedAccess):
    """Combines a value into memory with `kind`; gives the old value.

    Kind "store" puts the value there, and its result has no uses.
    """

    name = "tt.atomic_rmw"
    value = operand_def(NUMBERS)
    mask = optional_operand_def(CONDITIONS)
    kind = attribute_def("kind", str)


def is_exchange(op: Operation) -> bool:
    """Whether an op gives memory another value without computing with the old one."""
    return AtomicRmw.matches(op) and AtomicRmw(op).kind == "xchg"


class AtomicCas(Atomic):
    """Stores a value where memory equals the comparand; gives the old value."""

    name = "tt.atomic_cas"
    compare = operand_def(NUMBERS)
    value = operand_def(NUMBERS)
