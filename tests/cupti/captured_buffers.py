"""Buffers as an H200 gave them: CUDA 13.0 (API version 130001), driver 580, torch 2.11.

Made by `bench/cupti_check.py --out FOLDER raw`: the names that records point to, then the records.
"""

from __future__ import annotations

import lzma
import struct
from pathlib import Path

from tkdebug.instrument.cupti.layouts import layout_of

FOLDER = Path(__file__).with_name("captured")
LAYOUT = layout_of(130001)


def captured(name):
    """Names by address, and records."""
    content = lzma.decompress((FOLDER / name).read_bytes())
    count, size_bytes = struct.unpack_from("<II", content)
    names, at = {}, 8
    for _ in range(count):
        address, length = struct.unpack_from("<QI", content, at)
        names[address] = content[at + 12 : at + 12 + length].decode()
        at += 12 + length
    assert at == 8 + size_bytes
    return names, content[at:]
