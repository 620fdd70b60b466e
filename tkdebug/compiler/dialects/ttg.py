"""Triton's ttg dialect: layout conversions, shared-memory buffers, async copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.dialects.interfaces import (
    Effects,
    MaskedAccess,
    OneResult,
    Op,
    PlainDot,
    SameElements,
    expect_buffer,
    expect_count,
    expect_kind,
    expect_same_tile,
)
from tkdebug.compiler.ir import MemDescType, TensorType, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.op_view import (
    BUFFERS,
    CONDITIONS,
    I32,
    TILES,
    TOKENS,
    VALUES,
    attribute_def,
    operand_def,
    optional_attribute_def,
    optional_operand_def,
    variadic_operands_def,
)
from tkdebug.compiler.layouts import transpose
from tkdebug.errors import IRError


class ConvertLayout(SameElements, OneResult):
    """Moves a tile to another layout."""

    name = "ttg.convert_layout"
    takes_any_layout = True
    source = operand_def(TILES)

    def verify(self) -> None:
        """Check that operand and result are the same tile."""
        source, target = self.source.type, self.result.type
        if not isinstance(source, TensorType) or not isinstance(target, TensorType):
            raise IRError(f"{self.name}: got {source} -> {target}, expected tiles")
        expect_same_tile(self.op, source, target)


class LocalAlloc(OneResult):
    """A buffer (or several) in shared memory; with an operand it holds that tile."""

    name = "ttg.local_alloc"
    takes_any_layout = True
    effects = Effects.OTHER
    source = optional_operand_def(TILES)
    # In bytes.
    alignment = optional_attribute_def("alignment", int)
    offset = optional_attribute_def("offset", int)

    def verify(self) -> None:
        """Check that the buffer has a layout of its shape, and its contents."""
        op, buffer = self.op, expect_buffer(self.op.name, self.result.type)
        if len(op.operands) > 1:
            raise IRError(f"{op.name}: got {len(op.operands)} operands, expected at most 1")
        if buffer.layout.shape != buffer.buffer_shape:
            raise IRError(f"{op.name}: {buffer} has a layout of shape {buffer.layout.shape}")
        if self.source is not None:
            expect_same_tile(op, self.source.type, buffer)
        elif not buffer.mutable:
            raise IRError(f"{op.name}: {buffer} has no contents and is not mutable")
        alignment = op.attributes.get("alignment", 16)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise IRError(
                f"{op.name}: alignment is {alignment!r}, expected a power of two in bytes"
            )


class LocalDealloc(Op):
    """Frees a buffer, which no later op may use."""

    name = "ttg.local_dealloc"
    effects = Effects.OTHER
    buffer = operand_def(BUFFERS)

    def verify(self) -> None:
        """Check that the operand is a buffer."""
        expect_buffer(self.op.name, self.buffer.type)


class LocalLoad(OneResult):
    """Reads a buffer as a tile."""

    name = "ttg.local_load"
    takes_any_layout = True
    effects = Effects.READ_SHARED
    buffer = operand_def(BUFFERS)

    def verify(self) -> None:
        """Check that the tile has the buffer's shape and elements."""
        expect_same_tile(self.op, expect_buffer(self.op.name, self.buffer.type), self.result.type)


class LocalStore(Op):
    """Puts a tile into a buffer."""

    name = "ttg.local_store"
    takes_any_layout = True
    effects = Effects.WRITE_SHARED
    source = operand_def(VALUES)
    buffer = operand_def(BUFFERS)

    def verify(self) -> None:
        """Check that the buffer holds such tiles, and can be written to."""
        expect_same_tile(self.op, self.source.type, expect_buffer(self.op.name, self.buffer.type))
        expect_buffer(self.op.name, self.buffer.type, mutable=True)


class MemDescView(OneResult):
    """Another view of a buffer, or of a part of it."""

    buffer = operand_def(BUFFERS)


class MemDescIndex(MemDescView):
    """One buffer of several."""

    name = "ttg.memdesc_index"
    index = operand_def(I32)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The type of one of the buffers."""
        source = expect_buffer(cls.name, operands[0])
        if not source.is_multiple or operands[1] != ir.I32:
            raise IRError(f"{cls.name}: got {source}[{operands[1]}], expected buffers[i32]")
        return (MemDescType(source.shape[1:], source.element, source.layout, source.mutable),)


class MemDescTrans(MemDescView):
    """A buffer seen with its dimensions permuted."""

    name = "ttg.memdesc_trans"
    order = attribute_def("order", tuple[int, ...])

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The buffer with its dimensions permuted."""
        source = expect_buffer(cls.name, operands[0])
        order = attributes["order"]
        assert isinstance(order, tuple)
        axes = [axis for axis in order if isinstance(axis, int)]
        if sorted(axes) != list(range(len(source.buffer_shape))) or source.is_multiple:
            raise IRError(f"{cls.name}: order {order} does not permute one buffer of {source}")
        shape = tuple(source.shape[axis] for axis in axes)
        layout = transpose(source.layout, axes)
        return (MemDescType(shape, source.element, layout, source.mutable),)


