"""Lowers tt.make_tensor_descriptor to a tensor map, which the launch or the program makes.

Thread 0 fills a tensor map in shared memory, warp 0 copies it to the program's workspace in global
memory, where bulk copies read it. Thread 0 issues those, so no other thread has to see the map.

Source: PTX ISA, "tensormap.replace" (fields, and how element types are numbered),
"tensormap.cp_fenceproxy", "membar / fence" (fence.proxy.tensormap).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tkdebug.compiler.analysis.tensor_maps import (
    MAKE,
    MAP_BYTES,
    UNIT_BYTES,
    TensorMap,
    is_kernel_made,
    tensor_map,
)
from tkdebug.compiler.dialects import tt, ttng
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import DescriptorType
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers

_WORD_BYTES = 4
_ELEMENT_TYPES = {"f16": 6, "f32": 7, "f64": 9, "bf16": 10}
# Integers, and types that are copied as such, by bits.
_INTEGER_TYPES = {8: 0, 16: 1, 32: 2, 64: 4}
_SWIZZLE_MODES = {0: 0, 32: 1, 64: 2, 128: 3}
_FILL_MODES = {"zero": 0, "nan": 1}
_REPLACE = "tensormap.replace.tile."
_FIELD = ".shared::cta.b1024."


def map_scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory in which a program fills a tensor map; 0 if the launch makes it."""
    return MAP_BYTES if is_kernel_made(op) else 0


def map_places(
    ctx: Lowering, ops: Sequence[Operation], workspace: LLVMValue
) -> dict[Operation, LLVMValue]:
    """Return the address in the launch's workspace of this program's map for each of `ops`."""
    emit = ctx.emit
    with emit.in_entry():
        program = integer("i64", 0)
        for axis in "zyx":
            count, index = (
                emit.cast(
                    "zext", emit.intrinsic(f"llvm.nvvm.read.ptx.sreg.{register}.{axis}"), "i64"
                )
                for register in ("nctaid", "ctaid")
            )
            program = emit.add(emit.binary("mul", program, count), index)
        first = emit.mul(program, len(ops) * MAP_BYTES)
        return {
            op: emit.gep(workspace, "i8", emit.add(first, place * MAP_BYTES))
            for place, op in enumerate(ops)
        }


def lower_make(
    ctx: Lowering, op: Operation, base: Registers, *numbers: Registers
) -> Sequence[Registers]:
    """Return the tensor map's address; for a map made here also i1: whether the tensor is empty."""
    if tt.MakeTensorDescriptor(op).by_launch:
        return ([ctx.tensor_maps[op]],)
    type_ = op.result.type
    assert isinstance(type_, DescriptorType)
    rank = len(type_.block.shape)
    sizes = [registers[0] for registers in numbers[:rank]]
    element_bytes = type_.block.element.bits // 8
    steps = [ctx.emit.mul(registers[0], element_bytes) for registers in numbers[rank:-1]]
    map_ = tensor_map(type_.block, tt.MakeTensorDescriptor(op).padding)
    _trap_unless_described(ctx, op, base[0], steps)
    _fill(ctx, op, map_, [base[0], *sizes], steps)
    place = ctx.map_places[op]
    _publish(ctx, op, place)
    empty = reduce(
        lambda a, b: ctx.emit.binary("or", a, b),
        [ctx.emit.icmp("slt", size, 1) for size in sizes],
    )
    return ([place, empty],)


def _trap_unless_described(
    ctx: Lowering, op: Operation, base: LLVMValue, steps: Sequence[LLVMValue]
) -> None:
    """Trap if no tensor map describes the tensor; stores by negative strides use pointers."""
    emit = ctx.emit
    address = emit.cast("ptrtoint", base, "i64")
    bits = reduce(lambda a, b: emit.binary("or", a, b), [address, *steps])
    wrong = emit.icmp("ne", emit.bit_and(bits, UNIT_BYTES - 1), 0)
    if any(user.name == ttng.AsyncTmaCopyGlobalToLocal.name for user in op.result.uses):
        for step in steps:
            wrong = emit.binary("or", wrong, emit.icmp("slt", step, 0))
    emit.asm("@$0 trap;", "b,~{memory}", "void", [wrong])


