"""Arithmetic, mathematics, comparisons, selects, conversions, and the functions of libdevice.

Integers go through the index algebra, which keeps affine tiles affine. Float ops that one function
of torch computes name it on their class (`FloatOp.torch`), and have no line here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.dialects.interfaces import FloatOp
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.errors import UnsupportedError
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.numerics import rounding
from tkdebug.interpreter.rules.libdevice import MEANINGS
from tkdebug.interpreter.rules.types import Rule, Rules, one
from tkdebug.interpreter.tile_ops import conversions, where
from tkdebug.interpreter.tiles.index import IndexAlgebra
from tkdebug.interpreter.tiles.values import TileValue

_COMPARISONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "oeq": torch.eq,
    "olt": torch.lt,
    "ole": torch.le,
    "ogt": torch.gt,
    "oge": torch.ge,
    "une": torch.ne,
    "one": lambda x, y: torch.lt(x, y) | torch.gt(x, y),
    "ord": lambda x, y: torch.eq(x, x) & torch.eq(y, y),
    "uno": lambda x, y: torch.ne(x, x) | torch.ne(y, y),
}


def _integer(
    method: Callable[[IndexAlgebra, Operation, TileValue, TileValue], TileValue],
) -> Rule:
    def apply(run: Evaluator, view: OpView, a: TileValue, b: TileValue) -> Sequence[TileValue]:
        return (method(run.index, view.op, a, b),)

    return apply


def _by(function: Callable[..., Tensor]) -> Rule:
    """The rule of floats by a function that has torch's `out=`."""

    def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        return (run.map_floats(view.op, function, *operands),)

    return apply


def _with_out(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function with torch's `out=`: whose memory may be an operand's that dies there."""

    def apply(*operands: Tensor, out: Tensor | None = None) -> Tensor:
        result = function(*operands)
        return result if out is None else out.copy_(result)

    return apply


def constant(run: Evaluator, view: arith.Constant) -> TileValue:
    """arith.constant."""
    return run.constant(view.result.type, view.value)


def compare_floats(run: Evaluator, view: arith.CmpF, a: TileValue, b: TileValue) -> TileValue:
    """arith.cmpf."""
    return run.map_floats(view.op, _COMPARISONS[view.predicate], a, b)


@_with_out
def _remainder(x: Tensor, y: Tensor) -> Tensor:
    rest: Tensor = rounding.fmod(torch, x, y)
    return rest


@_with_out
def _fused(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    product: Tensor = rounding.fma(torch, "rn", x, y, z)
    return product


@_with_out
def _without_sign(value: Tensor) -> Tensor:
    return (value.view(torch.uint8) & 0x7F).view(value.dtype)


@_with_out
def _precise_root(value: Tensor) -> Tensor:
    # torch's own may be off by the last bit (MKL).
    root: Tensor = rounding.sqrt(torch, "rn", value)
    return root


def absolute_float(run: Evaluator, view: math.AbsF, x: TileValue) -> TileValue:
    """math.absf; torch has none for fp8."""
    is_byte = ir.element_of(view.source.type).bits == 8
    return run.map(view.op, _without_sign if is_byte else torch.abs, x)


def absolute_integer(run: Evaluator, view: math.AbsI, x: TileValue) -> TileValue:
    """math.absi."""
    return run.map(view.op, torch.abs, x)


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
    **{
        view: _by(getattr(torch, view.torch))
        for view in OPS.values()
        if issubclass(view, FloatOp) and view.torch
    },
    arith.Constant: one(constant),
    arith.AddI: _integer(IndexAlgebra.add),
    arith.SubI: _integer(IndexAlgebra.sub),
    arith.MulI: _integer(IndexAlgebra.mul),
    arith.DivSI: _integer(IndexAlgebra.divsi),
    arith.DivUI: _integer(IndexAlgebra.divui),
    arith.RemSI: _integer(IndexAlgebra.remsi),
    arith.RemUI: _integer(IndexAlgebra.remui),
    arith.AndI: _integer(IndexAlgebra.and_),
    arith.OrI: _integer(IndexAlgebra.or_),
    arith.XOrI: _integer(IndexAlgebra.xor),
    arith.ShLI: _integer(IndexAlgebra.shli),
    arith.ShRSI: _integer(IndexAlgebra.shrsi),
    arith.ShRUI: _integer(IndexAlgebra.shrui),
    arith.MinSI: _integer(IndexAlgebra.minsi),
    arith.MaxSI: _integer(IndexAlgebra.maxsi),
    arith.MinUI: _integer(IndexAlgebra.minui),
    arith.MaxUI: _integer(IndexAlgebra.maxui),
    arith.MulHiUI: _integer(IndexAlgebra.mulhiui),
    arith.CmpI: _integer(IndexAlgebra.compare),
    arith.CmpF: one(compare_floats),
    arith.Select: one(where.select),
    arith.RemF: _by(_remainder),
    math.Sqrt: one(sqrt),
    math.AbsF: one(absolute_float),
    math.AbsI: one(absolute_integer),
    math.Fma: _by(_fused),
    tt.PreciseSqrt: _by(_precise_root),
    tt.ExternElementwise: one(libdevice),
    arith.ExtSI: one(conversions.extend_signed),
    arith.ExtUI: one(conversions.extend_unsigned),
    arith.TruncI: one(conversions.truncate),
    arith.SIToFP: one(conversions.integer_to_float),
    arith.UIToFP: one(conversions.unsigned_to_float),
    arith.FPToSI: one(conversions.float_to_integer),
    arith.FPToUI: one(conversions.float_to_integer),
    arith.ExtF: one(conversions.convert_float),
    arith.TruncF: one(conversions.convert_float),
    tt.FpToFp: one(conversions.fp_to_fp),
    tt.Bitcast: one(conversions.bitcast),
    tt.PtrToInt: one(conversions.pointer_to_integer),
    tt.IntToPtr: one(conversions.integer_to_pointer),
}
