"""Files that processes keep for one another in the user's cache directory.

Compiled kernels, lowered ones and texts of machine code: each file is named by the hash of what its
content was made of. Invariants: a file is whole or not there (written beside, then renamed); a
damaged file costs a line on stderr and the work, nothing else; nothing in a file is executed here.
The directory is kept under a size by removing the files least recently used.

Code of the cache runs on the GPU, so a file is read only if nobody but this user, or root, can have
written it. Owner and mode decide; the check costs some 40 µs a file, a tenth of its hash. An HMAC
under a key of the user's was weighed: where others can write the folder they can replace the key,
so its owner would have to be checked in the same way, and keys get lost. Where owners differ (a
container that runs as root over a user's folder, NFS that maps root to nobody) either refuses. The
folder is held open from its check to that of the file, so that nobody can replace it in between.
Folders above it need no check: a replaced one still has to hold a file of ours.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TypeVar

from tkdebug.knobs import KNOBS
from tkdebug.terminal.text import tell

_T = TypeVar("_T")
_ROOT = 0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
SUFFIX = ".tkc"
_STORES_BETWEEN_TRIMS = 64
# The time between trims: looking at 16,000 files takes 0.2 s.
_BETWEEN_TRIMS_S = 600.0
_NEW = ".new-"
# The age of a half-written file whose process was killed: writing one takes far less.
_ABANDONED_S = 3600.0
_TRIM_TO = 0.8
# Counts the stores of this process: it trims at the first one, and now and then.
_STORES = count()


def directory() -> Path:
    """The folder of the cache: knob `cache_dir`, else the user's cache directory."""
    chosen = KNOBS.cache_dir
    if chosen is not None:
        return chosen / "native"
    return user_cache() / "native"


def user_cache() -> Path:
    """The user's cache directory for tkdebug.

    A user without a home, as containers have, gets a folder among the temporary ones.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "tkdebug"
    home = os.path.expanduser("~")  # unchanged where it is unknown
    if os.path.isabs(home):
        return Path(home) / ".cache" / "tkdebug"
    return Path(tempfile.gettempdir()) / f"tkdebug_cache_{os.getuid()}"


class NotPrivateError(Exception):
    """A file or folder that another user could have written.

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
        OSError: the file cannot be read.
    """
    if os.name != "posix":  # where the access lists of the user's folder say it
        return path.read_bytes()
    with _opened(path.parent, os.O_DIRECTORY, None) as folder:
        # Without O_NONBLOCK the opening of a FIFO would wait for a writer.
        with _opened(path, os.O_NONBLOCK, folder) as file, open(file, "rb", closefd=False) as data:
            return data.read()


def check_folder(path: Path) -> None:
    """Check whether somebody else can put files into a folder.

    Raises:
        NotPrivateError: somebody else can.
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


def read_entry(path: Path, decode: Callable[[bytes], _T]) -> _T | None:
    """The entry in a file; None if there is none, or none that can be used.

    Args:
        path: the file, in a folder of `directory()`.
        decode: makes the entry of its bytes; raises where they are damaged.
    """
    try:
        data = read_private(path)
    except FileNotFoundError:
        return None
    except NotPrivateError as error:
        _say_not_private(error)
        return None
    except OSError as error:
        _say_once(f"cached file cannot be read: {error}")
        return None
    try:
        entry = decode(data)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        tell(f"{path}: cached file is damaged ({error}); it is made again")
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):
        os.utime(path)
    return entry


def write_entry(path: Path, encode: Callable[[], bytes]) -> None:
    """Write an entry; a directory that cannot be used is reported once.

    Args:
        path: the file, in a folder of `directory()`.
        encode: makes its bytes; raises ValueError where they are too many.
    """
    try:
        data = encode()
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        # Where the umask lets a group write, files of the folder would not be used.
        path.parent.mkdir(mode=0o755, exist_ok=True)
        check_folder(path.parent)
        handle, beside = tempfile.mkstemp(prefix=_NEW, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise
    except NotPrivateError as error:
        _say_not_private(error)
        return
    except (OSError, ValueError) as error:
        _say_once(f"not kept in the cache: {error}")
        return
    _trim_now_and_then()


def _trim_now_and_then() -> None:
    if next(_STORES) % _STORES_BETWEEN_TRIMS:
        return
    # The time of the folder is that of the latest trim by any process, or of a new folder in it.
    folder = directory()
    with suppress(OSError):
        if abs(time.time() - folder.stat().st_mtime) < _BETWEEN_TRIMS_S:
            return
        os.utime(folder)
    trim(folder, KNOBS.cache_size_bytes)


def trim(folder: Path, limit_bytes: int) -> None:
    """Remove the least recently used files until the rest is well under `limit_bytes`.

    Files that killed processes left half-written go, too.
    """
    for path in folder.glob(f"*/{_NEW}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()
    entries = []
    for path in folder.glob(f"*/*{SUFFIX}"):
        with suppress(OSError):  # another process may be trimming, too
            status = path.stat()
            entries.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    if total <= limit_bytes:
        return
    for _, size, path in sorted(entries):
        if total <= limit_bytes * _TRIM_TO:
            return
        with suppress(OSError):
            path.unlink()
        total -= size


def _say_not_private(error: NotPrivateError) -> None:
    if error.path.suffix == SUFFIX:
        _say_once(f"{error}; the cached file is not used, but made again")
        return
    _say_once(
        f"{error}; the cache there is neither read nor written; `chmod -R go-w` it if it is yours, "
        "or name another folder in TKDEBUG_CACHE_DIR"
    )


@lru_cache(maxsize=16)
def _say_once(text: str) -> None:
    tell(text)
