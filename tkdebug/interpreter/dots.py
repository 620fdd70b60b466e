"""Matrix products of the whole batch, with the numbers that tensor cores give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# K of the tensor cores' fp16 instruction (PTX ISA, mma.m16n8k16).
_HALF_SUM_DEPTH = 16


def dot(run: Evaluator, view: DotLike, a: TileValue, b: TileValue, acc: TileValue) -> TileValue:
    """tt.dot: products in fp32 (fp64, exact integers), accumulated in acc's dtype."""
    if _sums_halves(view) and not run.strict_ieee:
        return _dot_of_halves(run, view, a, b, acc)
    x = _matrix(run, a, view.a.type, view)
    y = _matrix(run, b, view.b.type, view)
    total = run.full(acc, view.accumulator.type)
    integers = total.dtype == torch.int32
    programs = max(x.shape[0], y.shape[0])
    if x.dim() == 4:
        product = torch.matmul(x, y)
    elif x.shape[0] == y.shape[0] == total.shape[0] and total.dtype == x.dtype:
        return torch.baddbmm(total, x, y)
    else:
        product = torch.bmm(x.expand(programs, *x.shape[1:]), y.expand(programs, *y.shape[1:]))
    if integers:
        return total + product.to(torch.int64).to(torch.int32)
    if total.dtype == torch.float16:
        return (total.float() + product).to(torch.float16)
    return total + product.to(total.dtype)


def _dot_of_halves(
    run: Evaluator, view: DotLike, a: TileValue, b: TileValue, acc: TileValue
) -> Tensor:
    """Sums in fp16, which tensor cores round after each 16 products (seen on an H200)."""
    x, y = _matrix(run, a, view.a.type, view), _matrix(run, b, view.b.type, view)
    total = run.full(acc, view.accumulator.type).double()
    for k in range(0, x.shape[-1], _HALF_SUM_DEPTH):
        # Exact in fp64: two roundings would not be one.
        part = torch.matmul(
            x[..., k : k + _HALF_SUM_DEPTH].double(),
            y[..., k : k + _HALF_SUM_DEPTH, :].double(),
        )
        total = (total + part).to(torch.float16).double()
    return total.to(torch.float16)


def _matrix(run: Evaluator, value: TileValue, type_: ir.Type, view: DotLike) -> Tensor:
    element = ir.element_of(type_)
    tensor = run.full(value, type_)
    if element == ir.F64:
        return tensor
    if element == ir.I8:
        # A double holds every partial sum of 8-bit products exactly.
        return tensor.to(torch.float64)
    if element != ir.F32:
        from tkdebug.interpreter.fp8 import convert

        assert isinstance(element, ir.ScalarType)
        return convert(tensor, element.name, "f32", run.dtypes, False)
    if view.input_precision in (None, "tf32") and not run.strict_ieee:
        # A tensor core reads the upper 19 bits of an fp32; neither we nor upstream round first.
        return (tensor.contiguous().view(torch.int32) & -8192).view(torch.float32)
    return tensor


def _sums_halves(view: DotLike) -> bool:
    """Whether a dot is one of the tensor cores' with sums in fp16; others sum in fp32."""
    a, b, acc = (ir.element_of(value.type) for value in (view.a, view.b, view.accumulator))
    # Operands of fp8 are multiplied as fp16, which holds them exactly.
    if acc != ir.F16 or any(element != ir.F16 and element.bits != 8 for element in (a, b)):
        return False
    return ir.shape_of(view.a.type)[-1] >= _HALF_SUM_DEPTH
