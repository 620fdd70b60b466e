"""Global memory: pointers, tensor descriptors, atomics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.dialects.interfaces import (
    Effects,
    Elementwise,
    LikeFirst,
    MaskedAccess,
    MemoryAccess,
    OneResult,
    PointerAccess,
    Writing,
)
from tkdebug.compiler.ir import Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute, Operation
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
    VariadicOperandsDef,
    attribute_def,
    operand_def,
    optional_attribute_def,
    optional_operand_def,
    variadic_operands_def,
)
from tkdebug.errors import IRError


def _pointed_to(op: str, pointers: Type) -> Type:
    """The type that a pointer, or a tile of pointers, points to."""
    pointer = ir.element_of(pointers)
    if not isinstance(pointer, ir.PointerType):
        raise IRError(f"{op}: expected pointers, got {pointers}")
    return ir.with_element(pointers, pointer.pointee)


def _block_of(op: str, descriptor: Type) -> ir.TensorType:
    """The block of a descriptor."""
    if not isinstance(descriptor, ir.DescriptorType):
        raise IRError(f"{op}: expected a descriptor, got {descriptor}")
    return descriptor.block


class AddPtr(Elementwise, LikeFirst):
    """A pointer moved by a number of elements."""

    name = "tt.addptr"
    pointer = operand_def(POINTERS)
    offset = operand_def(INTEGERS)


class Load(MaskedAccess, OneResult):
    """Reads memory where the mask holds; `other` (or zero) elsewhere."""

    name = "tt.load"
    access = "load"
    effects = Effects.READ
    mask = optional_operand_def(CONDITIONS)
    other = optional_operand_def(VALUES)
    volatile = attribute_def("volatile", bool, False)
    boundary_check = optional_attribute_def("boundary_check", tuple[int, ...])

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The type that the pointers point to."""
        return (_pointed_to(cls.name, operands[0]),)


class Store(MaskedAccess, Writing):
    """Writes memory where the mask holds."""

    name = "tt.store"
    access = "store"
    effects = Effects.WRITE
    value = operand_def(VALUES)
    mask = optional_operand_def(CONDITIONS)
    boundary_check = optional_attribute_def("boundary_check", tuple[int, ...])


# Kinds of tt.descriptor_reduce; min and max are signed.
_REDUCTION_KINDS = frozenset("add min max and or xor umin umax fadd fmin fmax".split())
# Alignment of a descriptor's base, and of its strides but the last in bytes, as Triton's reference
# of make_tensor_descriptor asks: tensor maps have no others (CUDA driver API,
# cuTensorMapEncodeTiled).
DESCRIPTOR_ALIGNMENT_BYTES = 16


class MakeTensorDescriptor(OneResult):
    """A descriptor from base pointer, rank shape values and rank strides."""

    name = "tt.make_tensor_descriptor"
    base = operand_def(POINTER)
    shape = variadic_operands_def(INTEGER)
    strides = variadic_operands_def(INTEGER)
    # "nan" or "zero": the value read outside of the tensor.
    padding = attribute_def("padding", str, "zero")
    by_launch = attribute_def("by_launch", bool, False)
    by_kernel = attribute_def("by_kernel", bool, False)
    non_negative = attribute_def("non_negative", bool, False)


class DescriptorAccess(MemoryAccess):
    """An access to memory through a tensor descriptor."""

    takes_any_layout = True
    descriptor = operand_def(DESCRIPTORS)
    # The reason why it is lowered to an access through pointers, not to a bulk copy.
    by_pointers = optional_attribute_def("by_pointers", str)


class DescriptorBlockAccess(DescriptorAccess):
    """An access to the block of a tensor at some offsets."""

    offsets: VariadicOperandsDef


class DescriptorLoad(DescriptorBlockAccess, OneResult):
    """Reads a block at the given offsets; outside the tensor it is padded."""

    name = "tt.descriptor_load"
    access = "load"
    effects = Effects.READ
    offsets = variadic_operands_def(INTEGER)
    cache = attribute_def("cache", str, "")
    eviction = attribute_def("eviction", str, "")

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The descriptor's block."""
        return (_block_of(cls.name, operands[0]),)


class DescriptorStore(DescriptorBlockAccess, Writing):
    """Writes a block at the given offsets; outside the tensor nothing is written."""

    name = "tt.descriptor_store"
    access = "store"
    effects = Effects.WRITE
    value = operand_def(TILES)
    offsets = variadic_operands_def(INTEGER)


class DescriptorGather(DescriptorAccess, OneResult):
    """The rows at an index tile, from a column on; outside the tensor padded."""

    name = "tt.descriptor_gather"
    access = "load"
    effects = Effects.READ
    rows = operand_def(INTEGERS)
    column = operand_def(INTEGER)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """A row of the descriptor's block for each index."""
        block = _block_of(cls.name, operands[0])
        return (ir.tile((ir.shape_of(operands[1])[0], block.shape[1]), block.element),)


class DescriptorScatter(DescriptorAccess, Writing):
    """Writes a tile's rows to the rows at an index tile, from a column on."""

    name = "tt.descriptor_scatter"
    access = "store"
    effects = Effects.WRITE
    value = operand_def(TILES)
    rows = operand_def(INTEGERS)
    column = operand_def(INTEGER)


class DescriptorReduce(DescriptorBlockAccess, Writing):
    """Combines a tile into memory with `kind`, atomically, at the given offsets."""

    name = "tt.descriptor_reduce"
    access = "atomic"
    effects = Effects.READ | Effects.WRITE
    value = operand_def(TILES)
    offsets = variadic_operands_def(INTEGER)
    kind = attribute_def("kind", str)

    def verify(self) -> None:
        """Check that the kind is known."""
        if self.op.attributes.get("kind") not in _REDUCTION_KINDS:
            raise IRError(f"{self.op.name}: unknown kind {self.op.attributes.get('kind')!r}")


class Atomic(PointerAccess, OneResult):
    """An atomic access, whose result is the old value."""

    access = "atomic"
    effects = Effects.READ | Effects.WRITE
    sem = attribute_def("sem", str, "acq_rel")
    scope = attribute_def("scope", str, "gpu")

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The type that the pointers point to."""
        return (_pointed_to("atomic", operands[0]),)


class AtomicLoad(Atomic, MaskedAccess):
    """Reads memory atomically where the mask holds, zero elsewhere."""

    name = "tt.atomic_load"
    # Not merged: other programs may store between two loads of the same address.
    effects = Effects.READ | Effects.OTHER
    mask = optional_operand_def(CONDITIONS)


class AtomicRmw(Atomic, MaskedAccess, Writing):
    """Combines a value into memory with `kind`; the result is the old value.

    Kind "store" puts the value there, and its result has no uses.
    """

    name = "tt.atomic_rmw"
    value = operand_def(NUMBERS)
    mask = optional_operand_def(CONDITIONS)
    kind = attribute_def("kind", str)


def is_exchange(op: Operation) -> bool:
    """Whether an op replaces memory's value without computing with the old one."""
    return AtomicRmw.matches(op) and AtomicRmw(op).kind == "xchg"


class AtomicCas(Atomic):
    """Stores a value where memory equals the comparand; the result is the old value."""

    name = "tt.atomic_cas"
    compare = operand_def(NUMBERS)
    value = operand_def(NUMBERS)
