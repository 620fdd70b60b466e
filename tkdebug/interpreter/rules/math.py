"""Elementwise mathematics, and the functions of NVIDIA's libdevice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.errors import UnsupportedError
from tkdebug.interpreter import rounding
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.libdevice import MEANINGS
from tkdebug.interpreter.rules.types import Rule, one
from tkdebug.interpreter.values import TileValue


def _math(function: Callable[..., Tensor]) -> Rule:
    def run(ev: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        return (ev.map(op, function, *operands),)

    return run


def _fused(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    product: Tensor = rounding.fma(torch, "rn", x, y, z)
    return product


def fma(ev: Evaluator, op: Operation, a: TileValue, b: TileValue, c: TileValue) -> TileValue:
    """math.fma."""
    return ev.map_floats(op, _fused, a, b, c)


def _without_sign(value: Tensor, out: Tensor | None = None) -> Tensor:
    bits = (value.view(torch.uint8) & 0x7F).view(value.dtype)
    return bits if out is None else out.copy_(bits)


def absf(ev: Evaluator, op: Operation, x: TileValue) -> TileValue:
    """math.absf; torch has none for fp8."""
    is_byte = ir.element_of(op.operands[0].type).bits == 8
    return ev.map(op, _without_sign if is_byte else torch.abs, x)


def _precise_root(value: Tensor, out: Tensor | None = None) -> Tensor:
    # torch's own may be off by the last bit (MKL).
    exact: Tensor = rounding.sqrt(torch, "rn", value)
    return exact if out is None else out.copy_(exact)


def sqrt(ev: Evaluator, op: Operation, x: TileValue) -> TileValue:
    """math.sqrt: the GPU approximates that of fp32 and rounds that of fp64 to nearest."""
    is_double = ir.element_of(op.operands[0].type) == ir.F64
    return ev.map(op, _precise_root if is_double else torch.sqrt, x)


def libdevice(ev: Evaluator, op: Operation, *operands: TileValue) -> TileValue:
    """tt.extern_elementwise."""
    name = str(op.attributes["function"])
    meaning = MEANINGS.get(name)
    if meaning is None:
        where = op.location.primary
        raise UnsupportedError(
            f"{where.file}:{where.line}: libdevice.{name} is not available under "
            "interpret; it needs a GPU (its numbers have no closed form here)"
        )
    dtype = ev.dtype_of(op.result.type)
    unsigned = bool(op.attributes.get("unsigned"))

    def compute(*tensors: Tensor) -> Tensor:
        result: Tensor = meaning(torch, unsigned, *tensors).to(dtype)
        return result

    return ev.map(op, compute, *operands)


RULES: dict[str, Rule] = {
    "math.exp": _math(torch.exp),
    "math.exp2": _math(torch.exp2),
    "math.log": _math(torch.log),
    "math.log2": _math(torch.log2),
    "math.sqrt": one(sqrt),
    "math.rsqrt": _math(torch.rsqrt),
    "math.sin": _math(torch.sin),
    "math.cos": _math(torch.cos),
    "math.erf": _math(torch.erf),
    "math.floor": _math(torch.floor),
    "math.ceil": _math(torch.ceil),
    "math.absf": one(absf),
    "math.absi": _math(torch.abs),
    "math.fma": one(fma),
    "tt.precise_divf": _math(torch.div),
    "tt.precise_sqrt": _math(_precise_root),
    "tt.extern_elementwise": one(libdevice),
}
