"""`triton._utils`: what torch and libraries take from it."""

from __future__ import annotations

from tkdebug.compat.nested_paths import find_paths_if, get_iterable_path, is_power_of_two

__all__ = ["find_paths_if", "get_iterable_path", "is_power_of_two"]
