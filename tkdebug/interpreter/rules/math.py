"""Elementwise mathematics, and the functions of NVIDIA's libdevice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import math, tt
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.errors import UnsupportedError
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.numerics import rounding
from tkdebug.interpreter.rules.libdevice import MEANINGS
from tkdebug.interpreter.rules.types import Rule, Rules, one
from tkdebug.interpreter.tiles.values import TileValue


def _math(function: Callable[..., Tensor]) -> Rule:
    def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        return (run.map(view.op, function, *operands),)

    return apply


def _fused(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    product: Tensor = rounding.fma(torch, "rn", x, y, z)
    return product


def fma(run: Evaluator, view: math.Fma, a: TileValue, b: TileValue, c: TileValue) -> TileValue:
    """math.fma."""
    return run.map_floats(view.op, _fused, a, b, c)


def _without_sign(value: Tensor, out: Tensor | None = None) -> Tensor:
    bits = (value.view(torch.uint8) & 0x7F).view(value.dtype)
    return bits if out is None else out.copy_(bits)


def absf(run: Evaluator, view: math.AbsF, x: TileValue) -> TileValue:
    """math.absf; torch has none for fp8."""
    is_byte = ir.element_of(view.source.type).bits == 8
    return run.map(view.op, _without_sign if is_byte else torch.abs, x)


def _precise_root(value: Tensor, out: Tensor | None = None) -> Tensor:
    # torch's own may be off by the last bit (MKL).
    exact: Tensor = rounding.sqrt(torch, "rn", value)
    return exact if out is None else out.copy_(exact)


def sqrt(run: Evaluator, view: math.Sqrt, x: TileValue) -> TileValue:
    """math.sqrt: the GPU approximates that of fp32 and rounds that of fp64 to nearest."""
    is_double = ir.element_of(view.source.type) == ir.F64
    return run.map(view.op, _precise_root if is_double else torch.sqrt, x)


def libdevice(run: Evaluator, view: tt.ExternElementwise, *operands: TileValue) -> TileValue:
    """tt.extern_elementwise."""
    meaning = MEANINGS.get(view.function)
    if meaning is None:
        where = view.op.location.primary
        raise UnsupportedError(
            f"{where.file}:{where.line}: libdevice.{view.function} is not available under "
            "interpret; it needs a GPU (its numbers have no closed form here)"
        )
    dtype = run.dtype_of(view.result.type)
    unsigned = view.unsigned

    def compute(*tensors: Tensor) -> Tensor:
        result: Tensor = meaning(torch, unsigned, *tensors).to(dtype)
        return result

    return run.map(view.op, compute, *operands)


RULES: Rules = {
    math.Exp: _math(torch.exp),
    math.Exp2: _math(torch.exp2),
    math.Log: _math(torch.log),
    math.Log2: _math(torch.log2),
    math.Sqrt: one(sqrt),
    math.Rsqrt: _math(torch.rsqrt),
    math.Sin: _math(torch.sin),
    math.Cos: _math(torch.cos),
    math.Erf: _math(torch.erf),
    math.Floor: _math(torch.floor),
    math.Ceil: _math(torch.ceil),
    math.AbsF: one(absf),
    math.AbsI: _math(torch.abs),
    math.Fma: one(fma),
    tt.PreciseDivF: _math(torch.div),
    tt.PreciseSqrt: _math(_precise_root),
    tt.ExternElementwise: one(libdevice),
}
