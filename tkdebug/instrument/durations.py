"""Durations as every view writes them: three digits and a unit."""

from __future__ import annotations


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
