"""Forms that all views write alike: JSON as every reader takes it, durations, tables of text.

Durations have three digits and a unit. A table has a name on the left, figures on the right, and no
line wider than the terminal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from tkdebug.terminal.display import cut

# The least width of the first column, if the others leave it no room.
_LEAST_NAME_CHARS = 12


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


def format_ns(time_ns: float) -> str:
    """Return a duration in three digits and its unit, at most 8 characters up to a day."""
    for limit_ns, unit_ns, unit in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if time_ns < limit_ns * 0.9995:
            return f"{_three_digits(time_ns / unit_ns)} {unit}"
    seconds = time_ns / 1e9
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    return f"{minutes // 60}h {minutes % 60:02d}m"


def _three_digits(value: float) -> str:
    if value >= 99.95 or value == 0:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def measured_ns(time_ns: int) -> str:
    """Return the duration as `format_ns` does, or "-" for 0, which was not measured."""
    return format_ns(time_ns) if time_ns else "-"


def table_lines(
    rows: Sequence[tuple[str, ...]], width: int | None = None, indent: str = ""
) -> Iterator[str]:
    """The rows as lines, the first of them the titles.

    Args:
        rows: rows of the same number of cells; the first cell of each is set left.
        width: columns of the terminal, None for as wide as it comes. Long names are cut first.
        indent: the text before each line.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if width is not None:
        rest = len(indent) + sum(2 + size for size in widths[1:])
        widths[0] = min(widths[0], max(width - rest, _LEAST_NAME_CHARS))
    for name, *cells in rows:
        figures = "".join(
            "  " + cell.rjust(size) for cell, size in zip(cells, widths[1:], strict=True)
        )
        yield cut(f"{indent}{cut(name, widths[0]).ljust(widths[0])}{figures}".rstrip(), width)
