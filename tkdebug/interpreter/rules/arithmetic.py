"""Arithmetic, comparisons, selects and conversions.

Integers go through the index algebra, which keeps affine tiles affine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter import rounding, shapes
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.index import IndexAlgebra
from tkdebug.interpreter.rules.types import Rule, one
from tkdebug.interpreter.values import TileValue

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
    def run(ev: Evaluator, op: Operation, a: TileValue, b: TileValue) -> Sequence[TileValue]:
        return (method(ev.index, op, a, b),)

    return run


def _float(function: Callable[..., Tensor]) -> Rule:
    def run(ev: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        return (ev.map_floats(op, function, *operands),)

    return run


def constant(ev: Evaluator, op: Operation) -> TileValue:
    """arith.constant."""
    return ev.constant(op.result.type, op.attributes["value"])


def compare_floats(ev: Evaluator, op: Operation, a: TileValue, b: TileValue) -> TileValue:
    """arith.cmpf."""
    return ev.map_floats(op, _COMPARISONS[str(op.attributes["predicate"])], a, b)


RULES: dict[str, Rule] = {
    "arith.constant": one(constant),
    "arith.addi": _integer(IndexAlgebra.add),
    "arith.subi": _integer(IndexAlgebra.sub),
    "arith.muli": _integer(IndexAlgebra.mul),
    "arith.divsi": _integer(IndexAlgebra.divsi),
    "arith.divui": _integer(IndexAlgebra.divui),
    "arith.remsi": _integer(IndexAlgebra.remsi),
    "arith.remui": _integer(IndexAlgebra.remui),
    "arith.andi": _integer(IndexAlgebra.and_),
    "arith.ori": _integer(IndexAlgebra.or_),
    "arith.xori": _integer(IndexAlgebra.xor),
    "arith.shli": _integer(IndexAlgebra.shli),
    "arith.shrsi": _integer(IndexAlgebra.shrsi),
    "arith.shrui": _integer(IndexAlgebra.shrui),
    "arith.minsi": _integer(IndexAlgebra.minsi),
    "arith.maxsi": _integer(IndexAlgebra.maxsi),
    "arith.minui": _integer(IndexAlgebra.minui),
    "arith.maxui": _integer(IndexAlgebra.maxui),
    "arith.mulhiui": _integer(IndexAlgebra.mulhiui),
    "arith.cmpi": _integer(IndexAlgebra.compare),
    "arith.cmpf": one(compare_floats),
    "arith.select": one(shapes.select),
    "arith.addf": _float(torch.add),
    "arith.subf": _float(torch.sub),
    "arith.mulf": _float(torch.mul),
    "arith.divf": _float(torch.div),
    "arith.remf": _float(lambda x, y: rounding.fmod(torch, x, y)),
    "arith.negf": _float(torch.neg),
    "arith.maxnumf": _float(torch.fmax),
    "arith.minnumf": _float(torch.fmin),
    "arith.maximumf": _float(torch.maximum),
    "arith.minimumf": _float(torch.minimum),
    **dict.fromkeys(
        (
            "arith.extsi",
            "arith.extui",
            "arith.trunci",
            "arith.sitofp",
            "arith.uitofp",
            "arith.fptosi",
            "arith.fptoui",
            "arith.extf",
            "arith.truncf",
            "tt.fp_to_fp",
            "tt.bitcast",
            "tt.ptr_to_int",
            "tt.int_to_ptr",
        ),
        one(shapes.convert),
    ),
}
