"""Reading a session file: headless, while it is written or long after, here or elsewhere.

Responsible for the questions that can be asked of a session, and for immutable answers.
`session_file.connection` reaches the file, `session_file.tables` reads its rows. Nothing in the
session is trusted: any mistake is a `SessionError` of one line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from tkdebug.errors import Frame, SessionError, UsageError, instead_of
from tkdebug.instrument.activities import sum_of_totals
from tkdebug.instrument.device_records import ActivityBatch, ActivityTotal
from tkdebug.instrument.records import (
    TABLES,
    Artifact,
    FaultGroup,
    FaultKey,
    FaultOverview,
    KernelSummary,
    Launch,
    LaunchPage,
    Progress,
    RecordedKernel,
    RecordedPass,
    RunInfo,
    RunningFault,
    ScopeSummary,
    fault_key,
    running_fault,
)
from tkdebug.instrument.session_file.connection import SessionConnection
from tkdebug.instrument.session_file.creation import file_behind
from tkdebug.instrument.session_file.tables import Recorded, quoted, table_of
from tkdebug.records.columns import (
    MAX_TEXT_CHARS,
    decode_integer,
    decode_json,
    decode_text,
)
from tkdebug.records.events import CompilerPass, Fault

MAX_PAGE_ROWS = 10_000
_PAGE_ROWS = 1000
MAX_PASSES = 1_000
MAX_SEQ = (1 << 63) - 1
# The most launches of other threads that may be recorded before one that began earlier.
_MOST_SWAPPED = 1000
# The column with the kernel's name, for tables in which it is not `kernel`.
_KERNEL_COLUMNS = {"kernels": "name", "stall_samples": "function"}
# Tables about the whole run, not about single kernels.
_OF_ALL_KERNELS = ("activities", "origins", "checked_launches", "access_tests")
Row = tuple[object, ...]
_T = TypeVar("_T")


class Session:
    """An open session. All methods may be called from any thread; close it when done.

    Open with `Session.open(path)`, also as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checked: set[str] = set()
        self._source_lines: dict[str, tuple[str, ...] | None] = {}
        # By process, the `seq` of its first launch less the `id` of that launch.
        self._first_launches: dict[int, int] = {}
        self._connection = SessionConnection(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Session:
        """Open the session at `path`.

        Raises:
            SessionError: it is not there, not a session, truncated, or of another schema.
        """
        session = cls(file_behind(Path(path)))
        try:
            session._query(session._check_tables)
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> None:
        """Close the file; a second call is a no-op."""
        self._connection.close()

    def copy_to(self, path: Path) -> None:
        """Write the session as it is now to `path`, where no file may be yet.

        Raises:
            SessionError: it cannot be written.
        """
        self._connection.copy_to(path)

    def snapshot(self) -> AbstractContextManager[None]:
        """Answer all queries inside the block from one state of the session, also in a live run."""
        return self._connection.snapshot()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def kernel_names(self, pattern: str) -> tuple[str, ...]:
        """Return the names of kernels that match the shell pattern `pattern`.

        Raises:
            UsageError: there is no such kernel.
        """
        statement = (
            "SELECT kernel FROM totals UNION SELECT name FROM kernels UNION "
            "SELECT kernel FROM faults ORDER BY 1 LIMIT ?"
        )
        rows = self._query(lambda: self._rows(statement, MAX_PAGE_ROWS))
        names = [decode_text(name) for (name,) in rows]
        found = tuple(name for name in names if fnmatchcase(name, pattern))
        if not found:
            raise UsageError(f"--kernel {pattern}: no such kernel{instead_of(pattern, names)}")
        return found

    def narrow(self, kernels: Sequence[str]) -> None:
        """Restrict every answer from now on to these kernels, () for none.

        Records that are not kept by kernel, such as others' work on the GPU, are left out.
        """
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in kernels)
        conditions = dict.fromkeys(_OF_ALL_KERNELS, "0")

        def read() -> None:
            for (table,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
                name = quoted(decode_text(table).replace('"', '""'))
                columns = [row[1] for row in self._rows(f"PRAGMA table_xinfo({name})")]
                wanted = _KERNEL_COLUMNS.get(str(table), "kernel")
                if wanted in columns:
                    conditions[name] = f"{wanted} IN ({names})"

        self._query(read)
        self._connection.narrow(conditions)

    def run(self) -> RunInfo:
        """The run as a whole."""

        def read() -> RunInfo:
            rows = self._rows(f"SELECT {table_of(RunInfo).select} FROM run")
            if not rows:
                raise ValueError("the table of the run is empty")
            return table_of(RunInfo).record(rows[0])

        return self._query(read)

    def records(
        self, kind: type[_T], /, since: int = 0, limit: int = MAX_PAGE_ROWS, **fields: object
    ) -> tuple[Recorded[_T], ...]:
        """Records of one type beyond the one of `seq` `since`, in order; () if there are none.

        Args:
            kind: `Fault`, `AutotuneChoice`, `Output`, `ScopeSpan`, or a plugin's own.
            since: ask again from the last one's `seq`.
            limit: the most records that are returned.
            fields: only records that have these values.

        Raises:
            TypeError: records of that type are not stored, or have a method of their own.
            ValueError: the type has no such field.
            SessionError: the session is damaged.
        """
        table = table_of(kind)
        if not table.is_stamped:
            raise TypeError(f"{kind.__qualname__}: its records are read by a method of their own")
        condition = " AND ".join(filter(None, ("seq > ?", table.matching(tuple(fields)))))

        def read() -> tuple[Recorded[_T], ...]:
            if not self._has_table(table.name):
                return ()
            # Fields that were added since the session was recorded have their defaults.
            present = {
                decode_text(row[1]) for row in self._rows(f"PRAGMA table_info({table.name})")
            }
            rows = self._rows(
                f"SELECT {table.select_from(present)} FROM {table.name} "
                f"WHERE {condition} ORDER BY seq LIMIT ?",
                since,
                *fields.values(),
                min(limit, MAX_PAGE_ROWS),
            )
            found = tuple(map(table.recorded, rows))
            _check_order(since, [one.seq for one in found[-1:]])
            return found

        return self._query(read)

    def launches(self, since: int = 0, limit: int = 1000) -> LaunchPage:
        """Launches new or changed since the cursor `since` (0 for all), oldest change first.

        A launch seen running comes again, with the same `seq`, when it has ended.

        Args:
            since: the cursor of the page before.
            limit: the most launches, clamped to 1 to `MAX_PAGE_ROWS`.
        """
        limit = max(1, min(limit, MAX_PAGE_ROWS))
        found = self._page(Launch, "revision", since, limit + 1)
        page = found[:limit]
        return LaunchPage(page, page[-1].revision if page else since, len(found) > limit)

    def recent_cursor(self, count: int) -> int:
        """A cursor for `launches` with at most `count` changes after it: the latest ones."""
        return max(0, self._number("SELECT revision FROM clock") - count)

    def launches_in_order(self, after: int = 0, limit: int = 1000) -> tuple[Launch, ...]:
        """Launches with a `seq` beyond `after`, in the order in which they began."""
        limit = max(1, min(limit, MAX_PAGE_ROWS))
        return self._page(Launch, "seq", after, limit)

    def launch(self, seq: int) -> Launch | None:
        """The launch of that `seq`, or None."""
        return next(iter(self._found(Launch, "WHERE seq = ?", seq)), None)

    def launch_of(self, process: int, launch_id: int) -> Launch | None:
        """The launch that has that number in its process, or None."""
        where = "WHERE process = ? AND id = ? AND seq >= ? ORDER BY seq LIMIT 1"
        for start in dict.fromkeys((self._least_seq(process, launch_id), 0)):
            if found := self._found(Launch, where, process, launch_id, start):
                return found[0]
        return None

    def _least_seq(self, process: int, launch_id: int) -> int:
        """Return a lower bound for the `seq` of a launch; 0 if its process has none recorded."""
        first = self._first_launches.get(process)
        if first is None:
            found = self._found(Launch, "WHERE process = ? ORDER BY seq LIMIT 1", process)
            if not found:
                return 0
            first = self._first_launches[process] = found[0].seq - found[0].id
        # In place of an index, which would make every launch dearer.
        return min(max(0, first + launch_id - _MOST_SWAPPED), MAX_SEQ)

    def launch_fields(self, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
        """These fields of all launches, in the order in which they began.

        Args:
            names: the names of fields of `Launch`.
        """
        fields = table_of(Launch).fields(("seq", *names))
        statement = f"SELECT {fields.select} FROM launches WHERE seq > ? ORDER BY seq LIMIT ?"

        def page(after: int) -> Sequence[tuple[object, ...]]:
            rows = fields.decoded(self._rows(statement, after, _PAGE_ROWS))
            _check_order(after, [cast("int", row[0]) for row in rows[-1:]])
            return rows

        rows = self._query(lambda: page(0))
        while rows:
            yield from (row[1:] for row in rows)
            rows = self._query(partial(page, cast("int", rows[-1][0])))

    def launch_count(self) -> int:
        """Return the number of recorded launches."""
        return self._number("SELECT coalesce(sum(launches), 0) FROM totals")

    def rank_count(self) -> int:
        """Return the number of ranks that launched."""
        return self._number("SELECT count(DISTINCT rank) FROM launches")

    def kernel_summaries(self) -> tuple[KernelSummary, ...]:
        """Times by kernel name, the longest in total first."""
        return self._found(KernelSummary, "ORDER BY total_ns DESC, kernel")

    def time_sources(self) -> dict[str, int]:
        """Count the launches that have ended by `Launch.time_source`."""

        def read() -> dict[str, int]:
            rows = self._rows(
                "SELECT time_source, count(*) FROM launches WHERE time_source IS NOT NULL "
                "GROUP BY time_source ORDER BY 2 DESC LIMIT ?",
                MAX_PAGE_ROWS,
            )
            return {decode_text(source): decode_integer(count) for source, count in rows}

        return self._query(read)

    def other_totals(self, since: int = 0) -> tuple[int, tuple[ActivityTotal, ...]]:
        """Sum up others' activities on the GPU, after the batch of `seq` `since`.

        Returns:
            The `seq` to ask from next time, and times by kind and name, the longest in total first.
        """
        table = table_of(ActivityBatch)
        (column,) = (c for c in table.own_columns if c.name == "totals")

        def read() -> tuple[int, list[tuple[ActivityTotal, ...]]]:
            # Not the batches themselves, which may be long.
            rows = self._rows(
                f"SELECT seq, totals FROM {table.name} WHERE seq > ? ORDER BY seq", since
            )
            parsed = [cast("tuple[ActivityTotal, ...]", column.decode(row[1])) for row in rows]
            return (decode_integer(rows[-1][0]) if rows else since), parsed

        last, totals = self._query(read)
        return last, sum_of_totals(chain.from_iterable(totals))

    def scope_summaries(self) -> tuple[ScopeSummary, ...]:
        """Times by scopes and kernel, in the order in which they came up first."""

        def read() -> tuple[ScopeSummary, ...]:
            rows = self._rows(
                "SELECT scopes, kernel, count(*), count(duration_ns), "
                "coalesce(sum(duration_ns), 0) FROM launches WHERE scopes != '[]' "
                "GROUP BY scopes, kernel ORDER BY min(seq) LIMIT ?",
                MAX_PAGE_ROWS,
            )
            return tuple(map(_scope_summary, rows))

        return self._query(read)

    def kernels(self, since: int = 0) -> tuple[RecordedKernel, ...]:
        """The specialisations compiled beyond the one of `seq` `since`, in order."""
        return self._page(RecordedKernel, "seq", since, MAX_SEQ)

    def artifact(self, kernel_hash: str, stage: str) -> str | None:
        """The text of one stage of a kernel, None if it was not recorded."""
        return self._text(
            "artifacts", "content", "WHERE kernel_hash = ? AND stage = ?", kernel_hash, stage
        )

    def passes(self, kernel_hash: str) -> tuple[CompilerPass, ...]:
        """Return the passes of a kernel with their changes, the front end first."""
        found = self._found(
            RecordedPass, "WHERE kernel_hash = ? ORDER BY number LIMIT ?", kernel_hash, MAX_PASSES
        )
        return tuple(recorded.compiler_pass for recorded in found)

    def line_table(self, kernel_hash: str) -> object | None:
        """Data of a native kernel's line table, for `linemap.line_table_data.from_data`.

        None for interpreted kernels.
        """
        text = self._text("line_tables", "data", "WHERE kernel_hash = ?", kernel_hash)
        if text is None:
            return None

        def read() -> object:
            data = decode_json(text)
            if not isinstance(data, dict):
                raise ValueError(f"got {text!r:.80}, expected a JSON object")
            return data

        return self._query(read)

    def op_ids(self, kernel_hash: str, stage: str) -> Mapping[int, int]:
        """Op id by line (1-based) of that stage's text."""
        found = self._artifact(kernel_hash, stage)
        return found.op_ids if found else {}

    def op_lines(self, kernel_hash: str, stage: str) -> Mapping[int, tuple[Frame, ...]]:
        """Source frames, outermost first, by line (1-based) of that stage's text."""
        found = self._artifact(kernel_hash, stage)
        return found.op_lines if found else {}

    def _artifact(self, kernel_hash: str, stage: str) -> Artifact | None:
        where = "WHERE kernel_hash = ? AND stage = ?"
        found = self._found(Artifact, where, kernel_hash, stage)
        if found and not all(found[0].op_lines.values()):
            raise SessionError(
                f"{self.path}: damaged session (an op without a place); record the run again"
            )
        return found[0] if found else None

    def source_text(self, file: str) -> str | None:
        """The text of a source file as it was when it was recorded, None if it was not."""
        return self._text("sources", "content", "WHERE file = ?", file)

    def source_line(self, file: str, line: int) -> str | None:
        """One line (1-based) of a recorded source file, or None if it was not recorded."""
        if file not in self._source_lines:
            text = self.source_text(file)
            self._source_lines[file] = None if text is None else tuple(text.splitlines())
        lines = self._source_lines[file]
        return lines[line - 1] if lines is not None and 1 <= line <= len(lines) else None

    def fault_groups(self) -> tuple[FaultGroup, ...]:
        """All faults, those of one `fault_key` together, in the order in which they came up.

        After them are new findings so far of launches that have not ended.
        """
        groups = self._reported_faults(MAX_SEQ)
        known = {group.key for group in groups}
        return (*groups, *(one for one in self.running_faults() if one.key not in known))

    def _reported_faults(self, last_seq: int) -> tuple[FaultGroup, ...]:
        """The faults of launches that ended, up to the one of `last_seq`."""

        def read() -> tuple[FaultGroup, ...]:
            # Columns outside of aggregates are those of the row that has the least `seq`.
            rows = self._rows(
                "SELECT sum(count), count(DISTINCT CASE WHEN launch_id THEN process || ' ' || "
                f"launch_id END), min(seq) AS first, {table_of(Fault).select} FROM faults "
                "WHERE seq <= ? GROUP BY kind, kernel, frames, tensor, state, "
                "CASE kind WHEN 'compile-error' THEN message ELSE '' END ORDER BY first",
                last_seq,
            )
            return tuple(map(_fault_group, rows))

        return self._query(read)

    def running_faults(self) -> tuple[FaultGroup, ...]:
        """Return the findings so far of native launches that have not ended."""
        if not self._query(lambda: self._has_table(table_of(RunningFault).name)):
            return ()
        found = self._found(RunningFault, "ORDER BY launch_id, site LIMIT ?", MAX_PAGE_ROWS)
        groups: dict[FaultKey, FaultGroup] = {}
        for one in found:
            fault = running_fault(one, self.launch_of(one.process, one.launch_id))
            known = groups.get(fault_key(fault.event))
            known = known or FaultGroup(fault, 0, 0)
            groups[known.key] = FaultGroup(known.first, known.count + one.count, known.launches + 1)
        return tuple(groups.values())

    def fault_overview(self, max_launches: int) -> FaultOverview:
        """All faults so far, in groups; `records` from its `last_seq` gives later ones."""
        last_seq = self._number("SELECT coalesce(max(seq), 0) FROM faults")

        def read() -> tuple[tuple[int, int], ...]:
            rows = self._rows(
                "SELECT DISTINCT process, launch_id FROM faults "
                "WHERE severity = 'error' AND state = 'open' AND seq <= ? LIMIT ?",
                last_seq,
                max_launches,
            )
            return tuple((decode_integer(row[0]), decode_integer(row[1])) for row in rows)

        return FaultOverview(last_seq, self._reported_faults(last_seq), self._query(read))

    def progress(self) -> tuple[Progress, ...]:
        """The latest progress of the launches that run now."""
        return self._found(Progress, "LIMIT ?", MAX_PAGE_ROWS)

    def checked(self, read: Callable[[], _T]) -> _T:
        """Return the result of `read`, which may raise ValueError on damaged records.

        Raises:
            SessionError: it does.
        """
        return self._query(read)

    def _found(self, kind: type[_T], condition: str, *values: object) -> tuple[_T, ...]:
        """Return the records in a table that is not stamped."""
        table = table_of(kind)
        statement = f"SELECT {table.select} FROM {table.name} {condition}"
        return self._query(lambda: table.records(self._rows(statement, *values)))

    def _page(self, kind: type[_T], cursor: str, since: int, limit: int) -> tuple[_T, ...]:
        """Return a page of records in a table that is not stamped: those after `since`."""
        table = table_of(kind)
        statement = f"SELECT {table.select} FROM {table.name} WHERE {cursor} > ?"

        def read() -> tuple[_T, ...]:
            rows = self._rows(f"{statement} ORDER BY {cursor} LIMIT ?", since, limit)
            found = table.records(rows)
            _check_order(since, [getattr(one, cursor) for one in found[-1:]])
            return found

        return self._query(read)

    def _number(self, statement: str) -> int:
        return self._query(lambda: decode_integer(self._rows(statement)[0][0]))

    def _text(self, table: str, column: str, condition: str, *values: object) -> str | None:
        """Return the text of the blob whose hash is in `column`; None if there is no such row."""

        def read() -> str | None:
            rows = self._rows(
                f"SELECT substr(text, 1, ?) FROM {table} JOIN blobs ON blobs.hash = {column} "
                f"{condition}",
                2 * MAX_TEXT_CHARS,
                *values,
            )
            return decode_text(rows[0][0]) if rows else None

        return self._query(read)

    def _rows(self, statement: str, *values: object) -> list[Row]:
        return self._connection.rows(statement, *values)

    def _query(self, read: Callable[[], _T]) -> _T:
        return self._connection.query(read)

    def _check_tables(self) -> None:
        for name in sorted(table_of(kind).name for kind in TABLES):
            if not self._has_table(name):
                raise ValueError(f"no table {name}")

    def _has_table(self, name: str) -> bool:
        """Whether the file has a table of this name."""
        if name in self._checked:
            return True
        found = self._rows("SELECT sql FROM sqlite_master WHERE type='table' AND name = ?", name)
        if not found:
            return False
        # SQLite, "PRAGMA table_xinfo": the last column is 2 or 3 for one that is generated.
        columns = self._rows(f"PRAGMA table_xinfo({name})")
        is_virtual = decode_text(found[0][0]).upper().startswith("CREATE VIRTUAL")
        if is_virtual or any(column[-1] in (2, 3) for column in columns):
            raise ValueError(f"table {name} is computed, expected one that is stored")
        self._checked.add(name)
        return True


def _check_order(since: int, last: Sequence[int]) -> None:
    """Check that a page ends after the one before; else reading would never end.

    Raises:
        ValueError: it does not, as if numbers are stored as texts, which SQLite orders after them.
    """
    if last and last[0] <= since:
        raise ValueError(f"row {last[0]} comes after row {since}")


def _scope_summary(row: Row) -> ScopeSummary:
    scopes, kernel, *numbers = row
    path = decode_json(scopes)
    if not isinstance(path, list):
        raise ValueError(f"got {scopes!r:.80}, expected a JSON list")
    names = tuple(map(decode_text, path))
    return ScopeSummary(names, decode_text(kernel), *map(decode_integer, numbers))


def _fault_group(row: Row) -> FaultGroup:
    """Return a group from counts of accesses and launches, a `seq`, and its row of `faults`."""
    count, launches, _, *first = row
    recorded = table_of(Fault).recorded(first)
    return FaultGroup(recorded, decode_integer(count), decode_integer(launches))
