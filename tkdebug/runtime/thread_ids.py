"""Where machine code keeps the id of the thread that runs it; to ask the system takes a call."""

from __future__ import annotations

import ctypes
import os
from functools import cache


@cache
def thread_key(process: int) -> int:
    """The pthread key by which each thread of a process keeps its native id.

    A forked child's threads have other ids.
    """
    key = ctypes.c_uint()
    create = ctypes.CDLL(None).pthread_key_create
    status = create(ctypes.byref(key), None)
    if status:
        raise OSError(status, os.strerror(status))
    return key.value
