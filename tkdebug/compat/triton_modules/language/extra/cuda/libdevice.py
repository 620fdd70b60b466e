"""`triton.language.extra.cuda.libdevice`: as `triton.language.extra.libdevice`."""

from __future__ import annotations

from typing import Any

from tkdebug.compat.finder import missing_attribute
from tkdebug.language import math as _math

_missing = missing_attribute(__name__)


def __getattr__(name: str) -> Any:
    value = getattr(_math, name, None)
    return _missing(name) if value is None else value


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_math)})
