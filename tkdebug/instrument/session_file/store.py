"""Storing events in a session file: one connection, of one process's writer thread.

Responsible for turning queued events into rows within one transaction per batch. Invariant: the
numbers `seq` and `revision` are taken inside the write transaction, so that they grow in commit
order across all processes that share the file, and a reader's cursor never skips a row.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TypeVar, cast

from tkdebug.instrument.records import (
    NOT_A_RECORD,
    TABLES,
    Artifact,
    Blob,
    KernelSummary,
    Launch,
    Output,
    Progress,
    RecordedKernel,
    RecordedLineTable,
    RecordedPass,
    RecordTables,
    RunningFault,
    SourceFile,
)
from tkdebug.instrument.session_file.queued_events import (
    EncodedLaunch,
    EncodedRow,
    Event,
    LaunchEnded,
    LaunchStarted,
    MadeLineTable,
    RunEnded,
    SeenFaults,
    Stamped,
)
from tkdebug.instrument.session_file.tables import table_of
from tkdebug.process.named_files import open_regular
from tkdebug.records.columns import MAX_TEXT_CHARS, encode_text, storable_ns
from tkdebug.records.events import CompilerPass, KernelCompiled, LaunchProgress
from tkdebug.records.storage import storage_of
from tkdebug.terminal.text import tell

MAX_OUTPUT_CHARS = 64 << 20
MAX_PASS_CHARS = 8 << 20
# The wait of one try for another connection's lock: threads with events must not wait long.
LOCK_WAIT_S = 0.05
# Rows that wait in memory meanwhile.
MAX_WAITING_EVENTS = 200_000
LOCKED = "another connection has it locked, of the script's own or of another program"
_T = TypeVar("_T")


_RUNNING = (None,) * 6


@dataclass(slots=True)
class _Total:
    launches: int = 0
    finished: int = 0
    errors: int = 0
    total_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    untimed: int = 0

    def end(self, duration_ns: int | None, error: str | None) -> None:
        """Add the end of a launch."""
        if duration_ns is None and error is None:
            self.untimed += 1
            return
        self.finished += 1
        self.errors += error is not None
        if duration_ns is not None:
            self.min_ns = min(self.min_ns, duration_ns) if self.total_ns else duration_ns
            self.max_ns = max(self.max_ns, duration_ns)
            self.total_ns += duration_ns


def process_rank() -> int:
    """The rank of this process as torchrun and similar launchers give it, else 0."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


def _ending(end: LaunchEnded) -> tuple[object, ...]:
    """Return the last columns of a launch, encoded from the fields of `LaunchEnded`."""
    _, duration_ns, error, source, device_start_ns, *place = end
    return duration_ns, encode_text(error), source, storable_ns(device_start_ns), *place


def is_locked(error: BaseException) -> bool:
    """Whether SQLite says that another connection has the file locked."""
    return isinstance(error, sqlite3.OperationalError) and str(error).endswith("is locked")


def remedy(reason: str) -> str:
    """Return a remedy for the reason why recording stopped."""
    if reason.startswith(LOCKED):
        return "end transactions there, and close what is not used"
    return "check that the file is there and the disk has room"


