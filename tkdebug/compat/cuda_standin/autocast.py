"""What `torch.autocast("cuda")` computes in fp32 though it is given halves.

The stand-in has the CPU's autocast in force, which leaves these functions alone. The list is that
of PyTorch's documentation, "CUDA Ops that can autocast to float32".
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin import placement
from tkdebug.compat.cuda_standin.calls import Arguments, Function, call
from tkdebug.compat.cuda_standin.half_precision import cast, collected, functions_of

_HALVES = (torch.float16, torch.bfloat16)
_LOSSES = (
    "binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss "
    "kl_div l1_loss margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss "
    "poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss"
)
_REDUCTIONS = "cumprod cumsum dist norm prod softmax log_softmax sum renorm"
_ELEMENTWISE = "acos asin cosh erfinv exp expm1 log log10 log1p log2 pow reciprocal rsqrt sinh tan"
NORMS = functions_of(((torch, "layer_norm group_norm"),)) | functions_of(
    ((torch.nn.functional, "layer_norm group_norm"),)
)
WIDENED = functions_of(
    (
        (torch, f"{_REDUCTIONS} {_ELEMENTWISE} cdist cosine_similarity"),
        (Tensor, f"{_REDUCTIONS} {_ELEMENTWISE} __pow__ __rpow__ __rdiv__ __rtruediv__"),
        (
            torch.nn.functional,
            f"{_LOSSES} softmax log_softmax softmin softplus normalize cosine_similarity pdist",
        ),
        (torch.linalg, "norm vector_norm matrix_norm"),
    )
)


def run_widened(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """`func`, in fp32 where autocast is on and it is given halves on the GPU."""
    operands = collected(args, kwargs) if torch.is_autocast_enabled("cpu") else []
    is_widened = any(each.dtype in _HALVES and placement.on_cuda(each) for each in operands)
    if not is_widened or kwargs.get("dtype") is not None or kwargs.get("out") is not None:
        return call(func, args, kwargs)
    wide = {name: cast(value, _HALVES, torch.float32) for name, value in kwargs.items()}
    with torch.autocast("cpu", enabled=False):
        return call(func, cast(args, _HALVES, torch.float32), wide)
