"""`triton.language.extra.cuda`: NVIDIA's own corner of the language."""

from __future__ import annotations

from . import libdevice

__all__ = ["libdevice"]
