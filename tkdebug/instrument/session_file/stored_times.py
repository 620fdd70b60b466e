"""Times of launches that another process has: asked for in the session file.

Few ask, such as a user's hook, or the report of a crash, so a launch costs no more than an object.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from tkdebug.instrument.session_file.connection import open_read_only


class StoredTime:
    """What `LaunchRecord.device_ns` is of a launch whose time the recording process stores.

    Args:
        path: the session.
        launch: the launch's number in this process.
        wait: makes all times known that can be.
    """

    __slots__ = ("_launch", "_path", "_process", "_wait")

    def __init__(self, path: Path, launch: int, wait: Callable[[], None]) -> None:
        self._path = path
        self._launch = launch
        self._process = os.getpid()
        self._wait = wait

    def __call__(self, wait: bool = False) -> int | None:
        """The launch's nanoseconds on the device; None when they are not known."""
        found = self._stored()
        if found is None and wait:
            self._wait()
            found = self._stored()
        return None if found is None else found[1]

    @property
    def duration_ns(self) -> int | None:
        """The same."""
        return self()

    @property
    def settled_ns(self) -> int | None:
        """When the launch ended, by the GPU's clock, since 1970; None where that is not known."""
        found = self._stored()
        return None if found is None else found[0] + found[1]

    def _stored(self) -> tuple[int, int] | None:
        """Start and nanoseconds."""
        statement = (
            "SELECT device_start_ns, duration_ns FROM launches WHERE process = ? AND id = ? "
            "AND device_start_ns IS NOT NULL ORDER BY seq DESC LIMIT 1"
        )
        with contextlib.closing(open_read_only(self._path, "mode=ro")) as connection:
            found: tuple[int, int] | None = connection.execute(
                statement, (self._process, self._launch)
            ).fetchone()
        return found
