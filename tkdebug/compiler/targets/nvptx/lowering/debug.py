"""Lowering of asserts, prints, barriers, assumptions and special registers.

Asserts and prints go through the calls that CUDA's own assert and printf use, so that the driver
shows them. A value is shown by the thread that acts for it, once.

Source: CUDA C++ Programming Guide, "Formatted Output" and "Assertion"; PTX Writer's Guide to
Interoperability, "System Calls".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tkdebug.compiler.dialects import nvvm, tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.types import TensorType, element_of, shape_of
from tkdebug.compiler.print_summaries import index_widths
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering import floats8
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers

_GENERIC = "ptr"
# The most that printf takes; upstream cuts indices there too.
_MAX_PRINTED = 16
_NAME_CHARS = 24


def _text(ctx: Lowering, text: str) -> LLVMValue:
    """Generic pointer to a zero-terminated string."""
    data = text.encode() + b"\0"
    shown = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in data
    )
    name = f"@text.{hashlib.sha256(data).hexdigest()[:_NAME_CHARS]}"
    ctx.emit.global_(
        name,
        f'{name} = internal addrspace(1) constant [{len(data)} x i8] c"{shown}", align 1',
    )
    return ctx.emit.cast("addrspacecast", LLVMValue("ptr addrspace(1)", name), _GENERIC)


def _acting(ctx: Lowering, op: Operation) -> LLVMValue | None:
    """i1: whether this thread acts for its elements of the first operand; None when all do."""
    (value, *_) = op.operands
    if isinstance(value.type, TensorType):
        return ctx.owner(ctx.layout(value))
    return ctx.is_first_thread


def _is_reported(ctx: Lowering, op: Operation, condition: Value, failures: Registers) -> bool:
    """Let observers report failures; return whether one does."""
    return any(observer.fails(op, condition, failures) for observer in ctx.observers)


def lower_assert(
    ctx: Lowering, op: Operation, condition: Registers, mask: Registers | None = None
) -> Sequence[Registers]:
    """Lower `tt.assert` to a branch to __assertfail, which reports and traps.

    A checked kernel reports the failure and goes on.
    """
    emit = ctx.emit
    failures = []
    for index, value in enumerate(condition):
        wrong = emit.xor(value, 1)
        failures.append(wrong if mask is None else emit.bit_and(wrong, mask[index]))
    if _is_reported(ctx, op, tt.Assert(op).condition, failures):
        return ()
    failed = integer("i1", 0)
    for wrong in failures:
        failed = emit.binary("or", failed, wrong)
    acting = _acting(ctx, op)
    if acting is not None:
        failed = emit.bit_and(failed, acting)
    if failed.constant == 0:
        return ()
    place = op.location.primary
    fail, after = emit.new_block("assert.failed"), emit.new_block("assert.passed")
    emit.branch_if(failed, fail, after)
    emit.start(fail)
    arguments = (
        _text(ctx, tt.Assert(op).message or "device_assert"),
        _text(ctx, place.file),
        integer("i32", place.line),
        _text(ctx, place.function),
        integer("i64", 1),
    )
    emit.function("void", "__assertfail", arguments)
    emit.branch(after)
    emit.start(after)
    return ()


def lower_print(ctx: Lowering, op: Operation, *operands: Registers) -> Sequence[Registers]:
    """Lower `tt.print` to a vprintf for each element, as `pid (0, 0, 0) idx (  0) x: 1`."""
    emit = ctx.emit
    prefix = tt.Print(op).prefix.replace("%", "%%")
    program = [emit.intrinsic(f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}") for axis in "xyz"]
    pid, buffer = "pid (%u, %u, %u)", _argument_buffer(ctx)
    template = tt.Print(op).template
    if template is not None:
        with _only(ctx, ctx.is_first_thread):
            numbers = [value for (value,) in operands]
            _printf(ctx, buffer, f"{pid}{template}\n", [*program, *numbers])
        return ()
    if not operands:
        with _only(ctx, ctx.is_first_thread):
            _printf(ctx, buffer, f"{pid} idx (){prefix}\n", program)
        return ()
    signed = tt.Print(op).signed
    for place, (operand, registers) in enumerate(zip(op.operands, operands, strict=True)):
        label = f"(operand {place}) " if len(operands) > 1 else ""
        is_signed = True if signed is None else signed[place]
        acting: LLVMValue | None = ctx.is_first_thread
        indices: list[tuple[LLVMValue, ...]] = [()]
        if isinstance(operand.type, TensorType):
            layout = ctx.layout(operand)
            acting, indices = ctx.owner(layout), ctx.coordinates(layout)
        registers = floats8.readable(ctx, element_of(operand.type), registers)
        index_text, shown = _index_format(shape_of(operand.type))
        with _only(ctx, acting):
            for index, value in zip(indices, registers, strict=True):
                directive, argument = _printable(ctx, value, is_signed, tt.Print(op).hex)
                text = f"{pid} idx ({index_text}){prefix}{label}{directive}\n"
                _printf(ctx, buffer, text, [*program, *index[:shown], argument])
    return ()


def _index_format(shape: Sequence[int]) -> tuple[str, int]:
    """Directives of printf for an element's indices, and the number of indices that are shown."""
    shown = min(len(shape), _MAX_PRINTED - 5)
    widths = index_widths(shape)[:shown]
    rest = ", ..." if shown < len(shape) else ""
    return ", ".join(f"%{width}u" for width in widths) + rest, shown


