"""The file of a session as it lies on disk: whether it is one, its log, opening it read-only."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import sys
from pathlib import Path

from tkdebug.errors import SessionError
from tkdebug.instrument.encode import MAX_TEXT_CHARS
from tkdebug.instrument.schema import APPLICATION_ID, BUSY_TIMEOUT_S, SCHEMA_VERSION

# Twice what the longest text takes that is ever written: a row of `kernels` has two of those.
MAX_VALUE_BYTES = 2 * 4 * MAX_TEXT_CHARS + (1 << 20)


def open_read_only(path: Path, options: str) -> sqlite3.Connection:
    """A connection to the file that writes nothing and trusts nothing in it."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def log_path(path: Path) -> Path:
    """Where the write-ahead log of a session lies."""
    return path.with_name(path.name + "-wal")


def log_size_bytes(path: Path) -> int | None:
    """Size of the log, None where there is none."""
    with contextlib.suppress(OSError):
        return log_path(path).stat().st_size
    return None


def check_file(path: Path) -> None:
    """Raise the clearest `SessionError` that the first bytes of the file allow."""
    try:
        # A FIFO would be waited for.
        if not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode):
            raise SessionError(f"{path}: is no regular file, expected a session file")
        with path.open("rb") as file:
            header = file.read(100)
            size_bytes = file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        raise SessionError(
            f"{path}: no such session; `tkdebug run -o {path.name} script.py` records one"
        ) from None
    except IsADirectoryError:
        raise SessionError(f"{path}: is a directory, expected a session file") from None
    except OSError as error:
        raise SessionError(f"{path}: cannot be read ({error.strerror})") from error
    if size_bytes == 0:
        raise SessionError(f"{path}: is empty, expected a session file; record the run again")
    magic = b"SQLite format 3\0"
    if not header.startswith(magic[: len(header)]):
        raise SessionError(f"{path}: is not a tkdebug session; `tkdebug run -o` records one")
    if len(header) < 100:
        raise SessionError(f"{path}: truncated session; copy it again or record the run again")
    # SQLite file format, "The Database Header": application id at 68, user version at 60.
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise SessionError(f"{path}: is an SQLite file but not a tkdebug session")
    version = int.from_bytes(header[60:64], "big")
    if version > SCHEMA_VERSION:
        raise SessionError(
            f"{path}: has schema {version}, this tkdebug reads up to {SCHEMA_VERSION}; "
            "open it with a newer tkdebug"
        )
    # Page size at 16 (1 stands for 65536), size of the file in pages at 28.
    page_bytes = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    needed_bytes = pages * (65536 if page_bytes == 1 else page_bytes)
    if size_bytes < needed_bytes and not log_size_bytes(path):
        raise SessionError(
            f"{path}: truncated session, got {size_bytes} of {needed_bytes} bytes; "
            "copy it again or record the run again"
        )
