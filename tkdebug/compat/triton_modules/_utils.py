"""`triton._utils`: what torch and libraries take from it."""

from __future__ import annotations

from tkdebug.compat.triton_api.nested_paths import find_paths_if, get_iterable_path, is_power_of_two
from tkdebug.runtime.jit.parameters import CANONICAL_NAMES as type_canonicalisation_dict
from tkdebug.runtime.jit.parameters import canonical_annotation as canonicalize_dtype

__all__ = [
    "canonicalize_dtype",
    "find_paths_if",
    "get_iterable_path",
    "is_power_of_two",
    "type_canonicalisation_dict",
]
