"""What is said where torch finds no GPU."""

from __future__ import annotations


def no_gpu() -> str:
    """Why kernels cannot run natively then."""
    import torch

    instead = "`tkdebug run --mode interpret` needs none"
    if not hasattr(torch._C, "_cuda_getDeviceCount"):  # noqa: SLF001
        return (
            f"native mode needs a GPU, and this torch ({torch.__version__}) has no CUDA; {instead}"
        )
    return f"native mode needs an NVIDIA GPU, and torch finds none; {instead}"
