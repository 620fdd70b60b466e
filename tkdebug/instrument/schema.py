"""The layout of a session file: tables, schema version, and how a new file comes to be.

Responsible for the DDL and for creating or replacing a file; rows are `session`'s, reading is
`reader`'s. Invariant: a file under its final name always holds the whole schema in its main part,
so that a copy without the `-wal` opens.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import socket
import sqlite3
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tkdebug.errors import SessionError
from tkdebug.instrument.session_lock import SessionLock
from tkdebug.instrument.session_writing import WritingConnection

APPLICATION_ID = 0x746B6462  # "tkdb"
SCHEMA_VERSION = 3
BUSY_TIMEOUT_S = 10.0

# `revision` counts every insert and update of a launch, so that a follower asks for what changed
# since its cursor. `totals` is kept by the writers: a summary costs no scan of a million launches.
TABLES: dict[str, str] = {
    "run": """(id INTEGER PRIMARY KEY CHECK (id = 1), script TEXT, argv TEXT, mode TEXT,
        start_ns INTEGER, end_ns INTEGER, exit_status INTEGER, host TEXT, versions TEXT,
        rank_group TEXT)""",
    "clock": "(id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER NOT NULL)",
    "launches": """(seq INTEGER PRIMARY KEY, revision INTEGER NOT NULL, process INTEGER,
        rank INTEGER, launch INTEGER, kernel_hash TEXT, kernel TEXT, mode TEXT, grid TEXT,
        options TEXT, arguments TEXT, stream, start_ns INTEGER, duration_ns INTEGER,
        error TEXT, scopes TEXT)""",
    "totals": """(kernel TEXT PRIMARY KEY, launches INTEGER, finished INTEGER, errors INTEGER,
        total_ns INTEGER, min_ns INTEGER, max_ns INTEGER)""",
    "kernels": """(seq INTEGER PRIMARY KEY, hash TEXT UNIQUE, process INTEGER, rank INTEGER,
        name TEXT, file TEXT, line INTEGER, source TEXT, signature TEXT, options TEXT,
        compile_ns INTEGER, cache_hit INTEGER, error TEXT)""",
    "artifacts": "(kernel_hash TEXT, stage TEXT, content TEXT, PRIMARY KEY (kernel_hash, stage))",
    "blobs": "(hash TEXT PRIMARY KEY, text TEXT)",
    "op_lines": """(kernel_hash TEXT, stage TEXT, line INTEGER, frames TEXT,
        PRIMARY KEY (kernel_hash, stage, line)) WITHOUT ROWID""",
    "passes": """(kernel_hash TEXT, number INTEGER, name TEXT, before TEXT, after TEXT,
        time_ns INTEGER, error TEXT, rewrites TEXT, op_ids TEXT, ops TEXT,
        PRIMARY KEY (kernel_hash, number)) WITHOUT ROWID""",
    "op_ids": """(kernel_hash TEXT, stage TEXT, ids TEXT, PRIMARY KEY (kernel_hash, stage))
        WITHOUT ROWID""",
    "line_tables": "(kernel_hash TEXT PRIMARY KEY, data TEXT) WITHOUT ROWID",
    "sources": "(file TEXT PRIMARY KEY, content TEXT)",
    "tunings": """(seq INTEGER PRIMARY KEY, process INTEGER, rank INTEGER, kernel TEXT,
        key TEXT, config TEXT, timings_ms TEXT)""",
    "faults": """(seq INTEGER PRIMARY KEY, process INTEGER, rank INTEGER, launch INTEGER,
        kind TEXT, severity TEXT, kernel TEXT, frames TEXT, message TEXT, source_column INTEGER,
        op_id INTEGER, program_id TEXT, lane TEXT, tensor TEXT, element, legal TEXT,
        count INTEGER, hint TEXT, time_ns INTEGER)""",
    "output": """(seq INTEGER PRIMARY KEY, process INTEGER, rank INTEGER, time_ns INTEGER,
        stream TEXT, text TEXT)""",
    "scopes": """(seq INTEGER PRIMARY KEY, process INTEGER, rank INTEGER, scope INTEGER,
        parent INTEGER, thread INTEGER, name TEXT, metrics TEXT, start_ns INTEGER,
        end_ns INTEGER)""",
    "progress": """(process INTEGER, launch INTEGER, rank INTEGER, kernel TEXT,
        programs_done INTEGER, programs INTEGER, elapsed_ns INTEGER,
        PRIMARY KEY (process, launch)) WITHOUT ROWID""",
}
# Tables that came with a later schema than the first.
TABLE_VERSIONS: dict[str, int] = {"passes": 2, "op_ids": 2, "line_tables": 2, "scopes": 3}
INDEXES = ("CREATE INDEX launches_by_revision ON launches (revision)",)


@dataclass(frozen=True, slots=True)
class RunStart:
    """What is known of a run before it begins."""

    script: str
    argv: tuple[str, ...]
    mode: str


def process_rank() -> int:
    """The rank of this process as torchrun and its like tell it, else 0."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


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
        # From here to there nobody has it for a moment, in which another run may begin.
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
        SessionError: links lead in a circle, or the name is too long.
    """
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
        raise SessionError(f"{path}: exists and is no regular file; choose another name")
    if os.path.exists(path) and path.stat().st_size and not _is_session(path):
        raise SessionError(
            f"{path}: exists and is not a tkdebug session; it is not overwritten, "
            "choose another name"
        )


def _is_session(path: Path) -> bool:
    try:
        with path.open("rb") as file:
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
    except (OSError, sqlite3.Error) as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise SessionError(f"{path}: session cannot be created: {error}") from error


def _draft_name(path: Path) -> str:
    # The longest of the names beside a session.
    return f".{path.name}.{os.getpid()}.new"


def _write_schema(path: Path, start: RunStart, group: str | None) -> None:
    with contextlib.closing(
        sqlite3.connect(path, isolation_level=None, factory=WritingConnection)
    ) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {name} {columns}")
        for statement in INDEXES:
            connection.execute(statement)
        connection.execute("INSERT INTO clock VALUES (1, 0)")
        connection.execute(
            "INSERT INTO run VALUES (1, ?, ?, ?, ?, NULL, NULL, ?, ?, ?)",
            (
                start.script,
                json.dumps(start.argv),
                start.mode,
                time.time_ns(),
                socket.gethostname(),
                json.dumps(_versions()),
                group,
            ),
        )
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _versions() -> dict[str, str]:
    # Read from the installed metadata: a version is no reason to import torch.
    from importlib import metadata

    from tkdebug import __version__

    versions = {"tkdebug": __version__, "python": platform.python_version()}
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions["torch"] = metadata.version("torch")
    versions["platform"] = sys.platform
    return versions


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
    except sqlite3.Error:
        return None  # whatever lies there is not this run's; `_replace` deals with it
    return str(row[0]) if row and row[0] is not None else None
