"""Keeps what large temporaries were in, instead of asking the system for it again in each launch.

By its defaults the C library gives the end of its heap back once some 10 MB of it are free. Tiles
of the next launch then have to be paged in anew: of a softmax of 6 MB, up to half of its time.

Source: glibc manual, "Malloc Tunable Parameters"; mallopt(3).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 128 << 20
# What is larger is never part of the heap: the most that mallopt takes.
_HEAP_PART_BYTES = 32 << 20
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> None:
    """Have this process keep up to `KEPT_BYTES`; nothing where its user has said what to keep."""
    if any(name in os.environ for name in _OF_THE_USER):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return  # no glibc
    # The second is fixed, too, once the first is set.
    mallopt(_M_MMAP_THRESHOLD, _HEAP_PART_BYTES)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
