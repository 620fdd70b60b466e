"""`triton.language.extra.libdevice`: tkdebug's module under upstream's name."""

from __future__ import annotations

from typing import Any

from tkdebug.compat.finder import missing_attribute
from tkdebug.language.extra import libdevice as _libdevice

_missing = missing_attribute(__name__)


def __getattr__(name: str) -> Any:
    value = getattr(_libdevice, name, None)
    return _missing(name) if value is None else value


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_libdevice)})
