"""Arithmetic, comparisons, selects and conversions.

Integers go through the index algebra, which keeps affine tiles affine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.numerics import rounding
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


def _float(function: Callable[..., Tensor]) -> Rule:
    def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        return (run.map_floats(view.op, function, *operands),)

    return apply


def constant(run: Evaluator, view: arith.Constant) -> TileValue:
    """arith.constant."""
    return run.constant(view.result.type, view.value)


def compare_floats(run: Evaluator, view: arith.CmpF, a: TileValue, b: TileValue) -> TileValue:
    """arith.cmpf."""
    return run.map_floats(view.op, _COMPARISONS[view.predicate], a, b)


RULES: Rules = {
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
    arith.AddF: _float(torch.add),
    arith.SubF: _float(torch.sub),
    arith.MulF: _float(torch.mul),
    arith.DivF: _float(torch.div),
    arith.RemF: _float(lambda x, y: rounding.fmod(torch, x, y)),
    arith.NegF: _float(torch.neg),
    arith.MaxNumF: _float(torch.fmax),
    arith.MinNumF: _float(torch.fmin),
    arith.MaximumF: _float(torch.maximum),
    arith.MinimumF: _float(torch.minimum),
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
