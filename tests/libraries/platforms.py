"""The machine as libraries see it."""

from __future__ import annotations


def vllm_on_cuda() -> None:
    """Have vLLM take the CUDA stand-in for its platform, and none of its extension's products.

    It asks NVML for a GPU, which is not there, and its extension what the extension can do.
    """
    import vllm.platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform

    vllm.platforms._current_platform = NonNvmlCudaPlatform()
    from vllm import _custom_ops

    for name in dir(_custom_ops):
        if "_supports_" in name or "_supported" in name:
            setattr(_custom_ops, name, lambda *arguments: False)
