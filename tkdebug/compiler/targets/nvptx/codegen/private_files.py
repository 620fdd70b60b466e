"""Files that nobody but this user, or root, can have written.

What is in the cache of compiled kernels runs on the GPU, so it is only as good as who can write it.
Owner and mode say who can; to look costs some 40 µs a file, a tenth of what its hash costs. An HMAC
under a key of the user's was weighed: where others can write the folder they can replace the key,
so its owner would have to be looked at in the same way, and keys get lost. Where owners differ (a
container that runs as root over a user's folder, NFS that maps root to nobody) either refuses.

Invariant: the folder is held open from the look at it to the look at the file, so that nobody can
put another in its place in between. Above it nothing need be looked at: who can replace the folder
still has to come up with one of ours.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = 0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NotPrivateError(Exception):
    """Somebody else could have written it.

    Args:
        path: the folder or file.
        why: "its owner is user 1234", "others can write it".
    """

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path}: {why}")


def read_private(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        NotPrivateError: somebody else can write the file, or replace it in its folder.
        OSError: it cannot be read.
    """
    if os.name != "posix":  # where the access lists of the user's folder say it
        return path.read_bytes()
    with _opened(path.parent, os.O_DIRECTORY, None) as folder:
        # Without O_NONBLOCK the opening of a FIFO would wait for a writer.
        with _opened(path, os.O_NONBLOCK, folder) as file, open(file, "rb", closefd=False) as data:
            return data.read()


def check_folder(path: Path) -> None:
    """Look whether somebody else can put files into a folder.

    Raises:
        NotPrivateError: they can.
        OSError: there is no such folder.
    """
    if os.name == "posix":
        with _opened(path, os.O_DIRECTORY, None):
            pass


@contextmanager
def _opened(path: Path, flags: int, folder: int | None) -> Iterator[int]:
    name = path if folder is None else path.name
    handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        _check(path, os.fstat(handle))
        yield handle
    finally:
        os.close(handle)


def _check(path: Path, status: os.stat_result) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise NotPrivateError(path, "it is not a regular file")
    if status.st_uid not in (os.geteuid(), _ROOT):
        raise NotPrivateError(path, f"its owner is user {status.st_uid}")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise NotPrivateError(path, "others can write it")
