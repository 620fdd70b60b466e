"""PTX's `cvt` (PTX ISA, "Data Movement and Conversion Instructions: cvt") on raw bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tkdebug.interpreter.numerics import fp8, rounding
from tkdebug.interpreter.ptx.operands import (
    DIRECTED,
    FLOATS,
    NotUnderstoodError,
    Operand,
    Reader,
    half_of,
)

_FP8 = {"e4m3x2": "f8E4M3FN", "e5m2x2": "f8E5M2"}
_DTYPES = {
    "f16": torch.float16,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}
# Modifiers that round to a whole number, by the names of `rounding`.
_WHOLE = {"rni": "rn", "rzi": "rz", "rmi": "rd", "rpi": "ru"}


def convert(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """The instruction cvt."""
    if len(r.types) != 2:
        raise NotUnderstoodError(r.text)
    wanted, given = r.types
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
    r.allow("rna", "sat", "satfinite", *DIRECTED, *_WHOLE)
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


def _pair(r: Reader, operands: list[Operand], wanted: str, given: str) -> Tensor:
    r.allow("satfinite", "rz")
    if given == "f32" and wanted in ("f16x2", "bf16x2") and len(operands) == 2:
        half = wanted.removesuffix("x2")
        r.allow()
        high, low = (r.raw(r.float(o, "f32"), half) for o in operands)
        return low | (high << 16)
    if given == "f32" and wanted in _FP8 and len(operands) == 2:
        high, low = (_fp8_bits(r.float(o, "f32"), "f32", wanted) for o in operands)
        return low | (high << 8)
    if given == "f16x2" and wanted in _FP8:
        parts = (r.float(half_of(r, operands[0], place), "f16") for place in (1, 0))
        high, low = (_fp8_bits(part, "f16", wanted) for part in parts)
        return low | (high << 8)
    if given in _FP8 and wanted == "f16x2":
        raw = r.integer(operands[0], "b16")
        low, high = (
            r.raw(
                ((raw >> (8 * place)) & 255)
                .to(torch.uint8)
                .view(_DTYPES[_FP8[given]])
                .to(torch.float16),
                "f16",
            )
            for place in (0, 1)
        )
        return low | (high << 16)
    raise NotUnderstoodError(r.text)


def _fp8_bits(value: Tensor, source: str, wanted: str) -> Tensor:
    stored = fp8.convert(value, source, _FP8[wanted], _DTYPES, False)
    return stored.view(torch.uint8).to(torch.int64)
