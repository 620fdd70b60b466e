"""`triton.errors`."""

from __future__ import annotations

from tkdebug.errors import TkError as TritonError

__all__ = ["TritonError"]
