"""Fills memory that torch leaves unwritten with the marks that kernels' reads are checked for.

`torch.empty` and the like return memory with its old contents. While `mark_empties` is in force
each of them fills its result with the mark of its type
(`tkdebug.interpreter.checks.unwritten.patterns`); copies of unwritten memory are unwritten, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._device
from torch import Tensor

from tkdebug.compat.replacements import Replacements
from tkdebug.interpreter.checks.unwritten.patterns import MARKS, NARROW_PATTERNS, TYPES, bits_type
from tkdebug.interpreter.memory.host_views import host_view

_settings: Any = torch.utils.deterministic
_FUNCTIONS = ("empty", "empty_like", "empty_strided", "empty_permuted")
_METHODS = ("new_empty", "new_empty_strided")


def mark_empties() -> Callable[[], None]:
    """Mark fresh memory from now on; return a function that stops it."""
    replaced = Replacements()
    # torch notes once which functions heed the default device, and knows them by what they are.
    torch.utils._device._device_constructors()  # noqa: SLF001
    for name in _FUNCTIONS:
        replaced.set(torch, name, _marking(getattr(torch, name)))
    for name in _METHODS:
        replaced.set(Tensor, name, _marking(getattr(Tensor, name)))
    return replaced.restore


def _marking(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def marked(*arguments: Any, **keywords: Any) -> Any:
        made = function(*arguments, **keywords)
        # Off inside the interpreter, whose own tiles need no marks.
        if not torch._C._is_torch_function_enabled():  # noqa: SLF001
            return made
        if torch.are_deterministic_algorithms_enabled() and _settings.fill_uninitialized_memory:
            # torch has filled it, with what such programs may count on.
            return made
        if keywords.get("out") is None and isinstance(made, Tensor):
            _mark(made)
        return made

    return marked


def _mark(tensor: Tensor) -> None:
    """Fill a fresh tensor's memory, if it has any and its type has a mark."""
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
        mark = MARKS.get(tensor.dtype)
        # Subclasses (fake tensors while torch traces) and other layouts have no memory to fill.
        plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
        is_narrow = tensor.dtype in TYPES
        if (mark is None and not is_narrow) or not plain or tensor.is_meta:
            return
        storage = host_view(tensor).untyped_storage()
        if mark is None:
            NARROW_PATTERNS.fill(storage)
            return
        bits = bits_type(tensor.element_size())
        memory = torch.empty(0, dtype=bits, device=storage.device)
        memory.set_(storage, 0, (storage.nbytes() // memory.element_size(),), (1,))
        memory.fill_(mark)
