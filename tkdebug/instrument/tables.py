"""How rows lie in the tables of a session file: one connection of one process's writer thread.

Responsible for turning queued rows into SQL within one transaction per batch. Invariant: the
numbers `seq` and `revision` are taken inside the write transaction, so that they grow in commit
order across all processes that share the file, and a reader's cursor never skips a row.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from tkdebug.events import ArgumentInfo, AutotuneChoice, Fault, KernelCompiled, LaunchProgress
from tkdebug.instrument import encode, pass_rows
from tkdebug.instrument.schema import BUSY_TIMEOUT_S, process_rank
from tkdebug.instrument.session_writing import WritingConnection

# Tags of the rows that a recorder queues; what follows the tag is said at the handler.
STARTED, FINISHED, COMPILED, TUNED, FAULT, OUTPUT, PROGRESS, SCOPE, END = (
    "started",
    "finished",
    "compiled",
    "tuned",
    "fault",
    "output",
    "progress",
    "scope",
    "end",
)
Row = tuple[object, ...]
MAX_OUTPUT_CHARS = 64 << 20


class SessionTables:
    """The open session file of this process.

    Raises:
        sqlite3.Error: the file cannot be opened; it is never created here.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            factory=WritingConnection,
        )
        # A dead process loses nothing that was written; only a dead machine would.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._process = os.getpid()
        self._rank = process_rank()
        self._running: dict[object, tuple[int, str]] = {}
        self._modes: set[str] = set()
        self._stored_sources: set[str] = set()
        self._output_chars = 0
        self._revision = 0
        self._line_tables: list[tuple[str, Callable[[], Mapping[str, object]]]] = []

    def write(self, rows: Sequence[Row]) -> None:
        """Commit `rows` as one transaction."""
        by_tag: dict[object, list[Row]] = {}
        for tag, *values in rows:
            by_tag.setdefault(tag, []).append(tuple(values))
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            (self._revision,) = execute("SELECT revision FROM clock").fetchone()
            self._write_kernels(by_tag.get(COMPILED, ()))
            self._write_launches(by_tag.get(STARTED, ()), by_tag.get(FINISHED, ()))
            self._write_tunings(by_tag.get(TUNED, ()))
            self._write_faults(by_tag.get(FAULT, ()))
            self._write_output(by_tag.get(OUTPUT, ()))
            self._write_progress(by_tag.get(PROGRESS, ()))
            self._write_scopes(by_tag.get(SCOPE, ()))
            self._write_end(by_tag.get(END, ()))
            execute("UPDATE clock SET revision = ?", (self._revision,))
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def checkpoint(self) -> None:
        """Move what is committed into the main file, as far as readers allow."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Move all into the main file, if readers allow, and close the connection.

        Line tables that are not made yet are made now.
        """
        try:
            while self.write_line_table():
                pass
            # A reader may be the last to close, and a reader moves nothing: so not left to SQLite.
            self._connection.execute("PRAGMA busy_timeout = 1000")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self._connection.close()

    def _write_launches(self, started: Sequence[Row], finished: Sequence[Row]) -> None:
        """Started: launch, kernel, hash, mode, grid, options, arguments, start_ns, stream, scopes.

        Finished: (launch, duration_ns, error). A launch with both in one batch is one insert.
        """
        if not started and not finished:
            return
        ends = {row[0]: row for row in finished}
        (last,) = self._connection.execute("SELECT max(seq) FROM launches").fetchone()
        seq = last or 0
        self._note_modes({str(row[3]) for row in started}, is_first=last is None)
        inserts: list[Row] = []
        changes: list[tuple[str, int, object, object, bool]] = []
        for row in started:
            launch, kernel, kernel_hash, mode, grid, options, arguments = row[:7]
            start_ns, stream, scopes = row[7:]
            seq += 1
            self._revision += 1
            _, duration_ns, error = end = ends.pop(launch, (launch, None, None))
            done = end[1] is not None or end[2] is not None
            if not done:
                self._running[launch] = (seq, str(kernel))
            changes.append((str(kernel), 1, duration_ns, error, done))
            inserts.append(
                (
                    seq,
                    self._revision,
                    self._process,
                    self._rank,
                    launch,
                    kernel_hash,
                    kernel,
                    mode,
                    encode.json_grid(cast("tuple[int, ...]", grid)),
                    encode.json_options(cast("Mapping[str, object]", options)),
                    encode.json_arguments(cast("tuple[ArgumentInfo, ...]", arguments)),
                    encode.integer(stream),
                    start_ns,
                    duration_ns,
                    error,
                    encode.json_path(cast("tuple[str, ...]", scopes)) if scopes else None,
                )
            )
        self._connection.executemany(
            f"INSERT INTO launches VALUES ({', '.join('?' * 16)})", inserts
        )
        self._finish_launches(ends, changes)
        self._add_totals(changes)

    def _note_modes(self, modes: set[str], is_first: bool) -> None:
        """Have the run say how its kernels ran, which only the launches tell."""
        if modes <= self._modes:
            return
        (before,) = self._connection.execute("SELECT mode FROM run").fetchone()
        known = set() if is_first else set(str(before).split(", "))
        self._modes = known | modes
        self._connection.execute("UPDATE run SET mode = ?", (", ".join(sorted(self._modes)),))

    def _finish_launches(
        self,
        ends: Mapping[object, Row],
        changes: list[tuple[str, int, object, object, bool]],
    ) -> None:
        updates: list[Row] = []
        for launch, duration_ns, error in ends.values():
            started = self._running.pop(launch, None) or self._find_launch(launch)
            if started is None:
                continue
            seq, kernel = started
            self._revision += 1
            updates.append((self._revision, duration_ns, error, seq))
            changes.append((kernel, 0, duration_ns, error, True))
        if not updates:
            return
        self._connection.executemany(
            "UPDATE launches SET revision = ?, duration_ns = ?, error = ? WHERE seq = ?", updates
        )
        self._connection.executemany(
            "DELETE FROM progress WHERE process = ? AND launch = ?",
            [(self._process, launch) for launch in ends],
        )

    def _find_launch(self, launch: object) -> tuple[int, str] | None:
        # Only a launch that was under way at a fork, where this connection was opened anew.
        return cast(
            "tuple[int, str] | None",
            self._connection.execute(
                "SELECT seq, kernel FROM launches WHERE process = ? AND launch = ? AND "
                "duration_ns IS NULL ORDER BY seq DESC LIMIT 1",
                (self._process, launch),
            ).fetchone(),
        )

    def _add_totals(self, changes: Sequence[tuple[str, int, object, object, bool]]) -> None:
        totals: dict[str, list[int]] = {}
        for kernel, new, duration_ns, error, done in changes:
            total = totals.setdefault(kernel, [0, 0, 0, 0, 1 << 62, 0])
            total[0] += new
            if not done:
                continue
            total[1] += 1
            total[2] += error is not None
            if isinstance(duration_ns, int):
                total[3] += duration_ns
                total[4] = min(total[4], duration_ns)
                total[5] = max(total[5], duration_ns)
        self._connection.executemany(
            """INSERT INTO totals VALUES (?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (kernel) DO UPDATE SET
                launches = launches + excluded.launches, finished = finished + excluded.finished,
                errors = errors + excluded.errors, total_ns = total_ns + excluded.total_ns,
                min_ns = min(min_ns, excluded.min_ns), max_ns = max(max_ns, excluded.max_ns)""",
            [(kernel, *total) for kernel, total in totals.items()],
        )

    def _write_kernels(self, rows: Sequence[Row]) -> None:
        """Each: (KernelCompiled,)."""
        for (event,) in rows:
            kernel = cast("KernelCompiled", event)
            if kernel.error is None:
                # One that failed may have been compiled since, with an edited stage.
                self._connection.execute(
                    "DELETE FROM kernels WHERE hash = ? AND error IS NOT NULL", (kernel.hash,)
                )
            added = self._connection.execute(
                f"INSERT OR IGNORE INTO kernels VALUES (NULL, {', '.join('?' * 12)})",
                (
                    kernel.hash,
                    self._process,
                    self._rank,
                    kernel.name,
                    kernel.file,
                    kernel.line,
                    encode.bounded(kernel.source),
                    kernel.signature,
                    encode.json_options(kernel.options),
                    kernel.compile_ns,
                    int(kernel.cache_hit),
                    None if kernel.error is None else encode.bounded(kernel.error),
                ),
            )
            if added.rowcount:
                self._write_artifacts(kernel)
                if kernel.line_table is not None:
                    self._line_tables.append((kernel.hash, kernel.line_table))

    def write_line_table(self) -> bool:
        """Make and store the line table of one kernel; False when there is none left to make.

        Outside of batches and their transactions, since it runs nvdisasm.
        """
        if not self._line_tables:
            return False
        kernel_hash, make = self._line_tables.pop(0)
        text = line_table_text(make)
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            blob = self._store_blob(text)
            execute("INSERT OR REPLACE INTO line_tables VALUES (?, ?)", (kernel_hash, blob))
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        return True

    def _write_artifacts(self, kernel: KernelCompiled) -> None:
        execute, executemany = self._connection.execute, self._connection.executemany
        for stage, text in kernel.artifacts.items():
            execute(
                "INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?)",
                (kernel.hash, stage, self._store_blob(text)),
            )
        executemany(
            f"INSERT OR REPLACE INTO passes VALUES (?, ?, {', '.join('?' * 8)})",
            [(kernel.hash, n, *pass_rows.to_row(p)) for n, p in enumerate(kernel.passes)],
        )
        executemany(
            "INSERT OR REPLACE INTO op_ids VALUES (?, ?, ?)",
            [(kernel.hash, s, json.dumps(list(ids.items()))) for s, ids in kernel.op_ids.items()],
        )
        files = {kernel.file}
        for stage, lines in kernel.op_lines.items():
            executemany(
                "INSERT OR REPLACE INTO op_lines VALUES (?, ?, ?, ?)",
                [(kernel.hash, stage, line, encode.json_frames(f)) for line, f in lines.items()],
            )
            files.update(frame.file for frames in lines.values() for frame in frames)
        for file in sorted(files):
            self._store_source(file)

    def _store_blob(self, text: str) -> str:
        text = encode.bounded(text)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self._connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (digest, text))
        return digest

    def _store_source(self, file: str) -> None:
        # Kept with the run, so that it shows its source on another machine and after an edit.
        if file in self._stored_sources:
            return
        self._stored_sources.add(file)
        try:
            with open(file, encoding="utf-8", errors="replace") as source:
                text = source.read(encode.MAX_TEXT_CHARS)
        except (OSError, ValueError):
            return  # no file behind the code (a notebook cell, exec): the kernel's text is there
        self._connection.execute(
            "INSERT OR IGNORE INTO sources VALUES (?, ?)",
            (file, self._store_blob(text)),
        )

    def _write_tunings(self, rows: Sequence[Row]) -> None:
        """Each: (AutotuneChoice,)."""
        self._connection.executemany(
            "INSERT INTO tunings VALUES (NULL, ?, ?, ?, ?, ?, ?)",
            [
                (
                    self._process,
                    self._rank,
                    c.kernel,
                    c.key,
                    c.config,
                    encode.json_text(dict(c.timings_ms)),
                )
                for c in (cast("AutotuneChoice", row[0]) for row in rows)
            ],
        )

    def _write_faults(self, rows: Sequence[Row]) -> None:
        """Each: (Fault, time_ns)."""
        for event, time_ns in rows:
            fault = cast("Fault", event)
            self._connection.execute(
                f"INSERT INTO faults VALUES (NULL, {', '.join('?' * 18)})",
                (
                    self._process,
                    self._rank,
                    fault.launch_id,
                    fault.kind,
                    fault.severity,
                    fault.kernel,
                    encode.json_frames(fault.frames),
                    encode.bounded(fault.message),
                    fault.column,
                    fault.op_id,
                    encode.json_text(fault.program_id),
                    encode.json_text(fault.lane),
                    fault.tensor,
                    encode.integer(fault.index),
                    encode.json_text(fault.legal),
                    fault.count,
                    fault.hint,
                    time_ns,
                ),
            )
            for frame in fault.frames:
                self._store_source(frame.file)

    def _write_output(self, rows: Sequence[Row]) -> None:
        """Each: (stream, text, time_ns). Neighbours of one stream become one row."""
        joined: list[tuple[object, list[str], object]] = []
        for stream, text, time_ns in rows:
            if joined and joined[-1][0] == stream:
                joined[-1][1].append(cast("str", text))
            else:
                joined.append((stream, [cast("str", text)], time_ns))
        for stream, texts, time_ns in joined:
            if self._output_chars > MAX_OUTPUT_CHARS:
                return
            text = encode.bounded("".join(texts))
            self._output_chars += len(text)
            if self._output_chars > MAX_OUTPUT_CHARS:
                text += f"\n[tkdebug: output beyond {MAX_OUTPUT_CHARS >> 20} MiB is not recorded]\n"
            self._connection.execute(
                "INSERT INTO output VALUES (NULL, ?, ?, ?, ?, ?)",
                (self._process, self._rank, time_ns, stream, text),
            )

    def _write_progress(self, rows: Sequence[Row]) -> None:
        """Each: (LaunchProgress,); only the latest of a launch that still runs is kept."""
        for event in (cast("LaunchProgress", row[0]) for row in rows):
            if event.launch_id not in self._running:
                continue
            self._connection.execute(
                "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    self._process,
                    event.launch_id,
                    self._rank,
                    event.kernel,
                    event.programs_done,
                    event.programs,
                    event.elapsed_ns,
                ),
            )

    def _write_scopes(self, rows: Sequence[Row]) -> None:
        """Each: (scope, parent, thread, name, metrics, start_ns, end_ns)."""
        self._connection.executemany(
            "INSERT INTO scopes VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    self._process,
                    self._rank,
                    scope,
                    parent,
                    thread,
                    str(name)[: encode.MAX_VALUE_CHARS],
                    encode.json_metrics(cast("Mapping[str, object]", metrics)),
                    start_ns,
                    end_ns,
                )
                for scope, parent, thread, name, metrics, start_ns, end_ns in rows
            ],
        )

    def _write_end(self, rows: Sequence[Row]) -> None:
        """Each: (exit_status or None, end_ns). Of several ranks, the first failure stays."""
        for exit_status, end_ns in rows:
            self._connection.execute(
                """UPDATE run SET end_ns = ?, exit_status =
                CASE WHEN coalesce(exit_status, 0) = 0 THEN ? ELSE exit_status END""",
                (end_ns, exit_status),
            )


def line_table_text(make: Callable[[], Mapping[str, object]]) -> str:
    """A line table as JSON of bounded size; what cannot be made or is too large says so instead."""
    try:
        text = json.dumps(make())
    except Exception as error:  # a mistake in making it must not end the recording
        text = _absent_table(f"line table could not be made: {type(error).__name__}: {error}")
    if len(text) > encode.MAX_TEXT_CHARS:
        text = _absent_table(f"line table is too large to be recorded: {len(text) >> 20} MiB")
    return text


def _absent_table(reason: str) -> str:
    return json.dumps({"schema": 1, "absent": reason})
