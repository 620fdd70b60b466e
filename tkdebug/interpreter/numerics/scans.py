"""Questions about whole tensors, answered at a fraction of the cost of a look at each element.

Bool tensors are reduced by their bytes: torch's own reductions take 5 to 100 times as long on a
CPU. Whether a tensor has a NaN or an Inf is read off one sum of it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def any_true(mask: Tensor) -> bool:
    """Whether an element is true."""
    return bool(mask.numel()) and bool(mask.view(torch.uint8).max())


def all_along(mask: Tensor, axis: int, keepdim: bool = False) -> Tensor:
    """Whether all elements along an axis, which is not empty, are true."""
    return mask.view(torch.uint8).amin(axis, keepdim).view(torch.bool)


def any_along(mask: Tensor, axis: int, keepdim: bool = False) -> Tensor:
    """Whether an element along an axis, which is not empty, is true."""
    return mask.view(torch.uint8).amax(axis, keepdim).view(torch.bool)


def quick_sum_of(values: Tensor) -> float:
    """A sum of floats in their own type, which is NaN if one is, and Inf beyond fp16's range."""
    return float(values.sum())


def sum_of(values: Tensor) -> float:
    """A sum of floats that is finite only if all of them are.

    It passes over memory once and makes no tensor. Finite values may have a sum that is not finite.
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
