"""The fp8 formats, and conversions to and from them.

From sm_89 on the OCP formats have instructions for pairs; the other formats, older targets and
rounding toward zero are done with integers. Every format passes through fp32, or through half
where that holds it exactly. Conversions to fp8 saturate to the largest finite number.

Sources: PTX ISA, "Data Movement and Conversion Instructions: cvt"; OCP 8-bit Floating Point
Specification (E4M3FN, E5M2); LLVM's APFloat semantics Float8E4M3FNUZ and Float8E5M2FNUZ (one NaN,
no negative zero). E4M3B11FNUZ is upstream's fp8e4b15: bias 15, neither NaN nor infinity, the sign
kept, 1.75 the largest that conversions give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import Cast
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import PointerType, ScalarType, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, floating, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Registers, llvm_scalar
from tkdebug.compiler.targets.target import FP8_CONVERSIONS


@dataclass(frozen=True, slots=True)
class Float8:
    """An 8-bit float: sign, exponent, mantissa.

    Attributes:
        mantissa: bits of the mantissa.
        bias: the bias of the exponent.
        largest: bits of the largest finite number.
        nan: bits of the NaN that conversions give; None if there is none.
        has_negative_zero: false where 0x80 is the only NaN.
    """

    mantissa: int
    bias: int
    largest: int
    nan: int | None
    has_negative_zero: bool = True

    @property
    def step_exponent(self) -> int:
        """Exponent of the smallest positive number."""
        return 1 - self.bias - self.mantissa

    def encode(self, value: float) -> int:
        """Bits of the nearest number (ties to even), saturating to finite."""
        sign = 0x80 if math.copysign(1.0, value) < 0 else 0
        if math.isnan(value):
            return sign | self.largest if self.nan is None else self.nan
        if math.isinf(value):
            return sign | self.largest
        if value == 0:
            return sign if self.has_negative_zero else 0
        fraction, exponent = math.frexp(abs(value))
        step = max(exponent - self.mantissa - 1, self.step_exponent)
        steps = round(math.ldexp(fraction, exponent - step))
        bits = min(self.largest, steps + (step - self.step_exponent << self.mantissa))
        return 0 if not bits and not self.has_negative_zero else sign | bits


FORMATS: dict[str, Float8] = {
    "f8E4M3FN": Float8(3, 7, 0x7E, 0x7F),
    "f8E5M2": Float8(2, 15, 0x7B, 0x7F),
    "f8E4M3FNUZ": Float8(3, 8, 0x7F, 0x80, has_negative_zero=False),
    "f8E5M2FNUZ": Float8(2, 16, 0x7F, 0x80, has_negative_zero=False),
    "f8E4M3B11FNUZ": Float8(3, 15, 0x7E, None),
}


# Formats that cvt knows, as the intrinsics write them.
_HARDWARE = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
_FLOAT_BIAS, _FLOAT_MANTISSA = 127, 23
_SIGN = 0x80


def involves_float8(op: Operation) -> bool:
    """Whether operand or result of a conversion is of an fp8 type."""
    return any(_is_float8(value.type) for value in (Cast(op).source, op.result))


def rounds_toward_zero(op: Operation) -> bool:
    """Whether a conversion between floats rounds toward zero."""
    conversion = tt.FpToFp.cast(op)
    return conversion is not None and conversion.rounding == "rtz"


def _is_float8(type_: object) -> bool:
    return _name(type_) in FORMATS


def _name(type_: object) -> str:
    return str(element_of(type_))  # type: ignore[arg-type]


def convert(ctx: Lowering, op: Operation, values: Registers) -> Registers:
    """The registers of a conversion that has an fp8 type on either side."""
    source, target = _name(Cast(op).source.type), _name(op.result.type)
    if source == target:
        return values
    if source in FORMATS:
        values = _widened(ctx, values, source)
    if target in FORMATS:
        return narrowed(ctx, values, target, rounds_toward_zero(op))
    return [_resized(ctx, value, llvm_scalar(element_of(op.result.type))) for value in values]


def readable(ctx: Lowering, element: ScalarType | PointerType, values: Registers) -> Registers:
    """Values of an fp8 type as half or float; others as they are."""
    name = str(element)
    return _widened(ctx, values, name) if name in FORMATS else values


def as_float32(ctx: Lowering, format_: str, values: Registers) -> Registers:
    """Values of an fp8 type as fp32; exact."""
    return [_resized(ctx, value, "float") for value in _widened(ctx, values, format_)]


def _resized(ctx: Lowering, value: LLVMValue, type_: str) -> LLVMValue:
    """Half or float as another float type; exact for all that fp8 holds."""
    if value.type == "half" and type_ == "bfloat":
        value = ctx.emit.cast("fpext", value, "float")
    narrower = value.type == "float" and type_ in ("half", "bfloat")
    return ctx.emit.cast("fptrunc" if narrower else "fpext", value, type_)


def _distinct(
    values: Registers, convert_all: Callable[[Sequence[LLVMValue]], Registers]
) -> Registers:
    """Convert each value once, though several registers may hold it."""
    different = list(dict.fromkeys(values))
    converted = dict(zip(different, convert_all(different), strict=True))
    return [converted[value] for value in values]


# From fp8


def _widened(ctx: Lowering, values: Registers, source: str) -> Registers:
    """Return fp8 as half or float, whichever needs fewer steps."""
    if source in _HARDWARE and ctx.target.has(FP8_CONVERSIONS):
        return _distinct(values, lambda all_: _from_pairs(ctx, all_, _HARDWARE[source]))
    match source:
        case "f8E5M2":
            rule = _from_upper_byte
        case "f8E4M3B11FNUZ":
            rule = _from_half_exponent
        case _:

            def rule(ctx: Lowering, value: LLVMValue) -> LLVMValue:
                return _from_bits(ctx, value, FORMATS[source])

    return _distinct(values, lambda all_: [rule(ctx, value) for value in all_])


def _from_pairs(ctx: Lowering, values: Sequence[LLVMValue], format_: str) -> Registers:
    emit, out = ctx.emit, []
    for first in range(0, len(values), 2):
        pair = values[first : first + 2]
        word = emit.cast("zext", pair[0], "i16")
        if len(pair) == 2:
            word = emit.binary("or disjoint", emit.shl(emit.cast("zext", pair[1], "i16"), 8), word)
        both = emit.intrinsic(f"llvm.nvvm.{format_}x2.to.f16x2.rn", word)
        out += emit.elements(both, len(pair), "half")
    return out


def _from_upper_byte(ctx: Lowering, value: LLVMValue) -> LLVMValue:
    """Convert E5M2, the upper byte of a half, to half: infinities and NaN included."""
    bits = ctx.emit.shl(ctx.emit.cast("zext", value, "i16"), 8)
    return ctx.from_bits(bits, "half")


def _from_half_exponent(ctx: Lowering, value: LLVMValue) -> LLVMValue:
    """Convert fp8 with half's exponent bias to half: bits are shifted, the sign by one more."""
    wide = ctx.emit.cast("zext", value, "i16")
    magnitude = ctx.emit.shl(ctx.emit.bit_and(wide, 0x7F), 7)
    sign = ctx.emit.shl(ctx.emit.bit_and(wide, _SIGN), 8)
    return ctx.from_bits(ctx.emit.binary("or disjoint", magnitude, sign), "half")


