"""`triton.experimental.gluon`: libraries import it on every GPU; its kernels are refused."""

from __future__ import annotations

from tkdebug.compat.triton_api.gluon_kernels import jit
from tkdebug.runtime.jit.constexpr_function import constexpr_function

from . import language

__all__ = ["constexpr_function", "jit", "language"]
