"""Float conversions with a rounding mode, and the fp8 formats.

Formats: OCP 8-bit floating point specification (E4M3FN, E5M2); the FNUZ variants have no
negative zero and one NaN (0x80). E4M3B11FNUZ is upstream's fp8e4b15: bias 15, no NaN or infinity,
the sign bit kept. Conversions to fp8 saturate to the largest finite value (cvt.satfinite).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LARGEST = {
    "f8E4M3FN": 448.0,
    "f8E5M2": 57344.0,
    "f8E4M3FNUZ": 240.0,
    "f8E5M2FNUZ": 57344.0,
    "f8E4M3B11FNUZ": 1.75,
}


def convert(
    value: Tensor,
    source: str,
    target: str,
    dtypes: dict[str, Any],
    toward_zero: bool,
) -> Tensor:
    """Convert `value` from IR float type `source` to `target`."""
    wide = _widened(value, source)
    if wide.dtype == torch.float64 and target not in ("f32", "f64"):
        wide = rounded_to_odd(wide)
    if target == "f8E4M3B11FNUZ":
        return _to_e4b15(wide, toward_zero)
    if target in _LARGEST:
        limit = _LARGEST[target]
        clamped = wide.clamp(-limit, limit)
        if toward_zero:
            return _toward_zero(clamped, dtypes[target])
        return clamped.to(dtypes[target])
    if toward_zero and target != "f64":
        return _toward_zero(wide, dtypes[target])
    return wide.to(dtypes[target])


def in_float32(
    fn: Callable[..., Tensor], source: str, target: str, dtypes: dict[str, Any]
) -> Callable[..., Tensor]:
    """Return `fn` for tiles of fp8 type `source`, computed in fp32: torch has no fp8 arithmetic.

    The result is rounded to `target` if that is an fp8 type too; a comparison's is not.
    """

    def compute(*operands: Tensor, out: Tensor | None = None) -> Tensor:
        result = fn(*(_widened(operand, source) for operand in operands))
        if target in _LARGEST:
            result = convert(result, "f32", target, dtypes, False)
        return result if out is None else out.copy_(result)

    return compute


def _widened(value: Tensor, source: str) -> Tensor:
    if source == "f8E4M3B11FNUZ":
        return _from_e4b15(value)
    if source == "f64":
        return value
    return value.to(torch.float32)


def rounded_to_odd(wide: Tensor) -> Tensor:
    """Doubles as fp32, inexact ones at the neighbour with an odd significand.

    A second rounding, to at most 22 bits, then gives what one rounding gives (Boldo, Melquiond:
    Emulation of FMA and correctly rounded sums, 2008).
    """
    near = wide.to(torch.float32)
    bits = near.view(torch.int32)
    down = torch.where(near.double().abs() > wide.abs(), bits - 1, bits)
    inexact = (near.double() != wide) & ~wide.isnan()
    return torch.where(inexact, down | 1, bits).view(torch.float32)


def _toward_zero(wide: Tensor, target: Any) -> Tensor:
    """Convert to `target`, rounding toward zero: to nearest, then a step back where needed."""
    rounded = wide.to(target)
    too_far = rounded.to(wide.dtype).abs() > wide.abs()
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32}[rounded.element_size()]
    bits = rounded.view(integer)
    # One less in the bit pattern is one step toward zero in magnitude, for either sign.
    stepped = torch.where(too_far, bits - 1, bits).to(integer)
    if target in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
        # There is no negative zero; its bits are the NaN's.
        stepped = stepped.masked_fill(too_far & (stepped == -128), 0)
    return stepped.view(target)


def _from_e4b15(value: Tensor) -> Tensor:
    bits = value.to(torch.int32)
    sign = 1.0 - 2.0 * ((bits >> 7) & 1).float()
    exponent, mantissa = (bits >> 3) & 15, (bits & 7).float()
    normal = (1.0 + mantissa / 8.0) * torch.exp2((exponent - 15).float())
    subnormal = mantissa / 8.0 * 2.0**-14
    return sign * torch.where(exponent == 0, subnormal, normal)


def _to_e4b15(wide: Tensor, toward_zero: bool) -> Tensor:
    magnitude = (
        wide.abs().clamp(max=_LARGEST["f8E4M3B11FNUZ"]).nan_to_num(_LARGEST["f8E4M3B11FNUZ"])
    )
    # Same 4+3 bit layout as E4M3FN (bias 7) scaled by 2**8.
    scaled = (magnitude * 256.0).clamp(max=448.0)
    e4m3 = torch.float8_e4m3fn
    bits = (_toward_zero(scaled, e4m3) if toward_zero else scaled.to(e4m3)).view(torch.uint8)
    return bits | (torch.signbit(wide).to(torch.uint8) << 7)