class SessionStore:
    """The open session file of one process.

    Args:
        path: the file.
        process: the process of these events; this process by default.
        rank: the rank of that process.

    Raises:
        sqlite3.Error: the file cannot be opened; it is never created here.
    """

    def __init__(self, path: Path, process: int | None = None, rank: int | None = None) -> None:
        self._connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=LOCK_WAIT_S, isolation_level=None
        )
        # A dead process loses nothing that was written; only a dead machine would.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._process = os.getpid() if process is None else process
        self._rank = process_rank() if rank is None else rank
        self._running: dict[int, tuple[int, str]] = {}
        # Another process may have reported progress of a launch that ends here.
        (self._has_progress,) = self._connection.execute(
            "SELECT EXISTS (SELECT 1 FROM progress)"
        ).fetchone()
        self._modes: set[str] = set()
        self._stored_sources: set[str] = set()
        self._tables = RecordTables()
        self._created = {storage_of(kind).table for kind in TABLES}
        self._output_chars = 0
        self._revision = 0

    def write(self, events: Sequence[Event]) -> bool:
        """Commit `events` as one transaction; return False, and do nothing, if it is locked."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
            return False
        with self._transaction():
            self._write(events)
        return True

    def _write(self, events: Sequence[Event]) -> None:
        by_type: dict[type, list[Event]] = defaultdict(list)
        for event in events:
            by_type[type(event)].append(event)
        stamped: dict[type, list[Stamped]] = defaultdict(list)
        for record in _of_type(by_type, Stamped):
            stamped[type(record.event)].append(record)
        execute = self._connection.execute
        (self._revision,) = execute("SELECT revision FROM clock").fetchone()
        self._write_kernels(stamped.pop(KernelCompiled, ()))
        started: list[LaunchStarted | EncodedLaunch] = [
            *_of_type(by_type, LaunchStarted),
            *_of_type(by_type, EncodedLaunch),
        ]
        if len(by_type[LaunchStarted]) not in (0, len(started)):
            # Launches of both kinds came: they are numbered in the order in which they were made.
            started.sort(key=attrgetter("id"))
        self._write_launches(started, _of_type(by_type, LaunchEnded))
        self._write_progress(stamped.pop(LaunchProgress, ()))
        self._write_seen(_of_type(by_type, SeenFaults))
        self._write_records(self._joined_output(stamped.pop(Output, ())))
        for records in stamped.values():
            self._write_records(records)
        self._write_rows(_of_type(by_type, EncodedRow))
        for made in _of_type(by_type, MadeLineTable):
            self._write_line_table(made.kernel_hash, made.text)
        self._write_end(_of_type(by_type, RunEnded))
        execute("UPDATE clock SET revision = ?", (self._revision,))

    def checkpoint(self) -> None:
        """Move committed rows into the main file, as far as readers allow."""
        self._move_log("PASSIVE")

    def close(self) -> None:
        """Move all into the main file, if readers allow, and close the connection."""
        try:
            # A reader may be the last to close, and a reader moves nothing: so not left to SQLite.
            self._connection.execute("PRAGMA busy_timeout = 1000")
            self._move_log("TRUNCATE")
        finally:
            self._connection.close()

    def _move_log(self, how: str) -> None:
        try:
            self._connection.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise  # if it is locked, the log stays, and readers read it, too

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit the transaction begun before at the end of the block; roll it back on an error."""
        execute = self._connection.execute
        try:
            yield
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def _write_launches(
        self, started: Sequence[LaunchStarted | EncodedLaunch], ended: Sequence[LaunchEnded]
    ) -> None:
        """Write launches; a launch with both its start and its end among them is one insert."""
        if not started and not ended:
            return
        ends = {end.id: end for end in ended}
        (last_seq,) = self._connection.execute("SELECT max(seq) FROM launches").fetchone()
        self._note_modes({launch.mode for launch in started}, is_first=last_seq is None)
        totals: dict[str, _Total] = defaultdict(_Total)
        inserts: list[Sequence[object]] = []
        table = table_of(Launch)
        for seq, start in enumerate(started, (last_seq or 0) + 1):
            self._revision += 1
            total = totals[start.kernel]
            total.launches += 1
            end = ends.pop(start.id, None)
            if end is None:
                self._running[start.id] = (seq, start.kernel)
            else:
                total.end(end.duration_ns, end.error)
            last = _RUNNING if end is None else _ending(end)
            row = (seq, self._revision, self._process, self._rank, *start, *last)
            inserts.append(row if isinstance(start, EncodedLaunch) else table.encoded(row))
        self._connection.executemany(table.insert, inserts)
        self._end_launches(ends.values(), totals)
        self._add_totals(totals)

    def _note_modes(self, modes: set[str], is_first: bool) -> None:
        """Add the modes of these launches to the mode of the run."""
        if modes <= self._modes:
            return
        (before,) = self._connection.execute("SELECT mode FROM run").fetchone()
        known = set() if is_first else set(str(before).split(", "))
        self._modes = known | modes
        self._connection.execute("UPDATE run SET mode = ?", (", ".join(sorted(self._modes)),))

    def _end_launches(self, ends: Iterable[LaunchEnded], totals: Mapping[str, _Total]) -> None:
        updates = []
        for end in ends:
            started = self._running.pop(end.id, None) or self._find_launch(end.id)
            if started is None:
                continue
            seq, kernel = started
            self._revision += 1
            updates.append((self._revision, *_ending(end), seq))
            totals[kernel].end(end.duration_ns, end.error)
        if not updates:
            return
        self._connection.executemany(
            "UPDATE launches SET revision = ?, duration_ns = ?, error = ?, time_source = ?, "
            "device_start_ns = ?, device = ?, device_stream = ? WHERE seq = ?",
            updates,
        )
        if self._has_progress:
            self._connection.executemany(
                "DELETE FROM progress WHERE process = ? AND launch_id = ?",
                [(self._process, end.id) for end in ends],
            )

    def _find_launch(self, launch: int) -> tuple[int, str] | None:
        # Needed only for a launch that ran during a fork, after which the file was opened again.
        return cast(
            "tuple[int, str] | None",
            self._connection.execute(
                "SELECT seq, kernel FROM launches WHERE process = ? AND id = ? AND "
                "duration_ns IS NULL ORDER BY seq DESC LIMIT 1",
                (self._process, launch),
            ).fetchone(),
        )

    def _add_totals(self, totals: Mapping[str, _Total]) -> None:
        table = table_of(KernelSummary)
        self._connection.executemany(
            f"""{table.insert} ON CONFLICT (kernel) DO UPDATE SET
                launches = launches + excluded.launches, finished = finished + excluded.finished,
                errors = errors + excluded.errors, total_ns = total_ns + excluded.total_ns,
                untimed = untimed + excluded.untimed,
                min_ns = CASE WHEN total_ns = 0 THEN excluded.min_ns
                    WHEN excluded.total_ns = 0 THEN min_ns ELSE min(min_ns, excluded.min_ns) END,
                max_ns = max(max_ns, excluded.max_ns)""",
            [table.row(KernelSummary(kernel, *astuple(t))) for kernel, t in totals.items()],
        )

    def _write_kernels(self, events: Sequence[Stamped]) -> None:
        table = table_of(RecordedKernel)
        for kernel in _events_of(events, KernelCompiled):
            if kernel.error is None:
                # A kernel that failed to compile may compile later, with an edited stage.
                self._connection.execute(
                    "DELETE FROM kernels WHERE hash = ? AND error IS NOT NULL",
                    (encode_text(kernel.hash),),
                )
            added = self._connection.execute(
                table.add_new, [None, *table.row(self._recorded_kernel(kernel))[1:]]
            )
            if added.rowcount:
                self._write_artifacts(kernel)
                if kernel.line_table is not None:
                    self._write_line_table(kernel.hash, line_table_text(kernel.line_table))

    def _recorded_kernel(self, kernel: KernelCompiled) -> RecordedKernel:
        return RecordedKernel(
            seq=0,
            hash=kernel.hash,
            process=self._process,
            rank=self._rank,
            name=kernel.name,
            file=kernel.file,
            line=kernel.line,
            source=kernel.source,
            signature=kernel.signature,
            options=kernel.options,
            compile_ns=kernel.compile_ns,
            cache_hit=kernel.cache_hit,
            stages=tuple(kernel.artifacts),
            error=kernel.error,
        )

    def _write_line_table(self, kernel_hash: str, text: str) -> None:
        self._replace(RecordedLineTable(kernel_hash, self._store_blob(text)))

    def _write_artifacts(self, kernel: KernelCompiled) -> None:
        for stage, text in kernel.artifacts.items():
            lines = kernel.op_lines.get(stage, {})
            ids = kernel.op_ids.get(stage, {})
            self._replace(Artifact(kernel.hash, stage, self._store_blob(text), ids, lines))
        table = table_of(RecordedPass)
        self._connection.executemany(
            table.replace, [pass_row(kernel.hash, n, p) for n, p in enumerate(kernel.passes)]
        )
        chains = (chain for lines in kernel.op_lines.values() for chain in lines.values())
        self._store_sources({kernel.file, *(frame.file for chain in chains for frame in chain)})

    def _replace(self, record: _T) -> None:
        table = table_of(type(record))
        self._connection.execute(table.replace, table.row(record))

    def _add_new(self, record: _T) -> None:
        table = table_of(type(record))
        self._connection.execute(table.add_new, table.row(record))

    def _store_blob(self, text: str) -> str:
        text = str(encode_text(text))
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._add_new(Blob(digest, text))
        return digest

    def _store_sources(self, files: set[str]) -> None:
        # Kept with the run, so that it shows its source on another machine and after an edit.
        for file in sorted(files - self._stored_sources):
            self._stored_sources.add(file)
            try:
                with open_regular(file) as data:
                    text = io.TextIOWrapper(data, "utf-8", "replace").read(MAX_TEXT_CHARS)
            except (OSError, ValueError):
                continue  # no file behind the code (a notebook cell, exec): the kernel has its text
            self._add_new(SourceFile(file, self._store_blob(text)))

    def _write_records(self, events: Sequence[Stamped]) -> None:
        """Write records of one type, each a new row."""
        if not events:
            return
        kind = type(events[0].event)
        try:
            table = self._tables.known(kind)
            self._create(table.name, table.statements)
            rows = [table.stamped_row(e, self._process, self._rank, t) for e, t in events]
            self._connection.executemany(table.insert, rows)
        except NOT_A_RECORD as error:
            # A mistake in a plugin's record must not end the recording.
            if self._tables.refuse(kind):
                tell(f"{kind.__qualname__}: cannot be recorded: {error} (shown once)")
            return
        chains = (getattr(event, name) for name in table.chains for event, _ in events)
        self._store_sources({frame.file for chain in chains for frame in chain})

    def _write_rows(self, rows: Sequence[EncodedRow]) -> None:
        by_table: dict[str, list[EncodedRow]] = defaultdict(list)
        for row in rows:
            by_table[row.table].append(row)
        for table, found in by_table.items():
            self._create(table, found[0].statements)
            self._connection.executemany(found[0].insert, [row.values for row in found])
            self._store_sources({file for row in found for file in row.files})

    def _create(self, table: str, statements: Sequence[str]) -> None:
        """Create a table that not every session has, before its first record is written."""
        if table not in self._created:
            for statement in statements:
                self._connection.execute(statement)
            self._created.add(table)

    def _joined_output(self, events: Sequence[Stamped]) -> list[Stamped]:
        """Join neighbours of one stream into one record, and cut excess text."""
        joined: list[tuple[str, list[str], int]] = []
        for event, time_ns in events:
            output = cast("Output", event)
            if joined and joined[-1][0] == output.stream:
                joined[-1][1].append(output.text)
            else:
                joined.append((output.stream, [output.text], time_ns))
        result = []
        for stream, texts, time_ns in joined:
            if self._output_chars > MAX_OUTPUT_CHARS:
                break
            text = str(encode_text("".join(texts)))
            self._output_chars += len(text)
            if self._output_chars > MAX_OUTPUT_CHARS:
                text += f"\n[tkdebug: output beyond {MAX_OUTPUT_CHARS >> 20} MiB is not recorded]\n"
            result.append(Stamped(Output(stream, text), time_ns))
        return result

    def _write_progress(self, events: Sequence[Stamped]) -> None:
        """Write the latest progress of launches that still run."""
        self._has_progress = self._has_progress or bool(events)
        for event in _events_of(events, LaunchProgress):
            if event.launch_id in self._running:
                self._replace(
                    Progress(
                        process=self._process,
                        launch_id=event.launch_id,
                        rank=self._rank,
                        kernel=event.kernel,
                        programs_done=event.programs_done,
                        programs=event.programs,
                        elapsed_ns=event.elapsed_ns,
                    )
                )

    def _write_seen(self, events: Sequence[SeenFaults]) -> None:
        """Replace the findings of running launches by those seen now."""
        for event in events[-1:]:
            table = self._tables.known(RunningFault)
            self._create(table.name, table.statements)
            self._connection.execute(
                "DELETE FROM running_faults WHERE process = ?", (self._process,)
            )
            for seen in event.faults:
                self._replace(RunningFault(self._process, self._rank, *seen))
            self._store_sources({frame.file for seen in event.faults for frame in seen.frames})

    def _write_end(self, ends: Sequence[RunEnded]) -> None:
        """Write the exit status; with several ranks, the first failure's is kept."""
        for end in ends:
            self._connection.execute(
                """UPDATE run SET end_ns = ?, exit_status =
                CASE WHEN coalesce(exit_status, 0) = 0 THEN ? ELSE exit_status END""",
                (storable_ns(end.end_ns), end.exit_status),
            )


