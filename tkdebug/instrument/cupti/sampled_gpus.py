"""One process at a time samples a GPU: with two, CUPTI gives one of them errors, and crashes there.

The claim is a lock of a file that nobody reads or writes; it ends with the process.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class SampledGpus:
    """The GPUs that this process samples."""

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    def claim(self, gpu: str) -> bool:
        """Whether no other process of tkdebug samples it; true where that cannot be known.

        Args:
            gpu: its UUID; "" where that is not known.
        """
        if not gpu or gpu in self._locks:
            return True
        try:
            import fcntl
        except ImportError:  # Windows
            return True
        path = Path(tempfile.gettempdir()) / f"tkdebug-samples-{gpu}"
        try:
            # Where others may have put a link, or a pipe that would wait for its writer.
            kind = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(path, os.O_RDONLY | os.O_CREAT | kind, 0o644)
        except OSError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._locks[gpu] = file
        return True

    def release(self) -> None:
        """Claim none any more."""
        while self._locks:
            os.close(self._locks.popitem()[1])
