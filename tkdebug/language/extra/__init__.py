"""`tl.extra`: functions outside the core language."""

from __future__ import annotations

from tkdebug.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
