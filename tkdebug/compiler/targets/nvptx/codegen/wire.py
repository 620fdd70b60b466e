"""Frames between the compiler and its code generation worker, and in the files of the cache.

A frame is magic, length of a JSON header, length of a body of bytes, then both. Invariant: nothing
is read past the stated bounds, and nothing that is read is ever executed or unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping


class StageError(Exception):
    """A stage refuses its input.

    Args:
        stage: the stage: parse, libdevice, optimise, emit, assemble, worker.
        message: one line.
        log: the whole output of the stage's library.
    """

    def __init__(self, stage: str, message: str, log: str = "") -> None:
        self.stage = stage
        self.log = log
        super().__init__(message)


_PREFIX = struct.Struct("<4sIQ")
_MAGIC = b"TKF1"
MAX_HEADER_BYTES = 16 << 20
MAX_BODY_BYTES = 1 << 30
PREFIX_BYTES = _PREFIX.size

Header = dict[str, object]


class FrameError(ValueError):
    """The bytes are no frame: wrong magic, out of bounds, or cut short."""


def pack(header: Mapping[str, object], body: bytes = b"") -> bytes:
    """One frame as bytes.

    Raises:
        FrameError: header or body is larger than a frame may be.
    """
    text = json.dumps(header, separators=(",", ":")).encode()
    _check_lengths(len(text), len(body))
    return _PREFIX.pack(_MAGIC, len(text), len(body)) + text + body


def read(read_exactly: Callable[[int], bytes]) -> tuple[Header, bytes]:
    """The next frame; `read_exactly(n)` gives n bytes or raises.

    Raises:
        FrameError: the bytes are no frame.
    """
    magic, header_bytes, body_bytes = _PREFIX.unpack(read_exactly(PREFIX_BYTES))
    if magic != _MAGIC:
        raise FrameError(f"got {magic!r}, expected {_MAGIC!r}")
    _check_lengths(header_bytes, body_bytes)
    try:
        header = json.loads(read_exactly(header_bytes))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FrameError(f"header: got {type(header).__name__}, expected an object")
    return header, read_exactly(body_bytes) if body_bytes else b""


def unpack(data: bytes) -> tuple[Header, bytes]:
    """The frame that `data` is.

    Raises:
        FrameError: the data is no frame, or bytes are left over.
    """
    position = 0

    def take(count: int) -> bytes:
        nonlocal position
        if position + count > len(data):
            raise FrameError(f"cut short: {len(data)} bytes, expected {position + count} or more")
        position += count
        return data[position - count : position]

    frame = read(take)
    if position != len(data):
        raise FrameError(f"{len(data) - position} bytes too many")
    return frame


def _check_lengths(header_bytes: int, body_bytes: int) -> None:
    if header_bytes > MAX_HEADER_BYTES or body_bytes > MAX_BODY_BYTES:
        raise FrameError(
            f"got {header_bytes} + {body_bytes} bytes, "
            f"expected at most {MAX_HEADER_BYTES} + {MAX_BODY_BYTES}"
        )
