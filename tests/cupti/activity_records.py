"""Activity records by hand, as CUPTI lays them out: for tests without a GPU.

The offsets are those of cupti_activity.h, written down here again; test_layouts.py compares
what the package says with the headers themselves.
"""

from __future__ import annotations

import ctypes
import struct

KERNEL, MEMCPY, MEMSET, DRIVER, RUNTIME = 10, 1, 2, 4, 5
LAUNCH_KERNEL_EX = 652
_names: dict[str, ctypes.Array] = {}


def name_address(text):
    """Return the address of a name, which stays in memory for ever."""
    if text not in _names:
        _names[text] = ctypes.create_string_buffer(text.encode())
    return ctypes.addressof(_names[text])


def _record(size, fields):
    data = bytearray(size)
    for offset, code, value in fields:
        struct.pack_into("<" + code, data, offset, value)
    return bytes(data)


def kernel(
    name="add",
    start=1000,
    end=1900,
    call=1,
    stream=7,
    grid=(4, 1, 1),
    block=(128, 1, 1),
    graph=0,
    device=0,
    size=216,
):
    fields = [
        (0, "I", KERNEL),
        (6, "H", 16),
        (16, "Q", start),
        (24, "Q", end),
        (40, "I", device),
        (44, "I", 1),
        (48, "I", stream),
        *((52 + 4 * axis, "i", n) for axis, n in enumerate(grid)),
        *((64 + 4 * axis, "i", n) for axis, n in enumerate(block)),
        (76, "i", 32),
        (80, "i", 64),
        (92, "I", call),
        (104, "Q", name_address(name)),
        (144, "Q", graph << 32),
        (156, "I", graph),
    ]
    return _record(size, fields)


def memcpy(start=2000, end=2500, size_bytes=4096, copy_kind=1, stream=7, call=50, size=96):
    fields = [
        (0, "I", MEMCPY),
        (4, "B", copy_kind),
        (8, "Q", size_bytes),
        (16, "Q", start),
        (24, "Q", end),
        (36, "I", 1),
        (40, "I", stream),
        (44, "I", call),
    ]
    return _record(size, fields)


def memset(start=3000, end=3100, size_bytes=64, stream=7, call=60, size=88):
    fields = [
        (0, "I", MEMSET),
        (8, "Q", size_bytes),
        (16, "Q", start),
        (24, "Q", end),
        (36, "I", 1),
        (40, "I", stream),
        (44, "I", call),
    ]
    return _record(size, fields)


def runtime_call(start, call, thread):
    return driver_call(start, call, thread, callback=211, kind=RUNTIME)


def driver_call(start, call, thread, callback=LAUNCH_KERNEL_EX, status=0, kind=DRIVER):
    fields = [
        (0, "I", kind),
        (4, "I", callback),
        (8, "Q", start),
        (16, "Q", start + 3000),
        (24, "I", 4711),
        (28, "I", thread),
        (32, "I", call),
        (36, "I", status),
    ]
    return _record(40, fields)
