"""Folders of a process below the system's temporary one, also after a SIGKILL.

A process that is killed cleans nothing up; the next one does. Invariants: a folder is deleted by
its owner, or once its owner is dead: nobody holds the lock of the file in it, and no process has
the number in that file. So a folder stays while its owner has the lock, which other containers see,
and while it lives though a script has closed all descriptors. Links are not followed, and other
users' folders are left alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

_PREFIX = "tkdebug-"
_OWNER = ".owner"
_MOST_DIGITS = 20


class TemporaryFolder:
    """A new folder, which this process owns until it is removed or kept.

    Args:
        kind: a word of its name.
    """

    def __init__(self, kind: str = "") -> None:
        if fcntl is not None:
            _clear_left_folders()
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-" if kind else _PREFIX))
        self._pid = os.getpid()
        self._lock = _locked(self.path / _OWNER)

    def remove(self) -> None:
        """Delete it with its contents; a forked child does nothing."""
        if os.getpid() == self._pid:
            shutil.rmtree(self.path, ignore_errors=True)
            self._let_go()

    def keep(self) -> None:
        """Let the folder outlive this process."""
        (self.path / _OWNER).unlink(missing_ok=True)
        self._let_go()

    def _let_go(self) -> None:
        handle, self._lock = self._lock, None
        if handle is not None:
            with contextlib.suppress(OSError):  # a script may have closed all descriptors
                os.close(handle)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder that is deleted at the end of the block."""
    folder = TemporaryFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def _locked(path: Path) -> int | None:
    """Lock a new file that marks a folder as this process's; return its descriptor, or None."""
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    # A process that clears folders holds the lock for a moment; it spares an empty file's folder.
    fcntl.flock(handle, fcntl.LOCK_SH)
    os.write(handle, str(os.getpid()).encode())
    return handle


@cache
def _clear_left_folders() -> None:
    """Delete the folders that dead processes of this user have left, once in a process."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # another process may be clearing, too
                    if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                        _clear(entry.path)


def _clear(folder: str) -> None:
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(_OWNER, flags, dir_fd=place)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owner = os.read(handle, _MOST_DIGITS)
            if owner.isdigit() and not _is_alive(int(owner)):
                shutil.rmtree(folder)
        finally:
            os.close(handle)
    finally:
        os.close(place)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OverflowError, PermissionError):
        pass  # no number of ours; another user's process, which has the number again
    return True
