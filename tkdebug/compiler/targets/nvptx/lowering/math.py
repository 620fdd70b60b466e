"""Lowering of the math dialect and of libdevice's functions.

fp32 approximations are upstream's: exp is a product with log2(e) and ex2.approx; exp2, sqrt and
rsqrt are the .approx.ftz instructions (without .ftz where the function's attribute
`flush_subnormals` is false). A function whose class names one of libdevice is lowered to it. fp64
is libdevice's or rounded to nearest. Half precision is computed in fp32.

Source: PTX ISA, "Floating Point Instructions"; libdevice User's Guide, NVIDIA.
"""

from __future__ import annotations

import math

from tkdebug.compiler.dialects import math as math_ops
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, floating, integer
from tkdebug.compiler.targets.nvptx.lowering.arithmetic import (
    FLOAT_SUFFIX,
    ElementRule,
    in_float32,
    per_element,
)
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, llvm_type


def _in_float(rule: ElementRule) -> ElementRule:
    """Return a rule for all floats from one for fp32 and fp64: halves are computed in fp32."""

    def widened(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
        if x.type not in ("half", "bfloat"):
            return rule(ctx, op, x)
        wide = ctx.emit.cast("fpext", x, "float")
        return ctx.emit.cast("fptrunc", rule(ctx, op, wide), x.type)

    return widened


def _instruction(single: str, double: str) -> ElementRule:
    """Return the rule of two functions, for fp32 and fp64; `__nv_` names are libdevice's."""

    def rule(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
        name = single if x.type == "float" else double
        if not ctx.flushes_subnormals:
            name = name.replace(".ftz", "")
        if name.startswith("__nv_"):
            return ctx.emit.function(x.type, name, (x,))
        return ctx.emit.intrinsic(name, x)

    return _in_float(rule)


@_in_float
def _exp(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
    if x.type == "double":
        return ctx.emit.function("double", "__nv_exp", (x,))
    scaled = ctx.emit.binary("fmul", x, floating("float", math.log2(math.e)))
    return ctx.emit.intrinsic("llvm.nvvm.ex2.approx.f", scaled)


def _any_float(name: str) -> ElementRule:
    """Return the rule of an intrinsic that every float type has."""

    def rule(ctx: Lowering, op: Operation, *operands: LLVMValue) -> LLVMValue:
        return ctx.emit.intrinsic(f"llvm.{name}.{FLOAT_SUFFIX[operands[0].type]}", *operands)

    return rule


def _absolute_float(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
    if x.type == "i8":
        return ctx.emit.bit_and(x, 0x7F)
    return ctx.emit.intrinsic(f"llvm.fabs.{FLOAT_SUFFIX[x.type]}", x)


def _absolute_integer(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
    """The absolute value; the lowest integer has no opposite and stays."""
    negative = ctx.emit.icmp("slt", x, 0)
    opposite = ctx.emit.binary("sub", integer(x.type, 0), x)
    return ctx.emit.select(negative, opposite, x)


def _external(ctx: Lowering, op: Operation, *operands: LLVMValue) -> LLVMValue:
    """Call libdevice by the symbol that the front end chose."""
    return ctx.emit.function(llvm_type(op.result.type), tt.ExternElementwise(op).symbol, operands)


_RULES: dict[str, ElementRule] = {
    **{
        view.name: _instruction(f"__nv_{view.libdevice}f", f"__nv_{view.libdevice}")
        for view in OPS.values()
        if issubclass(view, math_ops.FloatFunction) and view.libdevice
    },
    math_ops.Exp.name: _exp,
    math_ops.Exp2.name: _instruction("llvm.nvvm.ex2.approx.ftz.f", "__nv_exp2"),
    math_ops.Sqrt.name: _instruction("llvm.nvvm.sqrt.approx.ftz.f", "llvm.nvvm.sqrt.rn.d"),
    math_ops.Rsqrt.name: _instruction("llvm.nvvm.rsqrt.approx.ftz.f", "__nv_rsqrt"),
    math_ops.Floor.name: _any_float("floor"),
    math_ops.Ceil.name: _any_float("ceil"),
    math_ops.AbsF.name: _absolute_float,
    math_ops.AbsI.name: _absolute_integer,
    tt.PreciseSqrt.name: _instruction("llvm.nvvm.sqrt.rn.f", "llvm.nvvm.sqrt.rn.d"),
    tt.ExternElementwise.name: _external,
}

LOWERINGS: dict[str, Lower] = {
    math_ops.Fma.name: in_float32(per_element(_any_float("fma"))),
    **{name: per_element(rule) for name, rule in _RULES.items()},
}
