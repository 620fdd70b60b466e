"""`triton.tools.mxfp`."""

from __future__ import annotations

from tkdebug.compat.triton_api.microscaled import MXFP4Tensor, MXScaleTensor

__all__ = ["MXFP4Tensor", "MXScaleTensor"]
