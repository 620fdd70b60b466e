"""Checked launches at torch's synchronisations and graph captures."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


def conclude_checked_launches() -> None:
    """Wait for the results of checked launches, and report them; without any, do nothing."""
    module = sys.modules.get("tkdebug.runtime.checked.checked_launches")
    if module is not None:
        module.CHECKED.conclude()


def collect_at_synchronisations() -> Callable[[], None]:
    """Report checked launches at torch's synchronisations; return a function that ends this.

    When torch begins to capture a graph, each kernel's next launch is looked at.
    """
    import torch

    undo = ExitStack()
    for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event):
        original = owner.synchronize
        owner.synchronize = _collecting(original)  # type: ignore[union-attr,method-assign]
        undo.callback(setattr, owner, "synchronize", original)
    capture_begin = torch.cuda.CUDAGraph.capture_begin
    torch.cuda.CUDAGraph.capture_begin = _looking(capture_begin)  # type: ignore[method-assign]
    undo.callback(setattr, torch.cuda.CUDAGraph, "capture_begin", capture_begin)
    return undo.close


def _looking(original: Callable[..., Any]) -> Callable[..., Any]:
    from tkdebug.runtime.checked.checked_kernel import look_at_captures

    @functools.wraps(original)
    def capture_begin(*args: Any, **kwargs: Any) -> Any:
        look_at_captures()
        return original(*args, **kwargs)

    return capture_begin


def _collecting(original: Callable[..., Any]) -> Callable[..., Any]:
    from tkdebug.runtime.checked.checked_launches import CHECKED

    @functools.wraps(original)
    def synchronize(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        CHECKED.collect()
        CHECKED.collect_replays()
        return result

    return synchronize
