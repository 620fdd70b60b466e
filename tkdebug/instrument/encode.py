"""From what is recorded to what lies in a session file: bounded texts, plain JSON.

The other way is `decode`'s.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from tkdebug.errors import Frame
from tkdebug.events import ArgumentInfo

MAX_TEXT_CHARS = 16 << 20
MAX_VALUE_CHARS = 4096


def bounded(text: str) -> str:
    """`text`, cut at the longest that a session holds."""
    if len(text) <= MAX_TEXT_CHARS:
        return text
    return text[:MAX_TEXT_CHARS] + f"\n[tkdebug: cut at {MAX_TEXT_CHARS >> 20} MiB]\n"


def utf8(text: str) -> str:
    """`text` as SQLite takes it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_text(value: object) -> str | None:
    """JSON of `value`, None for None."""
    return None if value is None else json.dumps(value)


def json_frames(frames: Sequence[Frame]) -> str:
    """A call chain."""
    return json.dumps([(frame.file, frame.line, frame.function) for frame in frames])


def integer(value: object) -> object:
    """`value`, or its text where it is beyond 64 bits."""
    # A wild address or a handle may exceed SQLite's 64 signed bits; its column has no type.
    return str(value) if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 else value


@lru_cache(maxsize=256)
def json_path(names: tuple[str, ...]) -> str:
    """Names of scopes."""
    return json.dumps([name[:MAX_VALUE_CHARS] for name in names])


@lru_cache(maxsize=256)
def json_grid(grid: tuple[int, ...]) -> str:
    """Programs along x, y, z."""
    return json.dumps(grid)


def json_options(options: Mapping[str, object]) -> str:
    """Options of a launch or a kernel."""
    items = tuple(options.items())
    try:
        return _json_items(items)
    except TypeError:  # a value that cannot be hashed
        return _json_items.__wrapped__(items)


def json_metrics(metrics: Mapping[str, object]) -> str:
    """What a script measured of a scope; JSON has no number for what is not finite."""
    plain = {str(name): _plain(value) for name, value in metrics.items()}
    return json.dumps(
        {
            name: str(v) if isinstance(v, float) and not math.isfinite(v) else v
            for name, v in plain.items()
        }
    )


@lru_cache(maxsize=256)
def _json_items(items: tuple[tuple[str, object], ...]) -> str:
    return json.dumps({str(name): _plain(value) for name, value in items})


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value[:64]]
    text = value if isinstance(value, str) else repr(value)
    return text[:MAX_VALUE_CHARS]


@lru_cache(maxsize=256)
def json_arguments(arguments: tuple[ArgumentInfo, ...]) -> str:
    """Arguments of a launch."""
    # Cached: most launches of a script pass arguments of the same few shapes.
    return json.dumps(
        [(a.name, a.type, a.value[:MAX_VALUE_CHARS], a.shape, a.strides) for a in arguments]
    )
