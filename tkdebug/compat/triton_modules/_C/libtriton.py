"""`triton._C.libtriton`: `nvidia.cublas.CublasLt`, to which benchmarks compare their kernels."""

from __future__ import annotations

from types import SimpleNamespace

from tkdebug.compat.cublas import CublasLt

nvidia = SimpleNamespace(cublas=SimpleNamespace(CublasLt=CublasLt))

__all__ = ["nvidia"]