class MemDescSubslice(MemDescView):
    """A part of a buffer, from `offsets` on, as large as the result."""

    name = "ttg.memdesc_subslice"
    offsets = attribute_def("offsets", tuple[int, ...])

    def verify(self) -> None:
        """Check that the result is a part of one buffer, at a multiple of its size."""
        op, offsets = self.op, self.offsets
        source, part = (expect_buffer(op.name, value.type) for value in (self.buffer, self.result))
        if not isinstance(offsets, tuple):
            raise IRError(f"{op.name}: offsets is {offsets!r}, expected a list of ints")
        if source.is_multiple or not len(part.shape) == len(source.shape) == len(offsets):
            raise IRError(f"{op.name}: {part} at {offsets} is not a part of one buffer of {source}")
        kept = MemDescType(part.shape, source.element, source.layout, source.mutable)
        if part != kept:
            raise IRError(
                f"{op.name}: got {part}, expected {kept}: a part keeps the whole's layout"
            )
        for offset, size, whole in zip(offsets, part.shape, source.shape, strict=True):
            # Only then is the memory offset of a sum of coordinates the XOR of their offsets.
            if offset < 0 or offset % size or offset + size > whole:
                raise IRError(
                    f"{op.name}: part {part.shape} at {offsets} of {source.shape}; expected a "
                    "place inside the buffer that is a multiple of the part's size"
                )


class _Queued(OneResult):
    """Part of an asynchronous copy, whose result is a token that orders it."""

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """A token."""
        return (ir.TOKEN,)


class AsyncCopyGlobalToLocal(MaskedAccess, _Queued):
    """Starts a copy from memory (where the mask holds; `other` or zero elsewhere) to a buffer."""

    name = "ttg.async_copy_global_to_local"
    access = "load"
    effects = Effects.READ | Effects.WRITE_SHARED
    buffer = operand_def(BUFFERS)
    mask = optional_operand_def(CONDITIONS)
    other = optional_operand_def(VALUES)

    def verify(self) -> None:
        """Check that pointers, buffer, mask and other value have one shape and fitting elements."""
        op, pointer, buffer = self.op, self.pointer.type, self.buffer.type
        if not 2 <= len(op.operands) <= 4:
            raise IRError(f"{op.name}: got {len(op.operands)} operands, expected 2 to 4")
        element = ir.element_of(pointer)
        if not isinstance(element, ir.PointerType) or not isinstance(pointer, TensorType):
            raise IRError(f"{op.name}: got {pointer}, expected a tile of pointers")
        loaded = ir.with_element(pointer, element.pointee)
        expect_same_tile(op, loaded, expect_buffer(op.name, buffer))
        expect_buffer(op.name, buffer, mutable=True)
        for value, wanted in ((self.mask, ir.I1), (self.other, element.pointee)):
            if value is not None:
                expect_same_tile(op, value.type, ir.with_element(pointer, wanted))


class AsyncCommitGroup(_Queued):
    """Makes one group of all copies started since the last one."""

    name = "ttg.async_commit_group"
    effects = Effects.OTHER
    tokens = variadic_operands_def(TOKENS)

    def verify(self) -> None:
        """Check that the operands are tokens."""
        for value in self.tokens:
            expect_kind(self.op, value.type, TOKENS)


class AsyncWait(_Queued):
    """Waits until at most the last `num` groups are still on their way."""

    name = "ttg.async_wait"
    effects = Effects.OTHER
    tokens = variadic_operands_def(TOKENS)
    num = attribute_def("num", int)

    def verify(self) -> None:
        """Check that the operands are tokens, and the number is one."""
        for value in self.tokens:
            expect_kind(self.op, value.type, TOKENS)
        expect_count(self.op, "num")


class LocalDot(PlainDot):
    """a @ b + acc on FMA units, which read a and b from shared memory a few k at a time."""

    name = "ttg.local_dot"
    effects = Effects.READ_SHARED

    def verify(self) -> None:
        """Check that the shapes fit, and both factors are in one buffer each."""
        super().verify()
        for value in self.factors:
            if expect_buffer(self.op.name, value.type).is_multiple:
                raise IRError(f"{self.op.name}: got {value.type}, expected one buffer")
