"""Reductions and scans of the whole batch.

Well-known combiners map to one torch call; a custom combine region is run on neighbours along the
axis (reductions) or by Hillis and Steele's doubling (scans): log2(extent) vector steps, never per
element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Region
from tkdebug.compiler.ir import types as ir
from tkdebug.errors import UnsupportedError
from tkdebug.interpreter.tiles.values import BoxTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def reduce(run: Evaluator, view: tt.Reduce, *operands: TileValue) -> Sequence[TileValue]:
    """tt.reduce."""
    _refuse_pointers(view)
    axis = view.axis
    combiner = combiner_of(view)
    type_ = view.sources[0].type
    extent = ir.shape_of(type_)[axis]
    if combiner in ("argmax", "argmin", "argmax_any", "argmin_any"):
        return _arg_reduce(run, view, operands, axis, combiner)
    if combiner is not None and combiner in _REDUCERS and len(operands) == 1:
        value = operands[0]
        if isinstance(value, BoxTile):
            boxed = _reduce_boxed(value, axis, extent, combiner)
            if boxed is not None:
                return (boxed,)
        tensor = run.dense(value, type_)
        return (_reduce_tensor(tensor, axis, extent, combiner),)
    tensors = [
        run.full(v, t.type).movedim(axis + 1, 1)
        for v, t in zip(operands, view.sources, strict=True)
    ]
    return _reduce_in_pairs(run, view.op.regions[0], tensors)


def _reduce_tensor(tensor: Tensor, axis: int, extent: int, combiner: str) -> Tensor:
    if tensor.shape[axis + 1] != extent:
        shape = list(tensor.shape)
        shape[axis + 1] = extent
        tensor = tensor.expand(shape)
    return _REDUCERS[combiner](tensor, axis + 1)


def _reduce_boxed(tile: BoxTile, axis: int, extent: int, combiner: str) -> Tensor | None:
    """Reduce the box alone, and combine the fill with the result.

    Return None if the box crops other axes, or the combiner is mul or xor.
    """
    if tile.cropped_axes != (axis,):
        return None
    low, high = tile.box[axis]
    inside = _reduce_tensor(tile.data, axis, high - low, combiner)
    fill = tile.fill.squeeze(axis + 1)
    outside = extent - (high - low)
    if combiner == "add":
        if fill.dtype in (torch.float32, torch.float64):
            return torch.add(inside, fill, alpha=outside)
        if not bool(fill.any()):
            return inside
        return inside + fill * outside
    if combiner in ("mul", "xor"):
        return None
    return _COMBINERS[combiner](inside, fill)


def _arg_reduce(
    run: Evaluator, view: tt.Reduce, operands: Sequence[TileValue], axis: int, combiner: str
) -> Sequence[TileValue]:
    """Return value and index of the first minimum or maximum; the index operand has positions."""
    value, position = view.sources
    values = run.full(operands[0], value.type)
    if values.is_floating_point():
        # A NaN never wins a comparison.
        lowest = float("-inf") if "max" in combiner else float("inf")
        keys = torch.where(values.isnan(), lowest, values)
    else:
        keys = _flip(values) if _compares_unsigned(view) else values
    pick = keys.argmax if "max" in combiner else keys.argmin
    place = pick(dim=axis + 1, keepdim=True)
    best = values.gather(axis + 1, place).squeeze(axis + 1)
    index = run.full(operands[1], position.type)
    chosen = index.expand(values.shape).gather(axis + 1, place).squeeze(axis + 1)
    return best, chosen


def _reduce_in_pairs(run: Evaluator, region: Region, tensors: list[Tensor]) -> Sequence[TileValue]:
    """Combine neighbours along axis 1 until one element is left; their order stays."""
    if tensors[0].shape[1] == 1:
        return [t[:, 0].clone() for t in tensors]
    while tensors[0].shape[1] > 1:
        even = tensors[0].shape[1] // 2 * 2
        left = [t[:, 0:even:2] for t in tensors]
        right = [t[:, 1:even:2] for t in tensors]
        rest = [t[:, even:] for t in tensors]
        combined = _combine(run, region, left, right)
        tensors = [
            torch.cat([c, r.expand(c.shape[0], *r.shape[1:])], 1) if r.shape[1] else c
            for c, r in zip(combined, rest, strict=True)
        ]
    return [t[:, 0] for t in tensors]


def _combine(
    run: Evaluator, region: Region, left: list[Tensor], right: list[Tensor]
) -> list[Tensor]:
    """Run a combine region elementwise: all elements ride on the program axis."""
    programs = max(t.shape[0] for t in (*left, *right))
    whole = [t.expand(programs, *t.shape[1:]) for t in (*left, *right)]
    shape = whole[0].shape
    saved = run.programs, run.active
    run.programs, run.active = whole[0].numel(), None
    try:
        results = run.run_region(region, [t.reshape(-1) for t in whole])
    finally:
        run.programs, run.active = saved
    types = [value.type for value in region.block.terminator.operands]
    return [
        run.dense(value, type_).expand(whole[0].numel()).reshape(shape)
        for value, type_ in zip(results, types, strict=True)
    ]


# Scans


def scan(run: Evaluator, view: tt.Scan, *operands: TileValue) -> Sequence[TileValue]:
    """tt.scan: inclusive."""
    _refuse_pointers(view)
    axis = view.axis
    tensors = [run.full(v, t.type) for v, t in zip(operands, view.sources, strict=True)]
    if view.reverse:
        tensors = [t.flip(axis + 1) for t in tensors]
    combiner = combiner_of(view)
    if combiner in ("add", "mul") and len(tensors) == 1:
        fn = torch.cumsum if combiner == "add" else torch.cumprod
        results = [fn(tensors[0], dim=axis + 1, dtype=tensors[0].dtype)]
    else:
        results = _scan_by_doubling(run, view.op.regions[0], tensors, axis + 1)
    if view.reverse:
        results = [t.flip(axis + 1) for t in results]
    return results


def _scan_by_doubling(
    run: Evaluator, region: Region, tensors: list[Tensor], dim: int
) -> list[Tensor]:
    moved = [t.movedim(dim, 1) for t in tensors]
    extent = moved[0].shape[1]
    step = 1
    while step < extent:
        left = [t[:, : extent - step] for t in moved]
        right = [t[:, step:] for t in moved]
        combined = _combine(run, region, left, right)
        programs = combined[0].shape[0]
        moved = [
            torch.cat([t[:, :step].expand(programs, *t[:, :step].shape[1:]), c], 1)
            for t, c in zip(moved, combined, strict=True)
        ]
        step *= 2
    return [t.movedim(1, dim) for t in moved]


def _refuse_pointers(view: tt.Combining) -> None:
    if any(isinstance(ir.element_of(value.type), ir.PointerType) for value in view.sources):
        place = view.op.location.primary
        raise UnsupportedError(
            f"{place.file}:{place.line}: {view.name} of pointers is not supported under interpret; "
            "reduce or scan offsets, and add the pointer after it"
        )


def combiner_of(view: tt.Combining) -> str | None:
    """Return the name of the torch function that computes an op's region, or None."""
    element = ir.element_of(view.sources[0].type)
    if isinstance(element, ir.ScalarType) and element.is_float and element.bits == 8:
        # torch has no arithmetic on fp8; the region's ops do it.
        return None
    named = view.combiner
    if named is not None:
        return {
            "addf": "add",
            "maxui": "maxui",
            "minui": "minui",
        }.get(named, named)
    operations = view.combine.operations
    if len(operations) == 2 and len(view.sources) == 1:
        first = operations[0]
        arguments = view.combine.arguments
        if set(first.operands) == set(arguments) and operations[1].operands == (first.result,):
            binary = arith.Binary.cast(first)
            return binary.combination or None if binary is not None else None
    return None


