"""The lock of a session file, into which one run writes: its first process and its children.

Responsible for the lock file beside the session. Invariants: each process that writes holds the
lock shared, a process that creates or replaces the session holds it alone; it goes with the
process, however that ends, so the files of a killed run block no other. The last to go removes it.

`flock` and not the locks of `fcntl`: those would go with any descriptor of the file that is closed.
Without either (Windows) two runs are not kept apart; there a file in use cannot be replaced anyway.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from tkdebug.errors import SessionError
from tkdebug.process.forks import renew_after_forks
from tkdebug.process.named_files import read_bytes

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

_POLL_S = 0.01


def is_recorded_into(path: Path) -> bool | None:
    """Return whether a run records into the session, or None if its lock does not say.

    A killed run leaves its lock file; a copy of a session has none.
    """
    if fcntl is None:
        return None
    with contextlib.suppress(OSError):
        handle = os.open(lock_path(path), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False
    return None


def lock_path(path: Path) -> Path:
    """Return the path of the lock file of the session at `path`."""
    return path.with_name(f".{path.name}.lock")


class SessionLock:
    """The lock of the session at `path`, not held yet."""

    def __init__(self, path: Path) -> None:
        self._session = path
        self._path = lock_path(path)
        self._handle: int | None = None
        renew_after_forks(self)

    def take_alone(self) -> bool:
        """Take the lock if it is free, and return whether it was."""
        taken = self._take("LOCK_EX")
        if taken and self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.write(self._handle, str(os.getpid()).encode())
        return taken

    def share(self, wait_s: float) -> bool:
        """Share the lock with other processes; return False if one of them has it exclusively."""
        deadline_s = time.monotonic() + wait_s
        while not self._take("LOCK_SH"):
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return True

    def in_use(self) -> SessionError:
        """Return the error to raise if another run holds the lock; it names the process."""
        pid = ""
        with contextlib.suppress(OSError, ValueError):
            pid = f" of process {int(read_bytes(self._path, 32))}"
        return SessionError(
            f"{self._session}: is in use, a run{pid} that has not ended records into it; choose "
            "another name or wait for its end"
        )

    def release(self) -> None:
        """Release the lock; a second call is a no-op."""
        if self._handle is None or not self._is_there():
            self._handle = None  # a script that closes all descriptors may have another file there
            return
        with contextlib.suppress(OSError):
            if self._flock("LOCK_EX") and self._is_there():
                self._path.unlink()
        self._close()

    def renew_locks(self) -> None:
        """Take the lock again in a forked child: the inherited one is the parent's, too."""
        inherited = self._handle
        if inherited is not None and self._is_there():
            self._handle = None
            self._take("LOCK_SH")
            os.close(inherited)

    def _take(self, kind: str) -> bool:
        if fcntl is None:
            return True
        try:
            while True:
                if self._handle is None:
                    # A link that somebody put there must not lead to a file of the user's.
                    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                    self._handle = os.open(self._path, flags, 0o666)
                if not self._flock(kind):
                    self._close()
                    return False
                if self._is_there():
                    return True
                self._close()  # the last to go has removed it meanwhile
        except OSError as error:
            self._close()
            raise SessionError(
                f"{self._session}: cannot be locked ({error.strerror}); choose another place"
            ) from error

    def _flock(self, kind: str) -> bool:
        assert self._handle is not None
        try:
            fcntl.flock(self._handle, getattr(fcntl, kind) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_there(self) -> bool:
        assert self._handle is not None
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._handle), self._path.stat())
        return False

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
