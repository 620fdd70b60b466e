"""Reductions of bool tensors by their bytes: torch's own take 5 to 100 times as long on a CPU."""

from __future__ import annotations

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