def _compares_unsigned(view: tt.Reduce) -> bool:
    compares = (arith.Compare.cast(inner) for inner in view.combine.operations)
    return any(compare is not None and compare.predicate[0] == "u" for compare in compares)


def _amax_ignoring_nan(t: Tensor, dim: int) -> Tensor:
    best = t.amax(dim)
    if not _has_nan(best):
        return best
    cleaned = torch.where(t.isnan(), float("-inf"), t).amax(dim)
    return torch.where(t.isnan().all(dim), float("nan"), cleaned)


def _amin_ignoring_nan(t: Tensor, dim: int) -> Tensor:
    best = t.amin(dim)
    if not _has_nan(best):
        return best
    cleaned = torch.where(t.isnan(), float("inf"), t).amin(dim)
    return torch.where(t.isnan().all(dim), float("nan"), cleaned)


def _has_nan(t: Tensor) -> bool:
    # The greatest of all is NaN if one is: one pass, where `isnan().any()` takes two.
    return math.isnan(t.amax().item())


def _flip(t: Tensor) -> Tensor:
    return t ^ -(1 << (8 * t.element_size() - 1))


def _in_halves(name: str) -> Callable[[Tensor, int], Tensor]:
    """Return a reduction that combines both halves until one element is left."""

    def fold(t: Tensor, dim: int) -> Tensor:
        fn = getattr(torch, name)
        moved = t.movedim(dim, 0)
        while moved.shape[0] > 1:
            half = moved.shape[0] // 2
            rest = moved[2 * half :]
            moved = torch.cat([fn(moved[:half], moved[half : 2 * half]), rest])
        return moved[0]

    return fold


def _rounding_each(name: str) -> Callable[[Tensor, int], Tensor]:
    """Return a reduction that rounds fp16 and bf16 at each step, as GPUs do; torch rounds once."""
    whole, in_halves = getattr(torch, name), _in_halves({"sum": "add", "prod": "mul"}[name])

    def reduce(t: Tensor, dim: int) -> Tensor:
        if t.dtype in (torch.float16, torch.bfloat16):
            return in_halves(t, dim)
        reduced: Tensor = whole(t, dim, dtype=t.dtype)
        return reduced

    return reduce


_REDUCERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "add": _rounding_each("sum"),
    "mul": _rounding_each("prod"),
    "maxnum": _amax_ignoring_nan,
    "minnum": _amin_ignoring_nan,
    "maximum": lambda t, dim: t.amax(dim),
    "minimum": lambda t, dim: t.amin(dim),
    "maxsi": lambda t, dim: t.amax(dim),
    "minsi": lambda t, dim: t.amin(dim),
    "maxui": lambda t, dim: _flip(_flip(t).amax(dim)),
    "minui": lambda t, dim: _flip(_flip(t).amin(dim)),
    "and": _in_halves("bitwise_and"),
    "or": _in_halves("bitwise_or"),
    "xor": _in_halves("bitwise_xor"),
}
_COMBINERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "maxnum": lambda a, b: torch.fmax(a, b),
    "minnum": lambda a, b: torch.fmin(a, b),
    "maximum": lambda a, b: torch.maximum(a, b),
    "minimum": lambda a, b: torch.minimum(a, b),
    "maxsi": lambda a, b: torch.maximum(a, b),
    "minsi": lambda a, b: torch.minimum(a, b),
    "maxui": lambda a, b: _flip(torch.maximum(_flip(a), _flip(b))),
    "minui": lambda a, b: _flip(torch.minimum(_flip(a), _flip(b))),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}
