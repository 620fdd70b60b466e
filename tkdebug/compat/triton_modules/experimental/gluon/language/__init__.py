"""`triton.experimental.gluon.language`: what it shares with `triton.language`."""

from __future__ import annotations

from typing import Any

from tkdebug import language as _language
from tkdebug.compat.finder import missing_attribute

__all__ = list(_language.__all__)
_missing = missing_attribute(__name__)


def __getattr__(name: str) -> Any:
    value = None if name.startswith("_") else getattr(_language, name, None)
    return _missing(name) if value is None else value


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_language)})
