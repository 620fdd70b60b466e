"""The connection to a session file, whatever became of the file since.

Responsible for opening the file (live, killed with its `-wal`, copied without it, in a read-only
directory) and for reporting mistakes as a `SessionError` of one line. It never writes to the
session. Invariant: a statement takes no more steps and gives no more bytes than the file's size can
account for. In a forged file, pages may be used many times over, a default value may stand for each
row, and a view may have no end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import TypeVar

from tkdebug.errors import SessionError
from tkdebug.instrument.session_file.tables import (
    APPLICATION_ID,
    BUSY_TIMEOUT_S,
    SCHEMA_VERSION,
    SQLITE_ERRORS,
)
from tkdebug.process.named_files import UnfitFileError, open_regular
from tkdebug.process.temporary_folders import TemporaryFolder
from tkdebug.records.columns import MAX_TEXT_CHARS

# Of a statement: steps of SQLite's virtual machine, and bytes of what it gives. Sums over all rows
# take less than one step for each byte of a session.
_STEPS_PER_BYTE = 5
_BYTES_PER_BYTE = 4
_MOST_BYTES = 1 << 30
_SPARE_BYTES = 1 << 20
_STEPS_AT_ONCE = 100_000
_INTERRUPTED = "interrupted"
_SIZED = (str, bytes)
# Twice what the longest text takes that is ever written: a row of `kernels` has two of those.
MAX_VALUE_BYTES = 2 * 4 * MAX_TEXT_CHARS + (1 << 20)
_LENIENT = methodcaller("decode", "utf-8", "replace")
_T = TypeVar("_T")


class SessionConnection:
    """Reads the session at `path`, from any thread.

    Raises:
        SessionError: it is not there, not a session, truncated, or of another schema.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        self._lock = threading.Lock()
        self._copy: TemporaryFolder | None = None
        self._log_absent = False
        self._file_state: tuple[int, int] | None = None
        self._views: tuple[str, ...] = ()
        self._steps = 0
        self._connection = self._connect()

    def close(self) -> None:
        """Close the file; a second call is a no-op."""
        with self._lock:
            self._connection.close()
            self._forget_copy()

    def _forget_copy(self) -> None:
        if self._copy is not None:
            self._copy.remove()
            self._copy = None

    def rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of one statement; to be called inside of `query`'s argument."""
        connection = self._connection
        try:
            # Quicker than a function of Python's, by which text that is not UTF-8 is read.
            connection.text_factory = str
            return self._fetched(statement, values)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            connection.text_factory = _LENIENT
            return self._fetched(statement, values)

    def _fetched(self, statement: str, values: Sequence[object]) -> list[tuple[object, ...]]:
        self._steps = size_bytes = 0
        limit_bytes = min(_BYTES_PER_BYTE * self._file_bytes(), _MOST_BYTES)
        found = []
        try:
            for row in self._connection.execute(statement, values):
                size_bytes += sum([len(value) for value in row if type(value) in _SIZED])
                if size_bytes > limit_bytes:
                    raise ValueError("its rows hold more than its file can")
                found.append(row)
        except sqlite3.OperationalError as error:
            if self._takes_too_long():
                raise ValueError("its rows are more than its file can hold") from error
            if str(error) == _INTERRUPTED:
                raise KeyboardInterrupt from error  # it came up in `_goes_on`
            raise
        return found

    def _goes_on(self) -> bool:
        """Count steps of the running statement; return whether SQLite has to end it."""
        self._steps += _STEPS_AT_ONCE
        return self._takes_too_long()

    def _takes_too_long(self) -> bool:
        return self._steps > _STEPS_PER_BYTE * self._file_bytes()

    def _file_bytes(self) -> int:
        """Return the size of the file and its log, and some more for what any file has."""
        status = _file_state(self.path)
        return _SPARE_BYTES + (status[0] if status else 0) + (log_size_bytes(self.path) or 0)

    def narrow(self, conditions: Mapping[str, str]) -> None:
        """Let later statements see only rows of these tables that fulfil a condition.

        Args:
            conditions: SQL by table; texts of the session's in it are quoted.
        """
        self._views = tuple(
            f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} WHERE {condition}"
            for table, condition in conditions.items()
        )
        self.query(lambda: self._narrowed(self._connection))

    def _narrowed(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        # A name without its schema is that of a temporary view first.
        connection.execute("PRAGMA query_only = OFF")
        for view in self._views:
            connection.execute(view)
        connection.execute("PRAGMA query_only = ON")
        return connection

    def query(self, read: Callable[[], _T]) -> _T:
        """Return the result of `read`, which may raise ValueError on data that no session holds.

        Raises:
            SessionError: the session was closed, or is damaged.
        """
        with self._lock:
            try:
                if self._log_absent and self._was_written():
                    check_file(self.path)
                    self._connection.close()
                    self._connection = self._connect()
                if not self._log_absent:  # a writer may be another tkdebug
                    (version,) = self._connection.execute("PRAGMA user_version").fetchone()
                    _check_version(self.path, version)
                return read()
            except sqlite3.ProgrammingError as error:
                raise SessionError(f"{self.path}: this session was closed; open it again") from (
                    error
                )
            except (*SQLITE_ERRORS, ValueError, OverflowError) as error:
                raise self._damaged(error) from error

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Answer all queries inside the block from the state at the first, while a run goes on."""
        connection = self._connection
        self.query(lambda: connection.execute("BEGIN"))
        try:
            yield
        finally:
            with contextlib.suppress(*SQLITE_ERRORS):  # the file has gone
                connection.rollback()

    def copy_to(self, path: Path) -> None:
        """Write the session as it is now into a file of its own; an existing file is kept.

        Raises:
            SessionError: it cannot be written, or there is a file of that name.
        """
        draft = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            with contextlib.closing(sqlite3.connect(draft)) as target:
                self.query(lambda: self._connection.backup(target))
            os.link(draft, path)
        except (OSError, *SQLITE_ERRORS) as error:
            raise SessionError(f"{path}: cannot be written ({error})") from error
        finally:
            draft.unlink(missing_ok=True)

    def _was_written(self) -> bool:
        """Whether a writer has come since the file was opened; it may have left again.

        A file that was deleted can be read for as long as it is open.
        """
        state = _file_state(self.path)
        is_other = state is not None and state != self._file_state
        return is_other or log_size_bytes(self.path) is not None

    def _connect(self) -> sqlite3.Connection:
        connection = self._narrowed(self._connected())
        connection.set_progress_handler(self._goes_on, _STEPS_AT_ONCE)
        return connection

    def _connected(self) -> sqlite3.Connection:
        try:
            return self._open_in_place()
        except SQLITE_ERRORS as error:
            # Its log cannot be followed where it lies (a read-only place): read a copy of both,
            # or the file alone when nothing is in the log.
            size_bytes = log_size_bytes(self.path)
            if size_bytes:
                return self._open_copy(error)
            if size_bytes == 0:
                return open_read_only(self.path, "immutable=1")
            # Any error but an OperationalError is about the contents of the file.
            if not isinstance(error, sqlite3.OperationalError):
                raise self._damaged(error) from error
            raise SessionError(
                f"{self.path}: cannot be opened as a session ({error}); record the run again"
            ) from error

    def _damaged(self, error: Exception) -> SessionError:
        why = "its text is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        return SessionError(
            f"{self.path}: truncated or damaged session ({why}); record the run again"
        )

    def _open_in_place(self) -> sqlite3.Connection:
        # A log-mode file with no log beside it has no writer: reading it as immutable needs no
        # shared-memory file next to it, and so works in read-only places and leaves no litter.
        self._file_state = _file_state(self.path)
        self._log_absent = log_size_bytes(self.path) is None
        connection = open_read_only(self.path, "immutable=1" if self._log_absent else "mode=ro")
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_copy(self, cause: Exception) -> sqlite3.Connection:
        try:
            if self._copy is None:
                self._copy = TemporaryFolder()
            copy = self._copy.path / "run.tkd"
            if self._file_bytes() > shutil.disk_usage(copy.parent).free // 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            shutil.copyfile(self.path, copy)
            shutil.copyfile(log_path(self.path), log_path(copy))
            connection = open_read_only(copy, "mode=rw")
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        except (OSError, *SQLITE_ERRORS) as error:
            self._forget_copy()
            raise SessionError(
                f"{self.path}: cannot be opened as a session ({cause}; and a copy: {error}); "
                "record the run again"
            ) from error
        return connection


def _file_state(path: Path) -> tuple[int, int] | None:
    """Return a value that changes when the file is written, or None if it is gone."""
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None


def open_read_only(path: Path, options: str) -> sqlite3.Connection:
    """A connection to the file that writes nothing and trusts nothing in it."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.text_factory = _LENIENT
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def log_path(path: Path) -> Path:
    """Return the path of a session's write-ahead log."""
    return path.with_name(path.name + "-wal")


def log_size_bytes(path: Path) -> int | None:
    """Size of the log, or None if there is none."""
    with contextlib.suppress(OSError):
        return log_path(path).stat().st_size
    return None


def check_file(path: Path) -> None:
    """Raise the clearest `SessionError` that the first bytes of the file allow."""
    try:
        with open_regular(path) as file:
            header = file.read(100)
            size_bytes = file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        raise SessionError(
            f"{path}: no such session; `tkdebug run -o {path.name} script.py` records one"
        ) from None
    except IsADirectoryError:
        raise SessionError(f"{path}: is a directory, expected a session file") from None
    except UnfitFileError:
        raise SessionError(f"{path}: is not a regular file, expected a session file") from None
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
    _check_version(path, int.from_bytes(header[60:64], "big"))
    # Page size at 16 (1 stands for 65536), size of the file in pages at 28.
    page_bytes = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    needed_bytes = pages * (65536 if page_bytes == 1 else page_bytes)
    if size_bytes < needed_bytes and not log_size_bytes(path):
        raise SessionError(
            f"{path}: truncated session, got {size_bytes} of {needed_bytes} bytes; "
            "copy it again or record the run again"
        )


def _check_version(path: Path, version: int) -> None:
    if version != SCHEMA_VERSION:
        remedy = (
            "open it with a newer tkdebug" if version > SCHEMA_VERSION else "record the run again"
        )
        raise SessionError(
            f"{path}: has schema {version}, this tkdebug reads {SCHEMA_VERSION}; {remedy}"
        )
