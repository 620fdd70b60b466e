"""PTX's `cvt` (PTX ISA, "Data Movement and Conversion Instructions: cvt") on raw bits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tkdebug.interpreter.numerics import fp8, rounding
from tkdebug.interpreter.ptx.integers import pack
from tkdebug.interpreter.ptx.operands import (
    DIRECTED,
    FLOATS,
    NotUnderstoodError,
    Operand,
    Reader,
    parts_of,
)

_FP8 = {"e4m3x2": "f8E4M3FN", "e5m2x2": "f8E5M2"}
_DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}
# The values of e2m1 without their sign (OCP Microscaling Formats, "FP4").
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_Decode = Callable[[Reader, Operand], list[Tensor]]
# Modifiers that round to a whole number, by the names of `rounding`.
_WHOLE = {"rni": "rn", "rzi": "rz", "rmi": "rd", "rpi": "ru"}


def convert(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """The instruction cvt."""
    if "pack" in r.modifiers:
        return pack(r, operands)
    if len(r.types) != 2:
        raise NotUnderstoodError(r.text)
    wanted, given = r.types
    if len(operands) == 3:
        raise NotUnderstoodError(r.text)
    if wanted.endswith("x2") or given.endswith("x2"):
        return _pair(r, operands, wanted, given)
    operand, *others = operands
    if others:
        raise NotUnderstoodError(r.text)
    if r.is_float(given):
        x = r.float(operand, given)
        return _from_float(r, x, wanted, given) if r.is_float(wanted) else _whole(r, x, wanted)
    value = r.integer(operand, given)
    if r.is_float(wanted):
        return _from_integer(r, value, wanted, given)
    r.allow()
    return r.raw(value, wanted)


def _from_integer(r: Reader, value: Tensor, wanted: str, given: str) -> Tensor:
    r.allow(*DIRECTED)
    dtype = FLOATS[wanted][0] if wanted in ("f32", "f64") else torch.float64
    mode = r.rounding(DIRECTED, "rn")
    return r.raw(rounding.from_integer(torch, mode, dtype, given == "u64", value), wanted)


def _from_float(r: Reader, x: Tensor, wanted: str, given: str) -> Tensor:
    r.allow("rna", "sat", "satfinite", "relu", *DIRECTED, *_WHOLE)
    x = _limited(r, x, wanted)
    if wanted == "tf32":
        return _tf32(r, x)
    if whole := r.rounding(_WHOLE, ""):
        x = rounding.whole(torch, whole, x)
    if "sat" in r.modifiers:
        x = x.nan_to_num(nan=0.0).clamp(0.0, 1.0)
    mode = r.rounding(DIRECTED, "rn")
    if wanted == "f16" and mode != "rn":
        if mode != "rz" or given == "f64":
            raise NotUnderstoodError(r.text)
        x = fp8.convert(x, given, "f16", _DTYPES, True)
    elif mode != "rn":
        wide = x.double()
        x = rounding.rounded(torch, (wide, torch.zeros_like(wide)), FLOATS[wanted][0], mode)
    return r.raw(x, wanted)


def _whole(r: Reader, x: Tensor, wanted: str) -> Tensor:
    """A float to an integer, toward zero unless the instruction says otherwise."""
    r.allow("sat", *_WHOLE)
    mode = r.rounding(_WHOLE, "rz")
    width, unsigned = r.width(wanted), wanted[0] == "u"
    if width >= 32:
        dtype = torch.int32 if width == 32 else torch.int64
        return r.raw(rounding.to_integer(torch, mode, dtype, unsigned, x), wanted)
    low, high = (0, (1 << width) - 1) if unsigned else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    value = rounding.whole(torch, mode, x.double()).nan_to_num(0.0).clamp(low, high)
    return r.raw(value, wanted)


def _tf32(r: Reader, x: Tensor) -> Tensor:
    """fp32 to the ten mantissa bits of tf32: rna is nearest, ties away from zero."""
    bits = r.raw(x, "f32")
    special = ~torch.isfinite(x)
    if "rna" in r.modifiers:
        rounded = bits + 0x1000
    elif "rz" in r.modifiers:
        rounded = bits
    else:
        rounded = bits + 0xFFF + ((bits >> 13) & 1)
    return torch.where(special, bits, rounded & 0xFFFFE000)


def _limited(r: Reader, x: Tensor, wanted: str) -> Tensor:
    """A float before it is rounded to a type, as .relu and .satfinite have it."""
    if "relu" in r.modifiers:
        x = x.clamp(min=0)
    if "satfinite" in r.modifiers and wanted in ("f16", "bf16"):
        limit = torch.finfo(FLOATS[wanted][0]).max
        x = x.clamp(-limit, limit)
    return x


def _pair(r: Reader, operands: list[Operand], wanted: str, given: str) -> Tensor:
    """Two at once: of two f32, the first goes to the upper part; or of both parts of one word."""
    r.allow("satfinite", "relu", "rz")
    if given == "f32" and len(operands) == 2:
        high, low = (r.float(operand, "f32") for operand in operands)
    elif given in ("f16x2", "bf16x2") and wanted in _FP8 and len(operands) == 1:
        half = given.removesuffix("x2")
        low, high = (r.float(part, half) for part in parts_of(r, operands[0], 16))
    elif given in _DECODED and len(operands) == 1 and "rz" not in r.modifiers:
        low, high = _DECODED[given](r, operands[0])
        if given == "ue8m0x2" and wanted != "bf16x2":
            raise NotUnderstoodError(r.text)
    else:
        raise NotUnderstoodError(r.text)
    if wanted in ("f16x2", "bf16x2"):
        half = wanted.removesuffix("x2")
        low, high = (_half_bits(r, x, half) for x in (low, high))
        return low | (high << 16)
    if "satfinite" not in r.modifiers or "rz" in r.modifiers:
        raise NotUnderstoodError(r.text)
    if wanted == "e2m1x2" and given == "f32":
        return _e2m1_bits(_limited(r, low, wanted)) | (_e2m1_bits(_limited(r, high, wanted)) << 4)
    if wanted not in _FP8:
        raise NotUnderstoodError(r.text)
    low, high = (_fp8_bits(_limited(r, x, wanted), wanted) for x in (low, high))
    return low | (high << 8)


def _half_bits(r: Reader, x: Tensor, half: str) -> Tensor:
    x = _limited(r, x, half)
    if "rz" in r.modifiers:
        x = fp8.convert(x, "f32", half, _DTYPES, True)
    return r.raw(x, half)


def _fp8_bits(value: Tensor, wanted: str) -> Tensor:
    stored = fp8.convert(value.float(), "f32", _FP8[wanted], _DTYPES, False)
    return stored.view(torch.uint8).to(torch.int64)


def _e2m1_bits(x: Tensor) -> Tensor:
    """fp32 as four bits: to the nearest, of two the even one; NaN to the largest."""
    magnitude = x.abs()
    code = torch.zeros_like(x, dtype=torch.int64)
    for place, (below, above) in enumerate(pairwise(_E2M1)):
        middle = (below + above) / 2
        # A tie goes to the code with an even last bit.
        code += magnitude >= middle if place % 2 else magnitude > middle
    return torch.where(x.isnan(), 7, code | (x.signbit().to(torch.int64) << 3))


def _from_fp8(dtype: torch.dtype) -> _Decode:
    def decode(r: Reader, operand: Operand) -> list[Tensor]:
        raw = r.integer(operand, "b16")
        return [
            ((raw >> (8 * place)) & 255).to(torch.uint8).view(dtype).to(torch.float32)
            for place in (0, 1)
        ]

    return decode


def _from_e2m1(r: Reader, operand: Operand) -> list[Tensor]:
    raw = r.integer(operand, "b8")
    values = torch.tensor([*_E2M1, *(-value for value in _E2M1)], device=raw.device)
    return [values[(raw >> (4 * place)) & 15] for place in (0, 1)]


def _from_ue8m0(r: Reader, operand: Operand) -> list[Tensor]:
    """Powers of two: an exponent with a bias of 127, all ones for NaN."""
    raw = r.integer(operand, "b16")
    codes = [(raw >> (8 * place)) & 255 for place in (0, 1)]
    return [
        torch.where(code == 255, torch.nan, (code - 127).double().exp2()).float() for code in codes
    ]


_DECODED: dict[str, _Decode] = {
    "e4m3x2": _from_fp8(torch.float8_e4m3fn),
    "e5m2x2": _from_fp8(torch.float8_e5m2),
    "e2m1x2": _from_e2m1,
    "ue8m0x2": _from_ue8m0,
}
