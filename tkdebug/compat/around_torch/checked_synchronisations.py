"""Reports of checked launches where a script waits for the GPU."""

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
    """Report checked launches at torch's synchronisations; the result, called, ends that."""
    import torch

    undo = ExitStack()
    for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event):
        original = owner.synchronize
        owner.synchronize = _collecting(original)  # type: ignore[union-attr,method-assign]
        undo.callback(setattr, owner, "synchronize", original)
    return undo.close


def _collecting(original: Callable[..., Any]) -> Callable[..., Any]:
    from tkdebug.runtime.checked.checked_launches import CHECKED

    @functools.wraps(original)
    def synchronize(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        CHECKED.collect()
        return result

    return synchronize
