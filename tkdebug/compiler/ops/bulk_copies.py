"""Bulk copies between memory and shared memory by tensor maps (TMA), and the mbarriers they end at.

Names and meaning are those of Triton's `ttng` dialect; operands have an order of our own: the
tensor map, the buffer, the mbarrier and the predicate where there are any, then the coordinates.

An mbarrier is a word in shared memory. A phase of it ends when the threads it was made for have
arrived and all bytes that were announced to it have landed; the next begins at once. Only passes
emit these ops.
"""

from __future__ import annotations

from tkdebug.compiler.dialects import ttng
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.types import DescriptorType, MemDescType
from tkdebug.compiler.ops.spec import Builtin, Effects, OpSpec, no_results
from tkdebug.errors import IRError

LOAD = ttng.AsyncTmaCopyGlobalToLocal.name
STORE = ttng.AsyncTmaCopyLocalToGlobal.name
STORE_WAIT = ttng.AsyncTmaStoreWait.name
INIT, INVAL = ttng.InitBarrier.name, ttng.InvalBarrier.name
EXPECT, WAIT = ttng.BarrierExpect.name, ttng.WaitBarrier.name


def _expect_barrier(op: Operation, place: int) -> None:
    type_ = op.operands[place].type
    if not isinstance(type_, MemDescType) or (type_.shape, type_.element) != ((1,), ir.I64):
        raise IRError(f"{op.name}: got {type_}, expected an mbarrier, a buffer of one i64")
    if not type_.mutable:
        raise IRError(f"{op.name}: got {type_}, expected a mutable buffer")


def _expect_at_least(op: Operation, name: str, least: int) -> None:
    count = op.attributes.get(name)
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise IRError(f"{op.name}: {name} is {count!r}, expected an int from {least} up")


def _expect_scalar(op: Operation, place: int, wanted: ir.Type) -> None:
    if op.operands[place].type != wanted:
        raise IRError(f"{op.name}: operand {place} is {op.operands[place].type}, not {wanted}")


def _verify_init(op: Operation) -> None:
    _expect_barrier(op, 0)
    _expect_at_least(op, "count", 1)


def _verify_inval(op: Operation) -> None:
    _expect_barrier(op, 0)


def _verify_expect(op: Operation) -> None:
    _expect_barrier(op, 0)
    _expect_scalar(op, 1, ir.I1)
    _expect_at_least(op, "size_bytes", 1)


def _verify_wait(op: Operation) -> None:
    _expect_barrier(op, 0)
    _expect_scalar(op, 1, ir.I32)


def _verify_block(op: Operation, first_coordinate: int) -> None:
    descriptor, buffer = op.operands[0].type, op.operands[1].type
    if not isinstance(descriptor, DescriptorType) or not isinstance(buffer, MemDescType):
        raise IRError(f"{op.name}: got {descriptor} and {buffer}, expected a descriptor, a buffer")
    block = descriptor.block
    if (buffer.shape, buffer.element) != (block.shape, block.element):
        raise IRError(f"{op.name}: {block} and {buffer} differ in shape or element")
    coordinates = op.operands[first_coordinate:]
    if [value.type for value in coordinates] != [ir.I32] * len(block.shape):
        raise IRError(f"{op.name}: expected {len(block.shape)} coordinates of i32")


def _verify_copy(op: Operation) -> None:
    _verify_block(op, 4)
    _expect_barrier(op, 2)
    _expect_scalar(op, 3, ir.I1)
    buffer = op.operands[1].type
    if not isinstance(buffer, MemDescType) or not buffer.mutable:
        raise IRError(f"{op.name}: got {buffer}, expected a mutable buffer to write to")


def _verify_store(op: Operation) -> None:
    _verify_block(op, 2)


def _verify_store_wait(op: Operation) -> None:
    _expect_at_least(op, "pendings", 0)


OPS: tuple[OpSpec, ...] = (
    OpSpec(
        ttng.InitBarrier,
        no_results,
        _verify_init,
        effects=Effects.OTHER,
    ),
    OpSpec(
        ttng.InvalBarrier,
        no_results,
        _verify_inval,
        effects=Effects.OTHER,
    ),
    OpSpec(
        ttng.BarrierExpect,
        no_results,
        _verify_expect,
        effects=Effects.OTHER,
    ),
    OpSpec(
        ttng.WaitBarrier,
        no_results,
        _verify_wait,
        effects=Effects.OTHER,
    ),
    OpSpec(
        ttng.AsyncTmaCopyGlobalToLocal,
        no_results,
        _verify_copy,
        effects=Effects.READ | Effects.WRITE_SHARED,
    ),
    OpSpec(
        ttng.AsyncTmaCopyLocalToGlobal,
        no_results,
        _verify_store,
        effects=Effects.WRITE | Effects.READ_SHARED,
    ),
    OpSpec(
        ttng.AsyncTmaStoreWait,
        no_results,
        _verify_store_wait,
        effects=Effects.OTHER,
    ),
)
LANGUAGE: dict[str, Builtin] = {}
