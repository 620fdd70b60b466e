"""`triton.language.target_info`: what kernels are compiled for."""

from __future__ import annotations

from tkdebug.language.target_info import (
    cuda_capability_geq,
    current_target,
    is_cuda,
    is_hip,
    is_hip_cdna3,
    is_hip_cdna4,
)

__all__ = [
    "cuda_capability_geq",
    "current_target",
    "is_cuda",
    "is_hip",
    "is_hip_cdna3",
    "is_hip_cdna4",
]
