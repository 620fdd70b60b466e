"""Triton's ttng dialect: tensor cores of a warp group, mbarriers and bulk copies (TMA).

Operands of bulk copies have an order of tkdebug's own: the tensor map, the buffer, the mbarrier and
the predicate where there are any, then the coordinates.

An mbarrier is a word in shared memory. A phase of it ends when the threads it was made for have
arrived and all bytes that were announced to it have landed; the next phase begins at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.dialects.interfaces import (
    INPUT_PRECISIONS,
    Effects,
    Op,
    PlainDot,
    expect_buffer,
    expect_count,
    expect_kind,
)
from tkdebug.compiler.ir import Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute, Operation, Value
from tkdebug.compiler.ir.op_view import (
    BUFFERS,
    DESCRIPTORS,
    I1,
    I32,
    VariadicOperandsDef,
    attribute_def,
    operand_def,
    variadic_operands_def,
    variadic_results_def,
)
from tkdebug.errors import IRError


def _expect_barrier(op: Operation, barrier: Value) -> None:
    type_ = barrier.type
    if not isinstance(type_, ir.MemDescType) or (type_.shape, type_.element) != ((1,), ir.I64):
        raise IRError(f"{op.name}: got {type_}, expected an mbarrier, a buffer of one i64")
    if not type_.mutable:
        raise IRError(f"{op.name}: got {type_}, expected a mutable buffer")


class WarpGroupDot(PlainDot):
    """a @ b + acc on the tensor cores of a warp group; with `async` it ends at its wait."""

    name = "ttng.warp_group_dot"
    effects = Effects.READ_SHARED
    is_async = attribute_def("async", bool, False)

    def verify(self) -> None:
        """Check that shapes and precision fit, and b is in shared memory."""
        op = self.op
        a, b, acc = (ir.shape_of(value.type) for value in op.operands)
        if len(a) != 2 or len(b) != 2 or a[1] != b[0] or acc != (a[0], b[1]):
            raise IRError(f"{op.name}: shapes {a}, {b} and {acc} do not fit")
        expect_buffer(op.name, self.b.type)
        precision = op.attributes.get("input_precision", "tf32")
        if precision not in INPUT_PRECISIONS:
            raise IRError(f"{op.name}: input_precision is {precision!r}, not of {INPUT_PRECISIONS}")


class WarpGroupDotWait(Op):
    """Waits until at most the last `pendings` dots still run; hands its operands on."""

    name = "ttng.warp_group_dot_wait"
    takes_any_layout = True
    effects = Effects.OTHER
    sources = variadic_operands_def()
    results = variadic_results_def()
    pendings = attribute_def("pendings", int)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The types of the operands."""
        return tuple(operands)

    def verify(self) -> None:
        """Check that there are operands to wait for, and a number of pending groups."""
        if not self.sources:
            raise IRError(f"{self.op.name}: got no operands, expected what it waits for")
        expect_count(self.op, "pendings")


class FenceAsyncShared(Op):
    """Makes stores to shared memory visible to tensor cores and bulk copies."""

    name = "ttng.fence_async_shared"
    effects = Effects.OTHER


class BarrierOp(Op):
    """An operation on an mbarrier."""

    effects = Effects.OTHER
    barrier = operand_def(BUFFERS)

    def verify(self) -> None:
        """Check that the operand is an mbarrier."""
        _expect_barrier(self.op, self.barrier)


class InitBarrier(BarrierOp):
    """Makes an mbarrier, in phase 0; each of its phases ends when `count` threads have arrived."""

    name = "ttng.init_barrier"
    count = attribute_def("count", int)

    def verify(self) -> None:
        """Check that the operand is an mbarrier, the count positive."""
        super().verify()
        expect_count(self.op, "count", 1)


class InvalBarrier(BarrierOp):
    """Invalidates an mbarrier; its memory can be used for something else."""

    name = "ttng.inval_barrier"


class BarrierExpect(BarrierOp):
    """Announces `size_bytes` to an mbarrier, by one thread that arrives, if the predicate holds."""

    name = "ttng.barrier_expect"
    predicate = operand_def(I1)
    size_bytes = attribute_def("size_bytes", int)

    def verify(self) -> None:
        """Check that the operand is an mbarrier, the predicate an i1, the size positive."""
        super().verify()
        expect_kind(self.op, self.predicate.type, I1)
        expect_count(self.op, "size_bytes", 1)


class WaitBarrier(BarrierOp):
    """Waits until the mbarrier's phase of this parity (0 or 1) has ended."""

    name = "ttng.wait_barrier"
    phase = operand_def(I32)

    def verify(self) -> None:
        """Check that the operand is an mbarrier, the phase an i32."""
        super().verify()
        expect_kind(self.op, self.phase.type, I32)


class BulkCopy(Op):
    """A bulk copy of a block between memory and a buffer."""

    descriptor = operand_def(DESCRIPTORS)
    buffer = operand_def(BUFFERS)
    coordinates: VariadicOperandsDef

    def verify(self) -> None:
        """Check that the buffer holds the descriptor's blocks, and each axis has a coordinate."""
        op, descriptor, buffer = self.op, self.descriptor.type, self.buffer.type
        if not isinstance(descriptor, ir.DescriptorType) or not isinstance(buffer, ir.MemDescType):
            raise IRError(
                f"{op.name}: got {descriptor} and {buffer}, expected a descriptor, a buffer"
            )
        block = descriptor.block
        if (buffer.shape, buffer.element) != (block.shape, block.element):
            raise IRError(f"{op.name}: {block} and {buffer} differ in shape or element")
        if [value.type for value in self.coordinates] != [ir.I32] * len(block.shape):
            raise IRError(f"{op.name}: expected {len(block.shape)} coordinates of i32")


class AsyncTmaCopyGlobalToLocal(BulkCopy):
    """Starts to copy a block to a buffer, if the predicate holds; an mbarrier counts its bytes."""

    name = "ttng.async_tma_copy_global_to_local"
    effects = Effects.READ | Effects.WRITE_SHARED
    barrier = operand_def(BUFFERS)
    predicate = operand_def(I1)
    coordinates = variadic_operands_def(I32)

    def verify(self) -> None:
        """Check the block, its mbarrier, the predicate, and that the buffer is mutable."""
        super().verify()
        _expect_barrier(self.op, self.barrier)
        expect_kind(self.op, self.predicate.type, I1)
        expect_buffer(self.op.name, self.buffer.type, mutable=True)


class AsyncTmaCopyLocalToGlobal(BulkCopy):
    """Starts to copy a buffer to a block in memory, as a bulk group of its own."""

    name = "ttng.async_tma_copy_local_to_global"
    effects = Effects.WRITE | Effects.READ_SHARED
    coordinates = variadic_operands_def(I32)


class AsyncTmaStoreWait(Op):
    """Waits until at most the last `pendings` copies still read their buffers."""

    name = "ttng.async_tma_store_wait"
    effects = Effects.OTHER
    pendings = attribute_def("pendings", int)

    def verify(self) -> None:
        """Check that the number of pending groups is a number from 0 up."""
        expect_count(self.op, "pendings")
