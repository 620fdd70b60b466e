"""`triton._C`: upstream's compiled code, of which scripts use cuBLAS alone."""

from __future__ import annotations

from . import libtriton

__all__ = ["libtriton"]