def pass_row(kernel_hash: str, number: int, compiled: CompilerPass) -> list[object]:
    """The row of a pass, without its ops and rewrites if those would take too much room."""
    table = table_of(RecordedPass)
    record = RecordedPass(
        kernel_hash=kernel_hash,
        number=number,
        name=compiled.name,
        before=compiled.before,
        after=compiled.after,
        time_ns=compiled.time_ns,
        error=compiled.error,
        rewrites=compiled.rewrites,
        op_ids=compiled.op_ids,
        ops=compiled.ops,
    )
    row = table.row(record)
    if sum(len(text) for text in row if isinstance(text, str)) <= MAX_PASS_CHARS:
        return row
    return table.row(replace(record, rewrites=(), op_ids=None, ops={}))


def line_table_text(make: Callable[[], Mapping[str, object]]) -> str:
    """A line table as JSON of bounded size, or a note if it cannot be made or is too large."""
    try:
        text = json.dumps(make())
    except Exception as error:  # a mistake in making it must not end the recording
        text = _absent_table(f"line table could not be made: {type(error).__name__}: {error}")
    if len(text) > MAX_TEXT_CHARS:
        text = _absent_table(f"line table is too large to be recorded: {len(text) >> 20} MiB")
    return text


def _absent_table(reason: str) -> str:
    return json.dumps({"schema": 1, "absent": reason})


def _of_type(by_type: Mapping[type, Sequence[object]], kind: type[_T]) -> Sequence[_T]:
    return cast("Sequence[_T]", by_type.get(kind, ()))


def _events_of(events: Sequence[Stamped], kind: type[_T]) -> Iterator[_T]:
    return (event for event, _ in events if isinstance(event, kind))
