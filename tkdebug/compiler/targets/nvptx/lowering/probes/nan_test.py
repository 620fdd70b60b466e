"""Whether one of many floats is a NaN, as one piece of PTX.

A comparison tests two of them, and takes in what those before it found. In LLVM IR the chain of so
many conditions takes InstCombine longer than the rest of a matrix product: it asks of each whether
it follows from the others.

Source: PTX ISA, "Comparison and Selection Instructions: setp".
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.arithmetic import FLOAT_SUFFIX
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX
from tkdebug.compiler.targets.nvptx.lowering.types import Registers
from tkdebug.compiler.targets.target import BF16_ARITHMETIC

# With more groups, masks are looked at only if any value is a NaN, masked on or off.
_FEW_GROUPS = 2


def any_nan(
    ctx: Lowering, groups: Sequence[Registers], masks: Sequence[LLVMValue] | None, bit: int
) -> LLVMValue:
    """i32: `bit` where this thread has a NaN, else 0.

    Args:
        ctx: the kernel.
        groups: registers of half, bfloat, float or double.
        masks: i1 of each group: whether it counts; None where all do.
        bit: what is given.
    """
    if masks is not None and all(mask.constant == 1 for mask in masks):
        masks = None
    text = InlinePTX(["i32"])
    type_ = groups[0][0].type
    # The upper half of a float; a comparison of bf16 exists from sm_90 on.
    is_widened = type_ == "bfloat" and not ctx.target.has(BF16_ARITHMETIC)
    suffix = "f32" if is_widened else FLOAT_SUFFIX[type_]
    text.put("{", ".reg .pred any, here;", "setp.ne.u32 any, 0, 0;")
    if is_widened:
        text.put(".reg .b16 low;", ".reg .f32 x, y;", "mov.b16 low, 0;")

    def compare(values: Registers, found: str) -> None:
        """Add to `found` whether one of them is a NaN."""
        registers = [text.use(_operand(ctx, value)) for value in dict.fromkeys(values)]
        for one, other in zip(registers[::2], [*registers[1::2], registers[-1]], strict=False):
            if is_widened:
                text.put(f"mov.b32 x, {{low, {one}}};", f"mov.b32 y, {{low, {other}}};")
                one, other = "x", "y"
            text.put(f"setp.nan.or.{suffix} {found}, {one}, {other}, {found};")

    has_many = masks is not None and len(groups) > _FEW_GROUPS
    if masks is None or has_many:
        compare([value for group in groups for value in group], "any")
    if has_many:
        text.put("@!any bra NONE;", "setp.ne.u32 any, 0, 0;")
    if masks is not None:
        for group, mask in zip(groups, masks, strict=True):
            if mask.constant == 1:
                compare(group, "any")
            elif mask.constant is None:
                text.put("setp.ne.u32 here, 0, 0;")
                compare(group, "here")
                text.put(f"and.pred here, here, {text.use(mask)};", "or.pred any, any, here;")
    if has_many:
        text.put("NONE:")
    text.put(f"selp.u32 $0, {bit}, 0, any;", "}")
    (found,) = text.emit(ctx, side_effects=False)
    return found


def _operand(ctx: Lowering, value: LLVMValue) -> LLVMValue:
    """The bits of what PTX has no register of its own for."""
    return ctx.to_bits(value) if value.type in ("half", "bfloat") else value
