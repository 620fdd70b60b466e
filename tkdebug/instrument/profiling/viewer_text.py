"""A profile that was read, as a tree of text: a place a line, its metrics before its name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tkdebug.instrument.profiling.viewer import ViewedPlace, ViewedProfile, bare_name
from tkdebug.terminal.text import visible

FRAME_FORMATS = ("full", "file_function_line", "function_line", "file_function")
_MAX_NAME_CHARS = 100


def tree_lines(
    profile: ViewedProfile, metrics: Sequence[str], depth: int, frame_format: str | None
) -> Iterator[str]:
    """The tree, `depth` levels of it."""
    yield visible(_line(profile.root, metrics, frame_format))
    yield from _branch(profile.root, metrics, depth - 1, frame_format, "")


def _branch(
    place: ViewedPlace, metrics: Sequence[str], depth: int, frame_format: str | None, indent: str
) -> Iterator[str]:
    if depth <= 0:
        return
    for number, child in enumerate(place.children, 1):
        is_last = number == len(place.children)
        line = _line(child, metrics, frame_format)
        yield visible(f"{indent}{'└─' if is_last else '├─'} {line}")
        below = indent + ("   " if is_last else "│  ")
        yield from _branch(child, metrics, depth - 1, frame_format, below)


def _line(place: ViewedPlace, metrics: Sequence[str], frame_format: str | None) -> str:
    values = " ".join(_number(place.number(metric)) for metric in metrics)
    return f"{values} {frame_name(place.name, frame_format)}"


def _number(value: float) -> str:
    return "nan" if math.isnan(value) else f"{value:.3f}"


def frame_name(name: str, frame_format: str | None) -> str:
    """The name of a place; of a call (`file:line@function`), the parts that are asked for."""
    match frame_format:
        case "file_function_line":
            return name.split("/")[-1]
        case "function_line":
            return name.split(":")[-1]
        case "file_function":
            file, function = name.split("/")[-1].split(":")[0], name.split("@")[-1].split(":")[0]
            return f"{file}@{function}"
        case _:
            return name


def sorted_lines(profile: ViewedProfile, metric: str) -> Iterator[str]:
    """All places but the root, the highest value first."""
    yield f"Sorted kernels by metric {metric}"
    places = [place for place in profile.root.walk() if place is not profile.root]
    known = [place for place in places if not math.isnan(place.number(metric))]
    for place in sorted(known, key=lambda p: p.number(metric), reverse=True):
        name = place.name
        if len(name) > _MAX_NAME_CHARS:
            name = name[:_MAX_NAME_CHARS] + "..."
        yield visible(f"{name:105} {place.number(metric):.4}")


def metric_lines(profile: ViewedProfile) -> Iterator[str]:
    """Which metrics there are."""
    yield "Available inclusive metrics:"
    yield from (visible(f"- {bare_name(name)}") for name in profile.inclusive)
    yield "Available exclusive metrics:"
    yield from (visible(f"- {bare_name(name)}") for name in profile.exclusive)
