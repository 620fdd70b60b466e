"""`triton._C.libtriton`: `nvidia.cublas.CublasLt`, to which benchmarks compare their kernels.

And what tools that hear of compiles ask.
"""

from __future__ import annotations

from types import SimpleNamespace

from tkdebug.compat.triton_api.cublas import CublasLt

nvidia = SimpleNamespace(cublas=SimpleNamespace(CublasLt=CublasLt))


def get_cache_invalidating_env_vars() -> dict[str, str]:
    """The variables that upstream's code depends on: here none does."""
    return {}


__all__ = ["get_cache_invalidating_env_vars", "nvidia"]
