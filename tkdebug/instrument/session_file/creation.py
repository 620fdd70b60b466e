"""Creation of a new session file.

Responsible for creating or replacing a file; its tables are those of `records`. Invariant: a file
under its final name always holds the whole schema in its main part, so that a copy without the
`-wal` opens.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import socket
import sqlite3
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tkdebug.errors import SessionError
from tkdebug.instrument.records import TABLES, Clock, RunInfo
from tkdebug.instrument.session_file.lock import SessionLock
from tkdebug.instrument.session_file.tables import (
    APPLICATION_ID,
    BUSY_TIMEOUT_S,
    SCHEMA_VERSION,
    SQLITE_ERRORS,
    table_of,
)
from tkdebug.process.named_files import open_regular


@dataclass(frozen=True, slots=True)
class RunStart:
    """The facts of a run that are known before it begins."""

    script: str
    argv: tuple[str, ...]
    mode: str


def create_session(path: Path, start: RunStart) -> SessionLock:
    """Create the session at `path`, replacing an older session of that name.

    Ranks of one torchrun that name the same file share it: the first creates, the others join.

    Returns:
        The session's lock, to be released when this process writes no more.

    Raises:
        SessionError: the place cannot be written, holds something that is no session, or another
            run records there.
    """
    check_replaceable(path)
    group = _rank_group()
    lock = SessionLock(path)
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    try:
        while not lock.take_alone():
            if group is None or time.monotonic() > deadline_s:
                raise lock.in_use()
            if lock.share(0) and _stored_group(path) == group:
                return lock
            lock.release()
            time.sleep(0.01)
        if group is None or _stored_group(path) != group:
            _replace(path, start, group)
        created = path.stat()
        # Between the exclusive and the shared lock nobody holds it: another run may begin then.
        if not lock.share(BUSY_TIMEOUT_S) or not os.path.samestat(path.stat(), created):
            raise lock.in_use()
    except BaseException:
        lock.release()
        raise
    return lock


def check_free(path: Path) -> None:
    """Raise `SessionError` where another run records into `path`; ranks of one torchrun may."""
    lock = SessionLock(path)
    if _rank_group() is None and not lock.take_alone():
        raise lock.in_use()
    lock.release()


def file_behind(path: Path) -> Path:
    """The file that the link at `path` leads to, so that the link stays; else `path`, absolute.

    Raises:
        SessionError: links lead in a circle, or the name is too long or empty.
    """
    if not path.name:
        raise SessionError(f"{path}: is no name of a file; give one such as run.tkd")
    try:
        os.lstat(path.with_name(_draft_name(path)))
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise SessionError(f"{path}: the name is too long; choose a shorter one") from error
    if not os.path.islink(path):
        return path.absolute()
    target = Path(os.path.realpath(path))
    if os.path.islink(target):
        raise SessionError(f"{path}: a link that leads in a circle; choose another name")
    return target


def check_replaceable(path: Path) -> None:
    """Raise `SessionError` unless a session can be put at `path`."""
    # `os.path` takes what cannot be looked at for not there, where `Path` raises.
    if os.path.isdir(path):
        raise SessionError(f"{path}: is a directory; give a file name such as {path / 'run.tkd'}")
    if not os.path.isdir(path.parent):
        raise SessionError(f"{path}: there is no directory {path.parent}; create it first")
    if not os.access(path.parent, os.W_OK):
        raise SessionError(f"{path}: directory {path.parent} is not writable; choose another place")
    if os.path.exists(path) and not os.path.isfile(path):
        raise SessionError(f"{path}: exists and is not a regular file; choose another name")
    if os.path.exists(path) and path.stat().st_size and not _is_session(path):
        raise SessionError(
            f"{path}: exists and is not a tkdebug session; it is not overwritten, "
            "choose another name"
        )


def _is_session(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            header = file.read(100)
    except OSError as error:
        raise SessionError(f"{path}: cannot be read ({error.strerror}); choose another") from error
    return header.startswith(b"SQLite format 3\0") and header[68:72] == APPLICATION_ID.to_bytes(
        4, "big"
    )


def _replace(path: Path, start: RunStart, group: str | None) -> None:
    draft = path.with_name(_draft_name(path))
    try:
        draft.unlink(missing_ok=True)
        _write_schema(draft, start, group)
        # A log left by an older session of this name would be replayed into the new file.
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        os.replace(draft, path)
    except (OSError, *SQLITE_ERRORS) as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise SessionError(f"{path}: session cannot be created: {error}") from error


def _draft_name(path: Path) -> str:
    # The longest of the names beside a session.
    return f".{path.name}.{os.getpid()}.new"


def _write_schema(path: Path, start: RunStart, group: str | None) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # To wait for the disk would be most of a run's start. The first checkpoint waits for it.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        for kind in TABLES:
            for statement in table_of(kind).statements:
                connection.execute(statement)
        for record in (Clock(0), _run_info(start, group)):
            table = table_of(type(record))
            connection.execute(table.insert, table.row(record))
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _run_info(start: RunStart, group: str | None) -> RunInfo:
    return RunInfo(
        script=start.script,
        argv=start.argv,
        mode=start.mode,
        start_ns=time.time_ns(),
        end_ns=None,
        exit_status=None,
        host=socket.gethostname(),
        versions=_versions(),
        rank_group=group,
    )


def _versions() -> dict[str, str]:
    # The package names modules that are above this one, so it is not imported.
    version = sys.modules["tkdebug"].__version__
    versions = {"tkdebug": version, "python": platform.python_version()}
    torch_version = _torch_version()
    if torch_version is not None:
        versions["torch"] = torch_version
    versions["platform"] = sys.platform
    return versions


def _torch_version() -> str | None:
    torch = sys.modules.get("torch")
    if torch is not None:
        return str(torch.__version__)
    # Read from the installed metadata: a version is no reason to import torch.
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("torch")
    return None


def _rank_group() -> str | None:
    # All ranks of one host are children of one launcher; a restart begins a new run.
    if "RANK" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        return None
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return f"{socket.gethostname()}/{os.getppid()}/{restart}"


def _stored_group(path: Path) -> str | None:
    if not path.exists() or not _is_session(path):
        return None
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)) as connection:
            row = connection.execute("SELECT rank_group FROM run").fetchone()
    except SQLITE_ERRORS:
        return None  # whatever lies there is not this run's; `_replace` deals with it
    return str(row[0]) if row and row[0] is not None else None
