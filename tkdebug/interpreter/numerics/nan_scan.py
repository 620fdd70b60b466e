"""Whether a tensor has a NaN or an Inf, at a fraction of what a look at each element costs."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def quick_sum_of(values: Tensor) -> float:
    """A sum of floats in their own type, which is NaN where one is, and Inf where fp16 ends."""
    return float(values.sum())


def sum_of(values: Tensor) -> float:
    """A sum of floats that is finite only if all of them are.

    It passes over memory once and makes no tensor. Finite values may have one that is not.
    """
    total = quick_sum_of(values)
    if values.dtype is torch.float16 and not math.isfinite(total):
        # To add up in fp32 takes several times as long.
        return float(values.sum(dtype=torch.float32))
    return total


def may_have_nan(values: Tensor) -> bool:
    """Whether a tensor of floats may have a NaN: False is certain."""
    # Infinities of both signs are NaN there, too.
    return math.isnan(quick_sum_of(values))


def has_nan(values: Tensor) -> bool:
    """Whether a tensor of floats has a NaN."""
    return may_have_nan(values) and bool(values.isnan().any())