@contextmanager
def _only(ctx: Lowering, predicate: LLVMValue | None) -> Iterator[None]:
    """Write code inside that only some threads run; None means all."""
    if predicate is None:
        yield
        return
    here, after = ctx.emit.new_block("print"), ctx.emit.new_block("printed")
    ctx.emit.branch_if(predicate, here, after)
    ctx.emit.start(here)
    yield
    ctx.emit.branch(after)
    ctx.emit.start(after)


def _printable(
    ctx: Lowering, value: LLVMValue, is_signed: bool, is_hex: bool
) -> tuple[str, LLVMValue]:
    """The directive of printf for a value, and the value as a variadic call takes it."""
    emit = ctx.emit
    if value.type.startswith("ptr"):
        value, is_signed = ctx.to_bits(value), False
    bits = TYPE_BITS[value.type]
    if value.type[0] != "i":
        return "%a" if is_hex else "%f", emit.cast("fpext", value, "double")
    if is_hex:
        wide = emit.cast("zext", ctx.to_bits(value), "i64" if bits > 32 else "i32")
        return f"0x%0{max(1, bits // 4)}{'ll' if bits > 32 else ''}x", wide
    if bits > 32:
        return "%lld" if is_signed else "%llu", value
    is_signed = is_signed and bits > 1
    wide = emit.cast("sext" if is_signed else "zext", value, "i32")
    return "%d" if is_signed else "%u", wide


def _argument_buffer(ctx: Lowering) -> LLVMValue:
    """Allocate memory for the arguments of vprintf, which an op's calls use in turn."""
    with ctx.emit.in_entry():
        return ctx.emit.raw(_GENERIC, f"alloca [{8 * _MAX_PRINTED} x i8], align 8")


def _printf(ctx: Lowering, buffer: LLVMValue, text: str, arguments: Sequence[LLVMValue]) -> None:
    """Call vprintf: it takes its arguments one after the other in memory, each at its alignment."""
    emit = ctx.emit
    offset = 0
    for argument in arguments:
        size = TYPE_BITS[argument.type] // 8
        offset = -(-offset // size) * size
        emit.store(argument, emit.gep(buffer, "i8", offset), size)
        offset += size
    emit.function("i32", "vprintf", (_text(ctx, text), buffer))


def lower_barrier(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Have all threads of the block wait for each other; their writes are visible then."""
    ctx.barrier()
    return ()


def lower_assume(ctx: Lowering, op: Operation, condition: Registers) -> Sequence[Registers]:
    """Lower `tt.assume`: LLVM assumes the condition, too, unless the kernel checks it."""
    broken = [ctx.emit.xor(value, 1) for value in condition]
    if _is_reported(ctx, op, tt.Assume(op).condition, broken):
        return ()
    for value in dict.fromkeys(condition):
        ctx.emit.intrinsic("llvm.assume", value)
    return ()


def lower_visit(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Lower `tt.visit`: return its count of visits so far, which LLVM keeps in a register."""
    emit, watch = ctx.emit, tt.Visit(op).watch
    if watch not in ctx.visits:
        with emit.in_entry():
            ctx.visits[watch] = emit.raw("ptr", "alloca i32, align 4")
            emit.store(integer("i32", 0), ctx.visits[watch], 4)
    before = emit.load("i32", ctx.visits[watch], 4)
    emit.store(emit.add(before, 1), ctx.visits[watch], 4)
    return ([before],)


def lower_smid(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Lower `MultiprocessorId` to %smid."""
    return ([ctx.emit.intrinsic("llvm.nvvm.read.ptx.sreg.smid")],)


def lower_globaltimer(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Lower `GlobalTimer` to a new read of %globaltimer; threads may differ by its resolution."""
    return ([ctx.emit.asm("mov.u64 $0, %globaltimer;", "=l,~{memory}", "i64", ())],)


def lower_griddepcontrol(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Lower `nvvm.griddepcontrol` (programmatic dependent launch); to nothing before sm_90."""
    if ctx.target.capability >= (9, 0):
        kind = nvvm.GridDependencyControl(op).kind
        ctx.emit.asm(f"griddepcontrol.{kind};", "~{memory}", "void", ())
    return ()


LOWERINGS: dict[str, Lower] = {
    tt.Assert.name: lower_assert,
    tt.Print.name: lower_print,
    tt.Barrier.name: lower_barrier,
    tt.Assume.name: lower_assume,
    tt.Visit.name: lower_visit,
    nvvm.MultiprocessorId.name: lower_smid,
    nvvm.GlobalTimer.name: lower_globaltimer,
    nvvm.GridDependencyControl.name: lower_griddepcontrol,
}
