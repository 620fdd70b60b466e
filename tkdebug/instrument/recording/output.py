"""Records a script's output, without coming between it and its terminal.

The stream object stays the same one, with its `buffer`, `isatty` and `fileno`; only its `write` is
covered by one that also records. Output that bypasses it (to `buffer`, to the file descriptor, by
other processes) is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

RecordOutput = Callable[[str, str], None]


class OutputTee:
    """Records every `write` to `stream` under `name` between `start` and `stop`."""

    def __init__(self, stream: TextIO | None, name: str, record: RecordOutput) -> None:
        self._stream = stream
        self._name = name
        self._record = record
        self._covered = False

    def start(self) -> None:
        """Cover the stream's `write`; a stream that lets no attribute be set is not recorded."""
        if self._stream is None:
            return
        write = self._stream.write

        def write_and_record(text: str) -> int:
            written = write(text)
            self._record(self._name, text)
            return written

        try:
            vars(self._stream)["write"] = write_and_record
        except TypeError:
            return
        self._covered = True

    def stop(self) -> None:
        """Uncover the stream's `write`."""
        if self._covered and self._stream is not None:
            vars(self._stream).pop("write", None)
            self._covered = False