def _fill(
    ctx: Lowering,
    op: Operation,
    map_: TensorMap,
    described: Sequence[LLVMValue],
    steps: Sequence[LLVMValue],
) -> None:
    """Write the tensor map to the op's scratch memory.

    Args:
        ctx: the kernel.
        op: the op.
        map_: the map's encoding, as far as it is known at compile time.
        described: the address, then the extents.
        steps: all strides but the last, in bytes.
    """
    emit = ctx.emit
    scratch = emit.cast("ptrtoint", ctx.scratch(op), "i32")
    word = emit.add(scratch, emit.mul(ctx.thread, _WORD_BYTES))
    zero = "@$1 st.shared.b32 [$0], 0;\nbar.warp.sync -1;"
    emit.asm(zero, "r,b,~{memory}", "void", [word, ctx.in_first_warp], convergent=True)
    address, *sizes = described
    # An extent of 0 makes the tensor map invalid: bulk copies by it are illegal (seen on an H200).
    one = integer("i32", 1)
    extents = [emit.select(emit.icmp("slt", size, 1), one, size) for size in sizes]
    arguments = [scratch, address, *extents[::-1], *steps[::-1]]
    constraints = ["r", "l", *["r"] * len(extents), *["l"] * len(steps), "b", "~{memory}"]
    text = _replacements(map_, f"@${len(arguments)} ")
    emit.asm(text, ",".join(constraints), "void", [*arguments, ctx.is_first_thread])


def _replacements(map_: TensorMap, guard: str) -> str:
    """Return PTX that sets every field, the contiguous axis first, from `_fill`'s operands."""
    rank = len(map_.box)
    bits = 8 * map_.element_bytes
    lines = [f"global_address{_FIELD}b64 [$0], $1", f"rank{_FIELD}b32 [$0], {rank - 1}"]
    for axis, extent in enumerate(reversed(map_.box)):
        lines += [
            f"box_dim{_FIELD}b32 [$0], {axis}, {extent}",
            f"global_dim{_FIELD}b32 [$0], {axis}, ${2 + axis}",
            f"element_stride{_FIELD}b32 [$0], {axis}, 1",
        ]
    for axis in range(rank - 1):
        lines.append(f"global_stride{_FIELD}b64 [$0], {axis}, ${2 + rank + axis}")
    codes = {
        "elemtype": _ELEMENT_TYPES.get(map_.element, _INTEGER_TYPES[bits]),
        "interleave_layout": 0,
        "swizzle_mode": _SWIZZLE_MODES[map_.swizzle_bytes],
        "fill_mode": _FILL_MODES[map_.padding],
    }
    lines += [f"{name}{_FIELD}b32 [$0], {code}" for name, code in codes.items()]
    return "\n".join(f"{guard}{_REPLACE}{line};" for line in lines)


def _publish(ctx: Lowering, op: Operation, place: LLVMValue) -> None:
    """Copy the tensor map to global memory, and let bulk copies see it there.

    The empty group of bulk copies replaces a fence that ptxas leaves out after the acquiring one
    (a mistake of ptxas's, which Triton's lowering notes).
    """
    ctx.barrier()
    text = "\n".join(
        (
            "@$2 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu"
            f".sync.aligned [$0], [$1], {MAP_BYTES};",
            f"@$2 fence.proxy.tensormap::generic.acquire.gpu [$0], {MAP_BYTES};",
            "@$2 cp.async.bulk.commit_group;",
            "@$2 cp.async.bulk.wait_group.read 0;",
        )
    )
    arguments = [place, ctx.emit.cast("ptrtoint", ctx.scratch(op), "i32"), ctx.in_first_warp]
    ctx.emit.asm(text, "l,r,b,~{memory}", "void", arguments, convergent=True)


LOWERINGS: dict[str, Lower] = {MAKE: lower_make}
