"""`triton.tools.tensor_descriptor`."""

from __future__ import annotations

from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor

__all__ = ["TensorDescriptor"]
