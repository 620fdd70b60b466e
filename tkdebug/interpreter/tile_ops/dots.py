"""Matrix products of the whole batch, with the results that tensor cores give.

Elements of microscaled products are widened, scaled in the 16-bit format that the GPU's software
path uses (bf16, or fp16 when an operand is fp16), and multiplied with fp32 sums.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from weakref import ref

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.tiles.values import RepeatedTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# Up to which MKL adds up products in the same order whatever the number of rows (torch 2.13).
_JOINED_DEPTH = 512
# Each is a call of torch, which costs as much as to spread the rows of some dozen programs.
_MOST_BLOCKS = 4
# K of the tensor cores' fp16 instruction (PTX ISA, mma.m16n8k16).
_HALF_SUM_DEPTH = 16


def dot(run: Evaluator, view: DotLike, a: TileValue, b: TileValue, acc: TileValue) -> TileValue:
    """tt.dot: products in fp32 (fp64, exact integers), accumulated in acc's dtype."""
    if _sums_halves(view) and not run.strict_ieee:
        return _dot_of_halves(run, view, a, b, acc)
    x, y = _factor(run, a, view.a.type, view), _factor(run, b, view.b.type, view)
    total, is_ours = run.full(acc, view.accumulator.type), _is_ours(run, view.op, acc)
    if is_ours and _adds_by_blocks(x, y, total):
        result = total
    else:
        result = _sum(*_joined(x, y), total, is_ours)
    if view.op in run.fusion.sums:
        run.sums[view.op] = ref(result)
    return result


def _adds_by_blocks(x: Tensor | RepeatedTile, y: Tensor | RepeatedTile, total: Tensor) -> bool:
    """Add x @ y to `total` in place, for runs of programs that share y and have equal x rows.

    Return False, and leave `total`, where that does not apply.
    """
    if not (isinstance(x, RepeatedTile) and isinstance(y, RepeatedTile)):
        return False
    programs, depth = y.repeats.places.shape[0], y.data.shape[-2]
    fits = total.dtype == x.data.dtype and total.is_contiguous() and total.dim() == 3
    if not fits or total.shape[0] != programs or y.repeats.run == 1 or depth > _JOINED_DEPTH:
        return False
    blocks = x.repeats.within_runs_of(y.repeats)
    if blocks.shape[0] > _MOST_BLOCKS:
        return False
    each = y.of_runs().reshape(blocks.shape[0], -1, *y.data.shape[1:])
    sums = total.reshape(*each.shape[:2], -1, total.shape[-1])
    for places, columns, part in zip(blocks, each, sums, strict=True):
        rows = x.data.index_select(0, places).reshape(1, -1, depth)
        part.baddbmm_(rows.expand(columns.shape[0], *rows.shape[1:]), columns)
    return True


def _joined(x: Tensor | RepeatedTile, y: Tensor | RepeatedTile) -> tuple[Tensor, Tensor]:
    """Return both factors; for consecutive programs that share y, their rows of x as one matrix."""
    rows = x.spread() if isinstance(x, RepeatedTile) else x
    if not isinstance(y, RepeatedTile):
        return rows, y
    runs, programs = y.repeats.run_places.shape[0], y.repeats.places.shape[0]
    can_join = rows.shape[0] == programs > runs and y.data.dim() == 3
    if not can_join or rows.shape[-1] > _JOINED_DEPTH:
        return rows, y.spread()
    return rows.reshape(runs, -1, rows.shape[-1]), y.of_runs()


def _is_ours(run: Evaluator, op: Operation, acc: TileValue) -> bool:
    """Whether nothing else reads the accumulator's memory, so that a sum may overwrite it."""
    if op in run.fusion.reused:
        return True
    if op not in run.fusion.sums or run.active is not None:
        return False  # inactive programs keep what they had before the iteration
    last = run.sums.get(op)
    return last is not None and last() is acc


def _sum(x: Tensor, y: Tensor, total: Tensor, is_ours: bool) -> Tensor:
    """Return x @ y + total for the programs of `total`, or for one if all share x and y."""
    integers = total.dtype == torch.int32
    shape = (-1, *total.shape[1:])
    if x.dim() == 4:
        product = torch.matmul(x, y)
    else:
        programs = max(x.shape[0], y.shape[0])
        x, y = x.expand(programs, *x.shape[1:]), y.expand(programs, *y.shape[1:])
        whole = (programs, x.shape[1], y.shape[2])
        if total.numel() == math.prod(whole) and total.dtype == x.dtype:
            joined = total.reshape(whole)
            if is_ours and total.is_contiguous():
                joined.baddbmm_(x, y)
                return total
            return torch.baddbmm(joined, x, y).reshape(shape)
        product = torch.bmm(x, y).reshape(shape)
    if integers:
        return total + product.to(torch.int64).to(torch.int32)
    if total.dtype == torch.float16:
        return (total.float() + product).to(torch.float16)
    if total.dtype == product.dtype and total.shape[0] <= product.shape[0]:
        return product.add_(total)
    return total + product.to(total.dtype)


def _dot_of_halves(
    run: Evaluator, view: DotLike, a: TileValue, b: TileValue, acc: TileValue
) -> Tensor:
    """Return a dot summed in fp16, rounded after each 16 products (as seen on an H200)."""
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


def _factor(
    run: Evaluator, value: TileValue, type_: ir.Type, view: DotLike
) -> Tensor | RepeatedTile:
    if isinstance(value, RepeatedTile):
        return RepeatedTile(_matrix(run, value.data, type_, view), value.repeats)
    return _matrix(run, value, type_, view)


def _matrix(run: Evaluator, value: TileValue, type_: ir.Type, view: DotLike) -> Tensor:
    element = ir.element_of(type_)
    tensor = run.full(value, type_)
    if element == ir.F64:
        return tensor
    if element == ir.I8:
        # A double holds every partial sum of 8-bit products exactly.
        return tensor.to(torch.float64)
    if element != ir.F32:
        from tkdebug.interpreter.numerics.fp8 import convert

        assert isinstance(element, ir.ScalarType)
        return convert(tensor, element.name, "f32", run.dtypes, False)
    if view.input_precision in (None, "tf32") and not run.strict_ieee:
        # A tensor core reads the upper 19 bits of an fp32; neither we nor upstream round first.
        cut = torch.empty(tensor.shape, dtype=torch.int32, device=tensor.device)
        torch.bitwise_and(tensor.view(torch.int32), -8192, out=cut)
        return cut.view(torch.float32)
    return tensor


def _sums_halves(view: DotLike) -> bool:
    """Whether a dot runs on tensor cores and sums in fp16; other dots sum in fp32."""
    a, b, acc = (ir.element_of(value.type) for value in (view.a, view.b, view.accumulator))
    # Operands of fp8 are multiplied as fp16, which holds them exactly.
    if acc != ir.F16 or any(element != ir.F16 and element.bits != 8 for element in (a, b)):
        return False
    return ir.shape_of(view.a.type)[-1] >= _HALF_SUM_DEPTH


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
    """Return the numbers of an operand; e2m1 is unpacked along `axis`."""
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
    """Multiply groups of the last axis by their scales; e8m0 255 gives NaN unless `fast_math`."""
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
