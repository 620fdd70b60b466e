"""Collectives of the stand-in: if a script asks for nccl, gloo does the work on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed

from tkdebug.compat.cuda_standin.torch_internals import share_timers
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.compat.replacements import Replacements


def apply(patches: Replacements) -> None:
    """Put the replacements in place."""
    if hasattr(torch.cuda, "nccl"):
        patches.set(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return
    from torch.distributed import distributed_c10d

    patches.on_restore(share_timers())
    logger = getattr(torch.distributed, "Logger", None)
    if logger is not None:
        # The times of a gradient reducer, which a build without CUDA takes none of.
        patches.set(logger, "set_runtime_stats_and_log", lambda self: None)

    for name in ("init_process_group", "new_group"):
        replacement = _over_gloo(getattr(distributed_c10d, name))
        for owner in (distributed_c10d, torch.distributed):
            patches.set(owner, name, replacement)
    for owner in (distributed_c10d, torch.distributed):
        patches.set(owner, "is_nccl_available", lambda: True)


def _over_gloo(original: Callable[..., Any]) -> Callable[..., Any]:
    place = 0 if original.__name__ == "init_process_group" else 2

    @functools.wraps(original)
    def make_group(*arguments: Any, **keywords: Any) -> Any:
        given = list(arguments)
        backend = given[place] if len(given) > place else keywords.get("backend")
        if isinstance(backend, str) and "nccl" in backend.lower():
            _say_once()
            if len(given) > place:
                given[place] = "gloo"
            else:
                keywords["backend"] = "gloo"
            keywords.pop("pg_options", None)
        # It would make the group wait for a CUDA device.
        keywords.pop("device_id", None)
        return original(*given, **keywords)

    return make_group


@functools.cache
def _say_once() -> None:
    tell("nccl is replaced by gloo, because 'cuda' runs on the CPU here")
