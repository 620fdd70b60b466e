"""`triton.language.extra`: libdevice and what belongs to one vendor."""

from __future__ import annotations

from . import cuda, libdevice

__all__ = ["cuda", "libdevice"]
