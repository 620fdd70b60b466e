"""JSON as every reader takes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping


def json_text(value: object, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Return JSON of `value`; numbers that are not finite, which JSON lacks, are null."""
    # A launch is a line, and making an encoder takes as long as writing that line.
    is_plain = indent is None and not sort_keys
    encoder = _PLAIN if is_plain else _encoder(indent, sort_keys)
    try:
        return encoder.encode(value)
    except ValueError:
        return encoder.encode(_finite(value))


def _encoder(indent: int | None = None, sort_keys: bool = False) -> json.JSONEncoder:
    return json.JSONEncoder(
        allow_nan=False, check_circular=False, indent=indent, sort_keys=sort_keys
    )


_PLAIN = _encoder()


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
