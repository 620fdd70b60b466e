"""JSON as every reader takes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping


def json_text(value: object, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """JSON of `value`; what is not finite, for which JSON has no number, is null."""
    try:
        return json.dumps(value, allow_nan=False, indent=indent, sort_keys=sort_keys)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, indent=indent, sort_keys=sort_keys)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
