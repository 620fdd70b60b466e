"""Forwards a script's output, since stdout and stderr are the protocol's, or nobody's."""

from __future__ import annotations

import codecs
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

_CHUNK_BYTES = 1 << 16
_NAMES = {1: "stdout", 2: "stderr"}
# Children of the script may hold the pipes open after it has ended.
_LONGEST_WAIT_S = 2.0


class ForwardedOutput(AbstractContextManager["ForwardedOutput"]):
    """Puts pipes in the place of file descriptors 1 and 2.

    Args:
        forward: called with a piece of text and "stdout" or "stderr", in threads of its own.
    """

    def __init__(self, forward: Callable[[str, str], None]) -> None:
        self._forward = forward
        self._saved: dict[int, int] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> ForwardedOutput:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, name in _NAMES.items():
            self._saved[number] = os.dup(number)
            reading, writing = os.pipe()
            os.dup2(writing, number)
            os.close(writing)
            thread = threading.Thread(target=self._read, args=(reading, name), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in self._saved.items():
            os.dup2(saved, number)
            os.close(saved)
        for thread in self._threads:
            thread.join(_LONGEST_WAIT_S)

    def _read(self, pipe: int, name: str) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := os.read(pipe, _CHUNK_BYTES):
            if text := decoder.decode(data):
                self._forward(text, name)
        os.close(pipe)
