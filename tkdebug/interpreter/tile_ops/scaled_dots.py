"""Microscaled matrix products of the whole batch.

Elements are widened, scaled in the 16-bit format that the GPU's software path uses (bf16, or fp16
when an operand is fp16), and multiplied with fp32 sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# The magnitudes of e2m1 by its low three bits (OCP MX specification, table 5).
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E8M0_NAN = 255


def dot_scaled(
    run: Evaluator,
    view: tt.DotScaled,
    a: TileValue,
    b: TileValue,
    acc: TileValue,
    *scales: TileValue,
) -> TileValue:
    """tt.dot_scaled."""
    dtype = torch.float16 if "fp16" in (view.lhs_format, view.rhs_format) else torch.bfloat16
    rest = list(scales)
    x = _elements(run, a, view.a.type, view.lhs_format, -1 if view.lhs_k_pack else -2)
    if view.lhs_scale is not None:
        x = _scaled(run, x.to(dtype), rest.pop(0), view.lhs_scale.type, view.fast_math)
    y = _elements(run, b, view.b.type, view.rhs_format, -2 if view.rhs_k_pack else -1)
    if view.rhs_scale is not None:
        columns = y.transpose(-1, -2).to(dtype)
        y = _scaled(run, columns, rest.pop(0), view.rhs_scale.type, view.fast_math)
        y = y.transpose(-1, -2)
    total = run.full(acc, view.accumulator.type)
    return total + torch.matmul(x.to(dtype).float(), y.to(dtype).float())


def _elements(run: Evaluator, value: TileValue, type_: ir.Type, format_: str, axis: int) -> Tensor:
    """The numbers of an operand; e2m1 unpacked along `axis`."""
    tile = run.full(value, type_)
    if format_ != "e2m1":
        return tile.float() if tile.element_size() == 1 else tile
    table = torch.tensor([*_E2M1, *(-v for v in _E2M1)], device=tile.device)
    codes = tile.to(torch.int64)
    pair = (table[codes & 15], table[(codes >> 4) & 15])
    return torch.stack(pair, dim=axis if axis == -1 else -2).flatten(
        *((-2, -1) if axis == -1 else (-3, -2))
    )


def _scaled(
    run: Evaluator, tile: Tensor, scale: TileValue, type_: ir.Type, fast_math: bool
) -> Tensor:
    """Rows times the scales of their groups along the last axis."""
    factors = run.full(scale, type_)
    group = tile.shape[-1] // factors.shape[-1]
    if factors.is_floating_point():
        spread = factors.float().to(tile.dtype)
        return tile * spread.repeat_interleave(group, -1)
    codes = factors.to(torch.int64) & 255
    powers = torch.ldexp(torch.ones_like(codes, dtype=torch.float64), codes - 127)
    spread = powers.to(tile.dtype).repeat_interleave(group, -1)
    product = tile * spread
    if fast_math:
        return product
    missing = (codes == _E8M0_NAN).repeat_interleave(group, -1)
    return torch.where(missing, float("nan"), product)
