"""Lowering of bulk copies by tensor maps (cp.async.bulk.tensor) and of mbarriers.

Thread 0 issues everything, so that what it announces to an mbarrier and what it copies follow each
other without a barrier. PTX takes coordinates with the contiguous axis first.

Source: PTX ISA, "cp.async.bulk.tensor", "cp.async.bulk.wait_group", "mbarrier.init",
"mbarrier.arrive", "mbarrier.try_wait", "mbarrier.inval".
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.analysis.tensor_maps import Message, messages
from tkdebug.compiler.dialects import ttng
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import DescriptorType
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers

# An index so far before a tensor that no block reaches into it from there.
_BEFORE_ALL = -(1 << 30)


def lower_init(ctx: Lowering, op: Operation, barrier: Registers) -> Sequence[Registers]:
    """Initialise the mbarrier; other threads may use it after a barrier of the block."""
    count = ttng.InitBarrier(op).count
    text = f"@$1 mbarrier.init.shared::cta.b64 [$0], {count};"
    _by_one(ctx, text, [_address(ctx, barrier)], "r", ctx.is_first_thread)
    return ()


def lower_inval(ctx: Lowering, op: Operation, barrier: Registers) -> Sequence[Registers]:
    """Invalidate the mbarrier: its memory may be used for something else."""
    text = "@$1 mbarrier.inval.shared::cta.b64 [$0];"
    _by_one(ctx, text, [_address(ctx, barrier)], "r", ctx.is_first_thread)
    return ()


def lower_expect(
    ctx: Lowering, op: Operation, barrier: Registers, predicate: Registers
) -> Sequence[Registers]:
    """Announce the bytes of a phase, and arrive at its barrier."""
    size_bytes = ttng.BarrierExpect(op).size_bytes
    text = f"@$1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {size_bytes};"
    _by_one(ctx, text, [_address(ctx, barrier)], "r", _issuer(ctx, predicate[0]))
    return ()


def lower_wait(
    ctx: Lowering, op: Operation, barrier: Registers, phase: Registers
) -> Sequence[Registers]:
    """Wait for the end of a phase: every thread tries again and again; a try sleeps for a while."""
    text = "\n".join(
        (
            "{",
            ".reg .pred ended;",
            "again:",
            "mbarrier.try_wait.parity.shared::cta.b64 ended, [$0], $1;",
            "@!ended bra.uni again;",
            "}",
        )
    )
    arguments = [_address(ctx, barrier), phase[0]]
    ctx.emit.asm(text, "r,r,~{memory}", "void", arguments, convergent=True)
    return ()


def lower_load(
    ctx: Lowering,
    op: Operation,
    descriptor: Registers,
    buffer: Registers,
    barrier: Registers,
    predicate: Registers,
    *coordinates: Registers,
) -> Sequence[Registers]:
    """Write a bulk load for each box of the block; the descriptor's tensor may be empty."""
    target, arrival = _address(ctx, buffer), _address(ctx, barrier)
    issuer = _issuer(ctx, predicate[0])
    if len(descriptor) > 1:
        # The tensor map of an empty tensor describes one that is not: all before that is padding.
        outer = ctx.emit.select(descriptor[1], integer("i32", _BEFORE_ALL), coordinates[0][0])
        coordinates = ([outer], *coordinates[1:])
    for message in _messages(op):
        start = _start(ctx, message, coordinates)
        rank = len(start)
        place = ", ".join(f"${3 + axis}" for axis in range(rank))
        text = (
            f"@${3 + rank} cp.async.bulk.tensor.{rank}d.shared::cluster.global"
            f".mbarrier::complete_tx::bytes [$0], [$1, {{{place}}}], [$2];"
        )
        landing = ctx.emit.add(target, message.offset_bytes)
        arguments = [landing, descriptor[0], arrival, *start]
        _by_one(ctx, text, arguments, ",".join(("r", "l", "r", *["r"] * rank)), issuer)
    return ()


def lower_store(
    ctx: Lowering,
    op: Operation,
    descriptor: Registers,
    buffer: Registers,
    *coordinates: Registers,
) -> Sequence[Registers]:
    """Write a bulk store for each box of the block, all in a group; blocks are in program order."""
    ctx.emit.asm("cp.async.bulk.wait_group 0;", "~{memory}", "void", ())
    source = _address(ctx, buffer)
    for message in _messages(op):
        start = _start(ctx, message, coordinates)
        rank = len(start)
        place = ", ".join(f"${2 + axis}" for axis in range(rank))
        text = (
            f"@${2 + rank} cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group "
            f"[$1, {{{place}}}], [$0];"
        )
        taken = ctx.emit.add(source, message.offset_bytes)
        arguments = [taken, descriptor[0], *start]
        constraints = ",".join(("r", "l", *["r"] * rank))
        _by_one(ctx, text, arguments, constraints, ctx.is_first_thread)
    # Groups of threads that issued nothing are empty.
    ctx.emit.asm("cp.async.bulk.commit_group;", "~{memory}", "void", ())
    return ()


def lower_store_wait(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Wait, in the thread that issued the copies, until they have read their buffers."""
    count = ttng.AsyncTmaStoreWait(op).pendings
    ctx.emit.asm(f"cp.async.bulk.wait_group.read {count};", "~{memory}", "void", ())
    return ()


def _by_one(
    ctx: Lowering,
    text: str,
    arguments: Sequence[LLVMValue],
    constraints: str,
    issuer: LLVMValue,
) -> None:
    """Write an instruction under a predicate, which comes after its arguments."""
    ctx.emit.asm(text, f"{constraints},b,~{{memory}}", "void", [*arguments, issuer])


def _issuer(ctx: Lowering, predicate: LLVMValue) -> LLVMValue:
    if predicate.constant:
        return ctx.is_first_thread
    return ctx.emit.binary("and", ctx.is_first_thread, predicate)


def _address(ctx: Lowering, buffer: Registers) -> LLVMValue:
    return ctx.emit.cast("ptrtoint", buffer[0], "i32")


def _messages(op: Operation) -> tuple[Message, ...]:
    type_ = ttng.BulkCopy(op).descriptor.type
    assert isinstance(type_, DescriptorType)
    return messages(type_.block)


def _start(ctx: Lowering, message: Message, coordinates: Sequence[Registers]) -> list[LLVMValue]:
    """The coordinates in the tensor where a box begins, the contiguous axis first."""
    moved = [
        ctx.emit.add(registers[0], start)
        for registers, start in zip(coordinates, message.start, strict=True)
    ]
    return moved[::-1]


LOWERINGS: dict[str, Lower] = {
    ttng.InitBarrier.name: lower_init,
    ttng.InvalBarrier.name: lower_inval,
    ttng.BarrierExpect.name: lower_expect,
    ttng.WaitBarrier.name: lower_wait,
    ttng.AsyncTmaCopyGlobalToLocal.name: lower_load,
    ttng.AsyncTmaCopyLocalToGlobal.name: lower_store,
    ttng.AsyncTmaStoreWait.name: lower_store_wait,
}