def _from_bits(ctx: Lowering, value: LLVMValue, format_: Float8) -> LLVMValue:
    """Convert fp8 to fp32: its bits at fp32's places, times a power of two for the other bias.

    This is right for subnormals, too.
    """
    emit = ctx.emit
    wide = emit.cast("zext", value, "i32")
    magnitude = emit.shl(emit.bit_and(wide, 0x7F), _FLOAT_MANTISSA - format_.mantissa)
    sign = emit.shl(emit.bit_and(wide, _SIGN), 24)
    scaled = ctx.from_bits(emit.binary("or disjoint", magnitude, sign), "float")
    number = emit.binary("fmul", scaled, floating("float", 2.0 ** (_FLOAT_BIAS - format_.bias)))
    if format_.nan is None:
        return number
    bits = wide if format_.nan & _SIGN else emit.bit_and(wide, 0x7F)
    is_nan = emit.icmp("eq", bits, format_.nan)
    return emit.select(is_nan, floating("float", float("nan")), number)


# To fp8


def narrowed(ctx: Lowering, values: Registers, target: str, toward_zero: bool) -> Registers:
    """Floats as fp8 of format `target`, saturating, to nearest even or toward zero."""
    wide = "half" if values[0].type == "half" else "float"
    if target in _HARDWARE and ctx.target.has(FP8_CONVERSIONS) and not toward_zero:
        return _distinct(values, lambda all_: _to_pairs(ctx, all_, wide, _HARDWARE[target]))
    return _distinct(
        values,
        lambda all_: [
            _to_bits(ctx, _as_float(ctx, value, toward_zero), FORMATS[target], toward_zero)
            for value in all_
        ],
    )


