"""Matrix products of one launch: on which unit, of which tiles, and what their operands are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tkdebug.advice.facts import BroadcastFacts, DotFacts
from tkdebug.advice.machines import TF32_BITS
from tkdebug.compiler.analysis.broadcast_products import BroadcastProduct
from tkdebug.compiler.dialects import tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.types import ScalarType, element_of, shape_of
from tkdebug.compiler.rewriting.rewriter import PassRemark
from tkdebug.runtime.advising.executions import Executions

_DOTS = (tt.Dot.name, ttg.LocalDot.name, ttng.WarpGroupDot.name)
# Between a load and the product of what it loads: casts, views, scales.
_MOST_STEPS = 8


def dots_of(
    gpu: Module, executions: Executions, remarks: Mapping[int, PassRemark]
) -> Iterator[DotFacts]:
    """The dots of the GPU IR; one that passes copied is there as often."""
    for op in gpu.walk():
        if op.name not in _DOTS:
            continue
        dot = DotLike(op)
        rows, columns = shape_of(op.result.type)[-2:]
        depth = shape_of(dot.a.type)[-1]
        flops = 2 * math.prod(shape_of(op.result.type)) * depth * executions.of_gpu(op.id)
        element = element_of(dot.a.type)
        is_single = isinstance(element, ScalarType) and element.name == "f32"
        tile = executions.tile_op(op.id)
        reasons = (remarks.get(o) for o in (op.id, *(() if tile is None else (tile.id,))))
        unit = dot.unit or ("wgmma" if ttng.WarpGroupDot.matches(op) else "fma")
        on_tensor_cores = unit != "fma"
        precision = dot.input_precision or "tf32"
        yield DotFacts(
            op_id=op.id,
            frame=op.location.frames[-1],
            flops=flops,
            unit=unit,
            bits=TF32_BITS if is_single and on_tensor_cores else element.bits,
            operands=str(element),
            why=next((r.reason for r in reasons if r is not None and r.kind != "pipelined"), ""),
            passes=3 if is_single and on_tensor_cores and precision == "tf32x3" else 1,
            tile=(rows, columns, depth),
            loads=_loads_of(tile),
        )


def _loads_of(dot: Operation | None) -> tuple[int | None, int | None]:
    """The loads of Tile IR that a dot's operands are from."""
    if dot is None or not tt.Dot.matches(dot):
        return None, None
    return _load_of(tt.Dot(dot).a), _load_of(tt.Dot(dot).b)


def _load_of(operand: Value) -> int | None:
    """The load whose tile an operand is, cast, turned or scaled; None where it is another."""
    value = operand
    for _ in range(_MOST_STEPS):
        maker = value.defining_op
        if maker is None or not maker.operands:
            return None
        if tt.Load.matches(maker) or tt.DescriptorLoad.matches(maker):
            return maker.id
        size = math.prod(shape_of(value.type))
        whole = [v for v in maker.operands if math.prod(shape_of(v.type)) == size]
        if len(whole) != 1:
            return None
        value = whole[0]
    return None


def broadcast_products(tile: Module, executions: Executions) -> Iterator[BroadcastFacts]:
    """Sums of products of broadcast tiles, as Tile IR has them where they were not made dots."""
    for op in tile.walk():
        found = BroadcastProduct.of(op) if tt.Reduce.matches(op) else None
        if found is None:
            continue
        frames = [op.location.frames[-1], found.product.location.frames[-1]]
        yield BroadcastFacts(
            frame=frames[0],
            frames=tuple(dict.fromkeys(frames)),
            flops=2 * math.prod(found.sizes) * executions.of_tile(op),
            tile=found.sizes,
            bits=element_of(found.rows.type).bits,
        )
