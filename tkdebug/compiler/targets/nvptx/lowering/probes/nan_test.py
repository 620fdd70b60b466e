"""Whether one of many floats is a NaN, or not finite, as one piece of PTX.

A comparison tests two of them for NaNs, and takes in what those before it found. In LLVM IR the
chain of so many conditions takes InstCombine longer than the rest of a matrix product: it asks of
each whether it follows from the others.

For infinities each is multiplied by 0 and added up, which gives a NaN if one is not finite. Which
it is, and whether it is one that counts, is tested only then.

Source: PTX ISA, "Comparison and Selection Instructions: setp", "Floating Point Instructions: fma".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.arithmetic import FLOAT_SUFFIX
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX
from tkdebug.compiler.targets.nvptx.lowering.types import Registers
from tkdebug.compiler.targets.target import BF16_ARITHMETIC

# With more groups, masks are looked at only if any value is a NaN, masked on or off.
_FEW_GROUPS = 2
# Suffix -> the register type, 0, Inf and -Inf.
_NUMBERS = {
    "f16": ("b16", "0x0000", "0x7C00", "0xFC00"),
    "bf16": ("b16", "0x0000", "0x7F80", "0xFF80"),
    "f32": ("f32", "0f00000000", "0f7F800000", "0fFF800000"),
    "f64": ("f64", "0d0000000000000000", "0d7FF0000000000000", "0dFFF0000000000000"),
}


class _Values:
    """Floats of one type that are tested, and the PTX that tests them.

    Args:
        ctx: the kernel.
        groups: registers of half, bfloat, float or double.
        masks: i1 of each group: whether it counts; None where all do.
    """

    def __init__(
        self, ctx: Lowering, groups: Sequence[Registers], masks: Sequence[LLVMValue] | None
    ) -> None:
        if masks is not None and all(mask.constant == 1 for mask in masks):
            masks = None
        self._ctx = ctx
        self._groups = groups
        self._masks = masks
        self.text = InlinePTX(["i32"])
        type_ = groups[0][0].type
        # The upper half of a float; arithmetic and comparisons of bf16 exist from sm_90 on.
        self._is_widened = type_ == "bfloat" and not ctx.target.has(BF16_ARITHMETIC)
        self.suffix = "f32" if self._is_widened else FLOAT_SUFFIX[type_]
        self.text.put("{", ".reg .pred here;")
        if self._is_widened:
            self.text.put(".reg .b16 low;", ".reg .f32 x, y;", "mov.b16 low, 0;")
        self.has_many = masks is not None and len(groups) > _FEW_GROUPS

    @property
    def all(self) -> Registers:
        """All values, those that are masked off too."""
        return [value for group in self._groups for value in group]

    def test(self, test: Callable[[Registers, str], None], found: str) -> None:
        """Test all values that count; `test` adds to a predicate what it finds of some."""
        if self._masks is None:
            test(self.all, found)
            return
        for group, mask in zip(self._groups, self._masks, strict=True):
            if mask.constant == 1:
                test(group, found)
            elif mask.constant is None:
                self.text.put("setp.ne.u32 here, 0, 0;")
                test(group, "here")
                both = f"and.pred here, here, {self.text.use(mask)};"
                self.text.put(both, f"or.pred {found}, {found}, here;")

    def compare(self, values: Registers, found: str) -> None:
        """Add to `found` whether one of them is a NaN."""
        names = self._names(values)
        for pair in zip(names[::2], [*names[1::2], names[-1]], strict=False):
            one, other = self._wide(*pair)
            self.text.put(f"setp.nan.or.{self.suffix} {found}, {one}, {other}, {found};")

    def add_up(self) -> None:
        """Make `sum` a NaN if any value is not finite, masked on or off."""
        for name in self._names(self.all):
            (one,) = self._wide(name)
            self.text.put(f"fma.rn.{self.suffix} sum, {one}, zero, sum;")

    def equal(self, values: Registers, found: str) -> None:
        """Add to `found` whether one of them is what `number` is."""
        for name in self._names(values):
            (one,) = self._wide(name)
            self.text.put(f"setp.eq.or.{self.suffix} {found}, {one}, number, {found};")

    def _names(self, values: Registers) -> list[str]:
        return [self.text.use(_operand(self._ctx, value)) for value in dict.fromkeys(values)]

    def _wide(self, *names: str) -> tuple[str, ...]:
        if not self._is_widened:
            return names
        wide = ("x", "y")[: len(names)]
        self.text.put(*(f"mov.b32 {w}, {{low, {n}}};" for w, n in zip(wide, names, strict=True)))
        return wide


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
    values = _Values(ctx, groups, masks)
    text = values.text
    text.put(".reg .pred any;", "setp.ne.u32 any, 0, 0;")
    if values.has_many:
        values.compare(values.all, "any")
        text.put("@!any bra NONE;", "setp.ne.u32 any, 0, 0;")
    values.test(values.compare, "any")
    if values.has_many:
        text.put("NONE:")
    text.put(f"selp.u32 $0, {bit}, 0, any;", "}")
    (found,) = text.emit(ctx, side_effects=False)
    return found


def any_not_finite(
    ctx: Lowering,
    groups: Sequence[Registers],
    masks: Sequence[LLVMValue] | None,
    bits: tuple[int, int],
    infinities: Collection[float],
) -> LLVMValue:
    """i32: bits of what this thread has.

    Args:
        ctx: the kernel.
        groups: registers of half, bfloat, float or double.
        masks: i1 of each group: whether it counts; None where all do.
        bits: what is given for a NaN, and for a NaN or one of these infinities.
        infinities: those that count.
    """
    values, (of_nan, of_inf) = _Values(ctx, groups, masks), bits
    text, suffix = values.text, values.suffix
    type_, zero, positive, negative = _NUMBERS[suffix]
    text.put(f".reg .{type_} sum, zero, number;", ".reg .pred any, inf;", "mov.u32 $0, 0;")
    text.put(f"mov.{type_} zero, {zero};", f"mov.{type_} sum, {zero};")
    values.add_up()
    text.put(f"setp.nan.{suffix} any, sum, sum;", "@!any bra NONE;")
    text.put("setp.ne.u32 any, 0, 0;", "setp.ne.u32 inf, 0, 0;")
    values.test(values.compare, "any")
    for number in sorted(infinities):
        text.put(f"mov.{type_} number, {positive if number > 0 else negative};")
        values.test(values.equal, "inf")
    text.put(f"selp.u32 $0, {of_nan | of_inf}, 0, any;", f"@inf or.b32 $0, $0, {of_inf};")
    text.put("NONE:", "}")
    (found,) = text.emit(ctx, side_effects=False)
    return found


def _operand(ctx: Lowering, value: LLVMValue) -> LLVMValue:
    """The bits of what PTX has no register of its own for."""
    return ctx.to_bits(value) if value.type in ("half", "bfloat") else value