def _as_float(ctx: Lowering, value: LLVMValue, toward_zero: bool = False) -> LLVMValue:
    """Return any float as fp32; an inexact double sets the last bit, unless cut `toward_zero`.

    Rounding the result to 8 bits then equals rounding once (Boldo, Melquiond: Emulation of FMA
    and correctly rounded sums, 2008).
    """
    if value.type != "double":
        return ctx.emit.cast("fpext", value, "float")
    emit = ctx.emit
    cut = emit.intrinsic("llvm.nvvm.d2f.rz", value)
    if toward_zero:
        return cut
    lost = emit.fcmp("une", emit.cast("fpext", cut, "double"), value)
    sticky = emit.cast("zext", lost, "i32")
    return ctx.from_bits(emit.binary("or", ctx.to_bits(cut), sticky), "float")


def _to_pairs(ctx: Lowering, values: Sequence[LLVMValue], wide: str, format_: str) -> Registers:
    emit = ctx.emit
    out: Registers = []
    for first in range(0, len(values), 4):
        part = list(values[first : first + 4])
        if wide == "float":
            part = [_as_float(ctx, value) for value in part]
        # The instruction takes pairs; as quads the bytes make a word that is stored as it is.
        padded = part + part[-1:] * (len(part) % 2)
        words = [
            _pair(ctx, padded[place], padded[place + 1], format_)
            for place in range(0, len(padded), 2)
        ]
        vector = emit.vector(words) if len(words) > 1 else words[0]
        octets = emit.cast("bitcast", vector, f"<{len(padded)} x i8>")
        out += emit.elements(octets, len(part), "i8")
    return out


def _pair(ctx: Lowering, low: LLVMValue, high: LLVMValue, format_: str) -> LLVMValue:
    if low.type == "float":
        return ctx.emit.intrinsic(f"llvm.nvvm.ff.to.{format_}x2.rn", high, low)
    both = ctx.emit.vector((low, high))
    return ctx.emit.intrinsic(f"llvm.nvvm.f16x2.to.{format_}x2.rn", both)


def _to_bits(ctx: Lowering, value: LLVMValue, format_: Float8, toward_zero: bool) -> LLVMValue:
    emit = ctx.emit
    magnitude = emit.intrinsic("llvm.fabs.f32", value)
    limit = floating("float", _decoded(format_, format_.largest))
    magnitude = emit.intrinsic("llvm.minnum.f32", magnitude, limit)
    normal = _normal_bits(ctx, magnitude, format_, toward_zero)
    # Below the normal numbers: how many steps of the smallest one.
    steps = emit.binary("fmul", magnitude, floating("float", 2.0**-format_.step_exponent))
    subnormal = emit.intrinsic(f"llvm.nvvm.f2i.{'rz' if toward_zero else 'rn'}", steps)
    smallest = floating("float", 2.0 ** (1 - format_.bias))
    bits = emit.select(emit.fcmp("olt", magnitude, smallest), subnormal, normal)
    sign = emit.bit_and(emit.lshr(ctx.to_bits(value), 24), _SIGN)
    signed = emit.binary("or", bits, sign)
    if not format_.has_negative_zero:
        signed = emit.select(emit.icmp("eq", bits, 0), bits, signed)
    if format_.nan is not None:
        is_nan = emit.fcmp("uno", value, value)
        signed = emit.select(is_nan, integer("i32", format_.nan), signed)
    return emit.cast("trunc", signed, "i8")


def _normal_bits(
    ctx: Lowering, magnitude: LLVMValue, format_: Float8, toward_zero: bool
) -> LLVMValue:
    """Bits of a normal number: fp32's without the mantissa's tail, under another bias."""
    emit, dropped = ctx.emit, _FLOAT_MANTISSA - format_.mantissa
    bits = ctx.to_bits(magnitude)
    if not toward_zero:
        # Half a step less one, and one more where the kept mantissa is odd: ties go to even.
        odd = emit.bit_and(emit.lshr(bits, dropped), 1)
        bits = emit.add(emit.add(bits, odd), (1 << (dropped - 1)) - 1)
    rebias = (_FLOAT_BIAS - format_.bias) << format_.mantissa
    return emit.add(emit.lshr(bits, dropped), -rebias)


def _decoded(format_: Float8, bits: int) -> float:
    """The normal number of these bits."""
    exponent = bits >> format_.mantissa
    fraction = 1 + (bits & ((1 << format_.mantissa) - 1)) / (1 << format_.mantissa)
    return fraction * 2.0 ** (exponent - format_.bias)
