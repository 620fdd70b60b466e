"""Combinations of elements by ops: their names, and the element that changes nothing in each."""

from __future__ import annotations

import torch

from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.tile_ops.reductions import combiner_of

_LOWEST = ("maxnum", "maximum", "maxsi", "argmax", "argmax_any")
_HIGHEST = ("minnum", "minimum", "minsi", "argmin", "argmin_any")
_NEUTRAL = {"add": 0, "mul": 1, "or": 0, "xor": 0, "and": -1, "maxui": 0, "minui": -1}
_ACCUMULATED = frozenset("add mul maxnum minnum maximum minimum maxsi minsi".split())
_NAMES = {
    "add": "sum", "mul": "product", "and": "and", "or": "or", "xor": "xor",
    "maxui": "max", "minui": "min",
}  # fmt: skip


def accumulation(op: Operation) -> str | None:
    """Return how an op combines a loop's carried value with an operand; None for other ops."""
    binary = arith.Binary.cast(op)
    if binary is None:
        return "add" if math.Fma.matches(op) else None
    return binary.combination if binary.combination in _ACCUMULATED else None


def combination(op: Operation) -> str | None:
    """Return how a reduction, scan or accumulation combines elements; None if it is unknown."""
    if not tt.Combining.matches(op):
        return accumulation(op)
    found = combiner_of(tt.Combining(op))
    known = found in _NEUTRAL or found in _LOWEST or found in _HIGHEST
    return found if known else None


def name_of(combiner: str) -> str:
    """Return the name of a combination in messages."""
    if combiner in _NAMES:
        return _NAMES[combiner]
    if combiner.startswith("arg"):
        return combiner[:6]
    return "max" if combiner in _LOWEST else "min"


def neutral_of(combiner: str, dtype: torch.dtype) -> float | int:
    """Return the neutral element of a combination."""
    if combiner in _NEUTRAL:
        return _NEUTRAL[combiner]
    if dtype.is_floating_point:
        return float("-inf") if combiner in _LOWEST else float("inf")
    limits = torch.iinfo(dtype)
    return limits.min if combiner in _LOWEST else limits.max


def left_out_by(op: Operation, dtype: torch.dtype) -> float | int:
    """Return an element that makes no difference to `op`; for a histogram, one in no bin."""
    if tt.Histogram.matches(op):
        return -1
    combiner = "add" if tt.Dot.matches(op) else combination(op)
    assert combiner is not None
    return neutral_of(combiner, dtype)


def what_of(op: Operation) -> str:
    """Return the name of an op's result in messages, such as "max" or "product"."""
    if tt.Histogram.matches(op):
        return "histogram"
    if tt.Dot.matches(op):
        return "product"
    combiner = combination(op)
    assert combiner is not None
    return name_of(combiner)


def neutral_text(op: Operation, dtype: torch.dtype) -> str:
    """Return the neutral element of `op` as kernels write it."""
    neutral = left_out_by(op, dtype)
    if dtype.is_floating_point and abs(neutral) == float("inf"):
        return f'float("{neutral}")'
    return str(neutral)
