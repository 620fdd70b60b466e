"""Reading a session file: headless, while it is written or long after, here or elsewhere.

Responsible for the questions that can be asked of a session, and for immutable answers. How the
file is reached is `session_connection`'s, what a row means `decode`'s. Nothing in the session is
trusted: whatever is wrong is a `SessionError` of one line.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tkdebug.errors import Frame
from tkdebug.events import CompilerPass
from tkdebug.instrument import decode, pass_rows
from tkdebug.instrument.records import (
    FaultGroup,
    FaultOverview,
    KernelSummary,
    Launch,
    LaunchPage,
    OutputChunk,
    Progress,
    RecordedFault,
    RecordedKernel,
    RecordedScope,
    RunInfo,
    ScopeSummary,
    Tuning,
)
from tkdebug.instrument.schema import SCHEMA_VERSION, TABLE_VERSIONS, TABLES, file_behind
from tkdebug.instrument.session_connection import SessionConnection

MAX_TEXT_CHARS = 32 << 20
MAX_PAGE_ROWS = 10_000
MAX_PASSES = 1_000
MAX_SEQ = (1 << 63) - 1
_LAUNCH_COLUMNS = (
    "seq, process, rank, launch, kernel, kernel_hash, mode, grid, options, arguments, stream, "
    "start_ns, duration_ns, error"
)
_FAULT_COLUMNS = (
    "seq, process, rank, launch, kind, severity, kernel, frames, message, source_column, op_id, "
    "program_id, lane, tensor, element, legal, count, hint, time_ns"
)
_TUNING_COLUMNS = "seq, process, rank, kernel, key, config, timings_ms"
_T = TypeVar("_T")


class Session:
    """An open session. All methods may be called from any thread; close it when done.

    Open with `Session.open(path)`, also as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version = SCHEMA_VERSION
        self._source_lines: dict[str, tuple[str, ...] | None] = {}
        self._connection = SessionConnection(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Session:
        """Open the session at `path`.

        Raises:
            SessionError: it is not there, not a session, truncated, or of a newer schema.
        """
        session = cls(file_behind(Path(path)))
        try:
            session._query(session._check_schema)
        except BaseException:
            session.close()
            raise
        return session

    @property
    def _launch_columns(self) -> str:
        scopes = "scopes" if self._version >= TABLE_VERSIONS["scopes"] else "NULL"
        return f"{_LAUNCH_COLUMNS}, {scopes}"

    def close(self) -> None:
        """Close the file; a second call is a no-op."""
        self._connection.close()

    def copy_to(self, path: Path) -> None:
        """Write the session as it is now to `path`, where nothing may be yet.

        Raises:
            SessionError: it cannot be written.
        """
        self._connection.copy_to(path)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self) -> RunInfo:
        """The run as a whole."""

        def read() -> RunInfo:
            rows = self._rows(
                "SELECT script, argv, mode, start_ns, end_ns, exit_status, host, versions FROM run"
            )
            if not rows:
                raise ValueError("the table of the run is empty")
            return decode.run(rows[0])

        return self._query(read)

    def launches(self, since: int = 0, limit: int = 1000) -> LaunchPage:
        """Launches new or changed since the cursor `since` (0 for all), oldest change first.

        A launch seen running comes again, with the same `seq`, when it has ended.
        """
        limit = max(1, min(limit, MAX_PAGE_ROWS))

        def read() -> LaunchPage:
            rows = self._rows(
                f"SELECT revision, {self._launch_columns} FROM launches WHERE revision > ? "
                "ORDER BY revision LIMIT ?",
                since,
                limit + 1,
            )
            page = rows[:limit]
            return LaunchPage(
                launches=tuple(decode.launch(row[1:]) for row in page),
                cursor=decode.integer(page[-1][0]) if page else since,
                more=len(rows) > limit,
            )

        return self._query(read)

    def recent_cursor(self, count: int) -> int:
        """A cursor for `launches` with at most `count` changes after it: the latest ones."""
        return max(0, self._number("SELECT revision FROM clock") - count)

    def launches_in_order(self, after: int = 0, limit: int = 1000) -> tuple[Launch, ...]:
        """Launches with a `seq` beyond `after`, in the order in which they began."""
        return self._records(
            decode.launch,
            f"SELECT {self._launch_columns} FROM launches WHERE seq > ? ORDER BY seq LIMIT ?",
            after,
            max(1, min(limit, MAX_PAGE_ROWS)),
        )

    def launch(self, seq: int) -> Launch | None:
        """The launch of that `seq`."""
        found = self._records(
            decode.launch, f"SELECT {self._launch_columns} FROM launches WHERE seq = ?", seq
        )
        return found[0] if found else None

    def launch_count(self) -> int:
        """How many launches are recorded."""
        return self._number("SELECT coalesce(sum(launches), 0) FROM totals")

    def kernel_summaries(self) -> tuple[KernelSummary, ...]:
        """Times by kernel name, the longest in total first."""
        return self._records(
            decode.kernel_summary,
            "SELECT kernel, launches, finished, errors, total_ns, "
            "CASE WHEN finished THEN min_ns ELSE 0 END, max_ns "
            "FROM totals ORDER BY total_ns DESC, kernel",
        )

    def scope_summaries(self) -> tuple[ScopeSummary, ...]:
        """Times by scopes and kernel, in the order in which they came up first."""
        if self._version < TABLE_VERSIONS["scopes"]:
            return ()
        return self._records(
            decode.scope_summary,
            "SELECT scopes, kernel, count(*), count(duration_ns), coalesce(sum(duration_ns), 0) "
            "FROM launches WHERE scopes IS NOT NULL GROUP BY scopes, kernel ORDER BY min(seq) "
            "LIMIT ?",
            MAX_PAGE_ROWS,
        )

    def scopes(self, since: int = 0) -> tuple[RecordedScope, ...]:
        """Scopes that were left, beyond the one of `seq` `since`, in the order of their ends."""
        if self._version < TABLE_VERSIONS["scopes"]:
            return ()
        return self._records(
            decode.scope,
            "SELECT seq, process, rank, scope, parent, thread, name, metrics, start_ns, end_ns "
            "FROM scopes WHERE seq > ? ORDER BY seq LIMIT ?",
            since,
            MAX_PAGE_ROWS,
        )

    def kernels(self, since: int = 0) -> tuple[RecordedKernel, ...]:
        """The specialisations compiled beyond the one of `seq` `since`, in order."""

        def read() -> tuple[RecordedKernel, ...]:
            stages: dict[str, tuple[str, ...]] = {}
            error = "error" if self._version >= 2 else "NULL"
            if not self._rows("SELECT 1 FROM kernels WHERE seq > ? LIMIT 1", since):
                return ()
            # By rowid: the order in which the stages were written is the compile order.
            for key, stage in self._rows("SELECT kernel_hash, stage FROM artifacts ORDER BY rowid"):
                name = decode.text(key)
                stages[name] = (*stages.get(name, ()), decode.text(stage))
            rows = self._rows(
                "SELECT seq, hash, process, rank, name, file, line, substr(source, 1, ?), "
                f"signature, options, compile_ns, cache_hit, {error} FROM kernels WHERE seq > ? "
                "ORDER BY seq",
                MAX_TEXT_CHARS,
                since,
            )
            return tuple(decode.kernel(row, stages) for row in rows)

        return self._query(read)

    def artifact(self, kernel_hash: str, stage: str) -> str | None:
        """The text of one stage of a kernel, None when it was not recorded."""
        return self._text(
            "SELECT substr(text, 1, ?) FROM artifacts JOIN blobs ON blobs.hash = content "
            "WHERE kernel_hash = ? AND stage = ?",
            kernel_hash,
            stage,
        )

    def passes(self, kernel_hash: str) -> tuple[CompilerPass, ...]:
        """What each pass did to a kernel, the front end first; () in sessions of schema 1."""
        if self._version < TABLE_VERSIONS["passes"]:
            return ()
        return self._records(
            pass_rows.from_row,
            f"SELECT {pass_rows.BOUNDED_COLUMNS} FROM passes WHERE kernel_hash = ? "
            "ORDER BY number LIMIT ?",
            kernel_hash,
            MAX_PASSES,
        )

    def line_table(self, kernel_hash: str) -> object | None:
        """Data of a native kernel's line table, for `linemap.line_table_data.from_data`.

        None for interpreted kernels, in sessions of schema 1, and in the first moments after the
        kernel was compiled.
        """
        if self._version < TABLE_VERSIONS["line_tables"]:
            return None
        text = self._text(
            "SELECT substr(text, 1, ?) FROM line_tables JOIN blobs ON blobs.hash = data "
            "WHERE kernel_hash = ?",
            kernel_hash,
        )
        return None if text is None else self._query(lambda: decode.json_mapping(text))

    def op_ids(self, kernel_hash: str, stage: str) -> dict[int, int]:
        """Op id by line (1-based) of that stage's text; {} in sessions of schema 1."""
        if self._version < TABLE_VERSIONS["op_ids"]:
            return {}

        def read() -> dict[int, int]:
            rows = self._rows(
                "SELECT ids FROM op_ids WHERE kernel_hash = ? AND stage = ?", kernel_hash, stage
            )
            return decode.integer_pairs(rows[0][0]) if rows else {}

        return self._query(read)

    def op_lines(self, kernel_hash: str, stage: str) -> dict[int, tuple[Frame, ...]]:
        """Source frames, outermost first, by line (1-based) of that stage's text."""
        return dict(
            self._records(
                decode.line_frames,
                "SELECT line, frames FROM op_lines WHERE kernel_hash = ? AND stage = ? "
                "ORDER BY line",
                kernel_hash,
                stage,
            )
        )

    def source_text(self, file: str) -> str | None:
        """The text of a source file as it was when it was recorded, None when it was not."""
        return self._text(
            "SELECT substr(text, 1, ?) FROM sources JOIN blobs ON blobs.hash = content "
            "WHERE file = ?",
            file,
        )

    def source_line(self, file: str, line: int) -> str | None:
        """One line (1-based) of a recorded source file, None when it was not recorded."""
        if file not in self._source_lines:
            text = self.source_text(file)
            self._source_lines[file] = None if text is None else tuple(text.splitlines())
        lines = self._source_lines[file]
        return lines[line - 1] if lines is not None and 1 <= line <= len(lines) else None

    def faults(self, since: int = 0, limit: int = MAX_PAGE_ROWS) -> tuple[RecordedFault, ...]:
        """Faults with a `seq` beyond `since`, in order; ask again from the last one's `seq`."""
        return self._records(
            decode.fault,
            f"SELECT {_FAULT_COLUMNS} FROM faults WHERE seq > ? ORDER BY seq LIMIT ?",
            since,
            min(limit, MAX_PAGE_ROWS),
        )

    def fault_groups(self, last_seq: int = MAX_SEQ) -> tuple[FaultGroup, ...]:
        """All faults, those of one `fault_key` together, in the order in which they came up.

        Args:
            last_seq: of the last fault that counts.
        """
        # Columns outside of aggregates are those of the row that has the least `seq`.
        return self._records(
            decode.fault_group,
            "SELECT sum(count), count(DISTINCT CASE WHEN launch THEN process || ' ' || "
            f"launch END), min(seq) AS first, {_FAULT_COLUMNS} FROM faults "
            "WHERE seq <= ? GROUP BY kind, kernel, frames, tensor, "
            "CASE kind WHEN 'compile-error' THEN message ELSE '' END ORDER BY first",
            last_seq,
        )

    def fault_overview(self, max_launches: int) -> FaultOverview:
        """All faults so far, in groups; ask `faults` from its `last_seq` for those that come."""
        last_seq = self._number("SELECT coalesce(max(seq), 0) FROM faults")
        launches = self._records(
            lambda row: (decode.integer(row[0]), decode.integer(row[1])),
            "SELECT DISTINCT process, launch FROM faults "
            "WHERE severity = 'error' AND seq <= ? LIMIT ?",
            last_seq,
            max_launches,
        )
        return FaultOverview(last_seq, self.fault_groups(last_seq), launches)

    def output(self, since: int = 0, limit: int = 1000) -> tuple[OutputChunk, ...]:
        """What the script wrote, beyond the chunk of `seq` `since`, in order."""
        return self._records(
            decode.output_chunk,
            "SELECT seq, process, rank, time_ns, stream, substr(text, 1, ?) FROM output "
            "WHERE seq > ? ORDER BY seq LIMIT ?",
            MAX_TEXT_CHARS,
            since,
            min(limit, MAX_PAGE_ROWS),
        )

    def tunings(self, since: int = 0) -> tuple[Tuning, ...]:
        """Autotuners' choices beyond the one of `seq` `since`, in order."""
        return self._tunings("WHERE seq > ?", since)

    def tunings_of(self, kernel: str) -> tuple[Tuning, ...]:
        """The choices of that kernel's autotuner, in order."""
        return self._tunings("WHERE kernel = ?", kernel)

    def _tunings(self, condition: str, *values: object) -> tuple[Tuning, ...]:
        statement = f"SELECT {_TUNING_COLUMNS} FROM tunings {condition} ORDER BY seq LIMIT ?"
        return self._records(decode.tuning, statement, *values, MAX_PAGE_ROWS)

    def progress(self) -> tuple[Progress, ...]:
        """The latest progress of the launches that run now."""
        return self._records(
            decode.progress,
            "SELECT process, rank, launch, kernel, programs_done, programs, elapsed_ns "
            "FROM progress LIMIT ?",
            MAX_PAGE_ROWS,
        )

    def _records(
        self, decode_row: Callable[[decode.Row], _T], statement: str, *values: object
    ) -> tuple[_T, ...]:
        return self._query(lambda: tuple(map(decode_row, self._rows(statement, *values))))

    def _number(self, statement: str) -> int:
        return self._query(lambda: decode.integer(self._rows(statement)[0][0]))

    def _text(self, statement: str, *values: object) -> str | None:
        def read() -> str | None:
            rows = self._rows(statement, MAX_TEXT_CHARS, *values)
            return decode.text(rows[0][0]) if rows else None

        return self._query(read)

    def _rows(self, statement: str, *values: object) -> list[decode.Row]:
        return self._connection.rows(statement, *values)

    def _query(self, read: Callable[[], _T]) -> _T:
        return self._connection.query(read)

    def _check_schema(self) -> None:
        tables = {
            name for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type='table'")
        }
        self._version = decode.integer(self._rows("PRAGMA user_version")[0][0])
        wanted = {name for name in TABLES if TABLE_VERSIONS.get(name, 1) <= self._version}
        missing = sorted(wanted - tables)
        if missing:
            raise ValueError(f"no table {missing[0]}")
        self._check_columns(wanted)

    def _check_columns(self, tables: set[str]) -> None:
        """Look that what is read is what lies in the file, whose size bounds it."""
        virtual = self._rows(
            "SELECT name FROM sqlite_master WHERE type='table' AND sql LIKE 'CREATE VIRTUAL%'"
        )
        for table in sorted(tables):
            # SQLite, "PRAGMA table_xinfo": the last column is 2 or 3 for one that is generated.
            columns = self._rows(f"PRAGMA table_xinfo({table})")
            if (table,) in virtual or any(column[-1] in (2, 3) for column in columns):
                raise ValueError(f"table {table} is computed, expected one that is stored")
