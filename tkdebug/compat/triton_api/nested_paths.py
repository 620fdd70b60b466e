"""Paths into nested tuples and lists: the positions to follow, outermost first."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

Path = tuple[int, ...]


def get_iterable_path(iterable: Any, path: Path) -> Any:
    """The item of `iterable` at `path`."""
    return reduce(lambda value, position: value[position], path, iterable)


def find_paths_if(iterable: Any, pred: Callable[[Path, Any], bool]) -> list[Path]:
    """Paths of the items, themselves no tuples or lists, for which `pred(path, item)` holds."""
    if not isinstance(iterable, (tuple, list)):
        return [()] if pred((), iterable) else []

    def search(prefix: Path, items: Any) -> list[Path]:
        found: list[Path] = []
        for position, item in enumerate(items):
            path = (*prefix, position)
            if isinstance(item, (tuple, list)):
                found.extend(search(path, item))
            elif pred(path, item):
                found.append(path)
        return found

    return search((), iterable)


def is_power_of_two(value: int) -> bool:
    """Whether one bit of `value` is set (upstream counts 0 as one, too)."""
    return (value & (value - 1)) == 0
