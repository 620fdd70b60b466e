"""Notifies hooks when CUDA is in use in this process, and when torch's profiler takes CUPTI.

Not earlier: CUPTI starts the driver, and a process that forks after that has no CUDA in its
children. CUPTI has one client at a time, and if two take turns without knowing of each other,
torch's profiler waits forever for buffers that went to the other one (seen with torch 2.11).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from tkdebug.records.hook_chain import HOOKS, ActivityBuffers

_TAKES = ("_prepare_profiler", "_enable_profiler")
_GIVES_BACK = "_disable_profiler"
_MARK = "__tkdebug_tells__"


def announce() -> None:
    """Report that CUDA is in use from now on; only the first call does anything."""
    tell_of_profiler()
    HOOKS.device_used(_make_buffers)


def announce_with_torch() -> None:
    """Call `announce` when torch starts CUDA, or now if it has."""
    import torch

    # Without a question for devices, after which torch refuses CUDA in forked children. Without a
    # GPU torch never starts CUDA; a stand-in for torch.cuda has no such function.
    when_started = getattr(torch.cuda, "_lazy_call", None)
    if when_started is not None:
        when_started(announce)


def tell_of_profiler() -> None:
    """Notify hooks before torch's profiler records CUDA, and after; a second call does nothing.

    The profiler takes CUPTI in the functions that are wrapped here.
    """
    import torch.autograd.profiler as profiler

    if hasattr(profiler, _MARK) or not all(hasattr(profiler, n) for n in (*_TAKES, _GIVES_BACK)):
        return
    setattr(profiler, _MARK, True)
    for name in _TAKES:
        setattr(profiler, name, _telling_before(getattr(profiler, name)))
    setattr(profiler, _GIVES_BACK, _telling_after(getattr(profiler, _GIVES_BACK)))


def _telling_before(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def take(config: Any, activities: Collection[Any], *rest: Any, **options: Any) -> Any:
        if any("CUDA" in str(activity) for activity in activities):
            HOOKS.profiler(True)
        return function(config, activities, *rest, **options)

    return take


def _telling_after(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def give_back(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        finally:
            HOOKS.profiler(False)

    return give_back


def _make_buffers() -> ActivityBuffers:
    from tkdebug.runtime.cuda.activity_buffers import activity_buffers

    return activity_buffers()
