"""Constants of the IR as LLVM constants.

Floats are rounded here, once, to nearest even: LLVM's text takes only exact numbers.
"""

from __future__ import annotations

import math
import struct

from tkdebug.compiler.ir.types import ScalarType
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, floating, integer
from tkdebug.compiler.targets.nvptx.lowering.float_formats import FORMATS
from tkdebug.compiler.targets.nvptx.lowering.types import llvm_scalar

_LARGEST_FLOAT32 = float.fromhex("0x1.fffffefp127")


def constant(type_: ScalarType, value: float | int) -> LLVMValue:
    """`value` as a constant of `type_`; the fp8 types saturate."""
    llvm = llvm_scalar(type_)
    if type_.is_integer:
        return integer(llvm, int(value))
    number = float(value)
    if type_.bits == 8:
        return integer(llvm, FORMATS[type_.name].encode(number))
    if llvm == "float" and math.isfinite(number) and abs(number) >= _LARGEST_FLOAT32:
        number = math.copysign(math.inf, number)
    if llvm == "half":
        return LLVMValue(llvm, f"0xH{_half_bits(number):04X}")
    if llvm == "bfloat":
        return LLVMValue(llvm, f"0xR{_bfloat_bits(number):04X}")
    return floating(llvm, number)


def _half_bits(value: float) -> int:
    try:
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    except OverflowError:
        return 0x7C00 | (0x8000 if value < 0 else 0)


def _bfloat_bits(value: float) -> int:
    """Bits of a bfloat16; a double is rounded once, not by way of fp32."""
    if math.isnan(value):
        return 0x7FC0
    if math.isinf(value):
        return 0x7F80 | (0x8000 if value < 0 else 0)
    sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
    if value == 0:
        return sign
    fraction, exponent = math.frexp(abs(value))
    # 8 significant bits from 2**-126 up, fixed steps of 2**-133 below.
    step = max(exponent - 8, -133)
    steps = round(math.ldexp(fraction, exponent - step))
    return sign | min(0x7F80, steps + (step + 133 << 7))
