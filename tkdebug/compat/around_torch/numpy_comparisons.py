"""Sees numpy compare arrays over tensors in which launches left gaps.

Only the functions that scripts compare results with are looked at: all of an array is read there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch

from tkdebug.compat.after_torch import after_import
from tkdebug.compat.replacements import Replacements
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS

OF_NUMPY = ("allclose", "isclose", "array_equal", "array_equiv")
OF_TESTING = (
    "assert_allclose",
    "assert_almost_equal",
    "assert_array_almost_equal",
    "assert_array_almost_equal_nulp",
    "assert_array_equal",
    "assert_array_less",
    "assert_array_max_ulp",
    "assert_equal",
)


def watch_comparisons() -> Callable[[], None]:
    """Look at numpy's comparisons from now on; the result, called once, stops it."""
    try:
        # Not needed by torch, and imported with it where it is there.
        import numpy
    except ImportError:
        return lambda: None
    replaced = Replacements()
    _replace(replaced, numpy, OF_NUMPY)

    def with_testing() -> None:
        _replace(replaced, sys.modules["numpy.testing"], OF_TESTING)

    # Few scripts import it.
    replaced.on_restore(after_import("numpy.testing", with_testing))
    return replaced.restore


def _replace(replaced: Replacements, owner: ModuleType, names: Sequence[str]) -> None:
    for name in names:
        if hasattr(owner, name):
            replaced.set(owner, name, _looking(getattr(owner, name), name))


def _looking(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def looking(*args: Any, **keywords: Any) -> Any:
        if HELD_GAPS:
            for array in _arrays([*args[:2], *keywords.values()]):
                _look(array, f"numpy's `{name}`")
        return function(*args, **keywords)

    return looking


def _look(array: Any, reader: str) -> None:
    gaps = HELD_GAPS.at(int(array.__array_interface__["data"][0]))
    if not gaps or array.dtype.kind not in "fi":
        return
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        # Narrow integers show by their memory what was not written, others in a copy, too.
        is_tensor_s = array.itemsize <= 2 and array.flags.c_contiguous and array.flags.writeable
        HELD_GAPS.read_of(gaps, torch.from_numpy(array if is_tensor_s else array.copy()), reader)


def _arrays(values: list[Any]) -> Iterator[Any]:
    import numpy

    return (value for value in values if type(value) is numpy.ndarray)
