"""State of the process that interpreted launches change: torch's settings, and kept memory.

By default glibc returns the end of its heap to the system once some 10 MB of it are free. The tiles
of the next launch then take page faults: 110 to 520 in each launch of a softmax of 6 MB. So the
memory of large temporaries is kept.

Source: glibc manual, "Malloc Tunable Parameters"; mallopt(3).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

import torch


@contextmanager
def apart_from_the_script(device: torch.device) -> Iterator[None]:
    """Hide the work of the interpreter on `device`, in this thread, from the script's torch.

    Tensor subclasses, modes such as torch's counter of operations, and autograd do not see it, and
    `torch.autocast` does not round the operands of its dots.
    """
    kind = device.type
    is_cast = torch.is_autocast_enabled(kind)
    has_grad = torch.is_grad_enabled()
    with (
        torch._C.DisableTorchFunction(),  # noqa: SLF001
        torch._C._DisableTorchDispatch(),  # noqa: SLF001
        torch.autocast(kind, enabled=False) if is_cast else nullcontext(),
    ):
        torch._C._set_grad_enabled(False)  # noqa: SLF001
        try:
            yield
        finally:
            torch._C._set_grad_enabled(has_grad)  # noqa: SLF001


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 128 << 20
# Larger allocations get a mapping of their own; mallopt takes no larger limit.
_HEAP_PART_BYTES = 32 << 20
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> None:
    """Have glibc keep up to `KEPT_BYTES` of freed memory, unless the user has set a limit."""
    if any(name in os.environ for name in _OF_THE_USER):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return  # no glibc
    # Once either is set, glibc adjusts neither by itself: so both are.
    mallopt(_M_MMAP_THRESHOLD, _HEAP_PART_BYTES)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
