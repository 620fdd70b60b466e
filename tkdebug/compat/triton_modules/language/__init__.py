"""`triton.language`: tkdebug's language under upstream's name."""

from __future__ import annotations

from typing import Any

from tkdebug import language as _language
from tkdebug.compat.finder import missing_attribute
from tkdebug.compat.triton_api.type_names import str_to_ty

from . import core, extra, math, random, standard, target_info

__all__ = [
    *_language.__all__,
    "core",
    "extra",
    "math",
    "random",
    "standard",
    "str_to_ty",
    "target_info",
]
_missing = missing_attribute(__name__)


def __getattr__(name: str) -> Any:
    value = getattr(_language, name, None)
    return _missing(name) if value is None else value


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_language)})
