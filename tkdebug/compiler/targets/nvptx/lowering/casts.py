"""Lowering of conversions between integers and floats, and among floats of 16 bits and more.

Conversions to fp8 and back are in floats8. Floats become integers by cvt.rzi, which saturates; NaN
gives 0, or the highest bit alone where either side has 64 bits. To 8 bits it is cvt to 16 bits,
whose low byte is kept, as upstream's kernels have it.

Source: PTX ISA, "Data Movement and Conversion Instructions: cvt".
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering import floats8
from tkdebug.compiler.targets.nvptx.lowering.arithmetic import ElementRule, per_element
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers, llvm_scalar
from tkdebug.compiler.targets.target import BF16_CONVERSIONS

# The narrowest integers of cvt: the registers that hold bytes have 16 bits.
_NARROWEST_BITS = 16
_PTX_TYPES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_ASM_LETTERS = {
    "half": "h", "bfloat": "h", "float": "f", "double": "d", "i16": "h", "i32": "r", "i64": "l",
}  # fmt: skip


def _target(op: Operation) -> str:
    return llvm_scalar(element_of(op.result.type))


def _integer_cast(name: str) -> ElementRule:
    def rule(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
        return ctx.emit.cast(name, x, _target(op))

    return rule


def _from_integer(name: str) -> ElementRule:
    def rule(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
        # An i1 is 0 or 1, of whatever sign.
        return ctx.emit.cast("uitofp" if x.type == "i1" else name, x, _target(op))

    return rule


def _to_integer(is_signed: bool) -> ElementRule:
    def rule(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
        emit, target = ctx.emit, _target(op)
        if x.type in ("half", "bfloat"):
            x = emit.cast("fpext", x, "float")
        bits = max(TYPE_BITS[target], _NARROWEST_BITS)
        # LLVM's fptosi is poison out of range, and no intrinsic gives 16 bits.
        whole = emit.asm(
            f"cvt.rzi.{'s' if is_signed else 'u'}{bits}.{_PTX_TYPES[x.type]} $0, $1;",
            f"={_ASM_LETTERS[f'i{bits}']},{_ASM_LETTERS[x.type]}",
            f"i{bits}",
            (x,),
            side_effects=False,
        )
        return emit.cast("trunc", whole, target)

    return rule


def _between_floats(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
    """Convert between float types; narrower targets round to nearest, ties to even."""
    target = _target(op)
    if x.type == target:
        return x
    have, want = TYPE_BITS[x.type], TYPE_BITS[target]
    if have == want:
        x = ctx.emit.cast("fpext", x, "float")
    return ctx.emit.cast("fpext" if have < want else "fptrunc", x, target)


def _toward_zero(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
    """Round to zero (cvt.rz): numbers beyond the largest one give it, infinity stays infinity."""
    target = _target(op)
    if x.type == "double" and target == "bfloat":
        # Two truncations are one; cvt.bf16.f64 only exists from sm_90 on.
        x = _truncated(ctx, x, "float")
    if TYPE_BITS[x.type] == TYPE_BITS[target] and x.type != target:
        x = ctx.emit.cast("fpext", x, "float")
    if TYPE_BITS[x.type] <= TYPE_BITS[target]:
        return ctx.emit.cast("fpext", x, target)
    return _truncated(ctx, x, target)


def _truncated(ctx: Lowering, x: LLVMValue, target: str) -> LLVMValue:
    if target == "bfloat" and not ctx.target.has(BF16_CONVERSIONS):
        return _upper_half(ctx, x)
    register = target if target in ("float", "double") else "i16"
    result = ctx.emit.asm(
        f"cvt.rz.{_PTX_TYPES[target]}.{_PTX_TYPES[x.type]} $0, $1;",
        f"={_ASM_LETTERS[target]},{_ASM_LETTERS[x.type]}",
        register,
        (x,),
        side_effects=False,
    )
    return ctx.from_bits(result, target)


def _upper_half(ctx: Lowering, x: LLVMValue) -> LLVMValue:
    """A float as bf16, its lower bits cut off; a NaN stays one, wherever its bits are."""
    emit = ctx.emit
    half = emit.cast("trunc", emit.lshr(ctx.to_bits(x), 16), "i16")
    kept = emit.select(emit.fcmp("uno", x, x), integer("i16", 0x7FFF), half)
    return ctx.from_bits(kept, "bfloat")


_lower_toward_zero = per_element(_toward_zero)
_lower_between_floats = per_element(_between_floats)


def lower_float_to_float(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """tt.fp_to_fp, arith.extf and arith.truncf."""
    if floats8.involves_float8(op):
        return (floats8.convert(ctx, op, x),)
    if floats8.rounds_toward_zero(op):
        return _lower_toward_zero(ctx, op, x)
    return _lower_between_floats(ctx, op, x)


_RULES: dict[str, ElementRule] = {
    arith.ExtSI.name: _integer_cast("sext"),
    arith.ExtUI.name: _integer_cast("zext"),
    arith.TruncI.name: _integer_cast("trunc"),
    arith.SIToFP.name: _from_integer("sitofp"),
    arith.UIToFP.name: _from_integer("uitofp"),
    arith.FPToSI.name: _to_integer(is_signed=True),
    arith.FPToUI.name: _to_integer(is_signed=False),
}

LOWERINGS: dict[str, Lower] = {
    **{name: per_element(rule) for name, rule in _RULES.items()},
    arith.ExtF.name: lower_float_to_float,
    arith.TruncF.name: lower_float_to_float,
    tt.FpToFp.name: lower_float_to_float,
}
