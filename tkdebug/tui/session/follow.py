"""Follows a session: asks the reader for new records and keeps the latest, bounded.

Headless: `Follower.poll` runs in a thread and gives immutable snapshots.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tkdebug.instrument.activities import sum_of_totals
from tkdebug.instrument.device_records import ActivityTotal
from tkdebug.instrument.records import (
    FaultKey,
    Launch,
    Output,
    RecordedFault,
    fault_key,
)
from tkdebug.instrument.session import Session
from tkdebug.records.events import Fault
from tkdebug.tui.session.snapshot import (
    FaultGroup,
    LaunchKey,
    ScriptState,
    Snapshot,
)

MAX_ROWS = 20_000
MAX_FAULT_GROUPS = 10_000
MAX_FAULTY_LAUNCHES = 100_000
MAX_KERNELS = 2_000
PAGE_ROWS = 2_000
OUTPUT_PAGE_ROWS = 1_000


class AwaitedSession:
    """The session that a script about to start will create at `path`.

    A file that lies there already is an older run's, until the script has replaced it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._old = _identity(path)

    def open(self) -> Session | None:
        """The session, None while it is not there."""
        identity = _identity(self.path)
        if identity is None or identity == self._old:
            return None
        return Session.open(self.path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


class Follower:
    """A reader that keeps up with one session.

    Args:
        session: the followed session.
        on_output: gets the script's output, if the session is the only source of it.
    """

    def __init__(self, session: Session, on_output: Callable[[str], None] | None = None) -> None:
        self.session = session
        self._on_output = on_output
        self._output_seq = 0
        self._cursor = 0
        self._rows: dict[int, Launch] = {}
        self._fault_seq = 0
        self._faults: dict[FaultKey, FaultGroup] = {}
        self._faulty: set[LaunchKey] = set()
        self._running: tuple[FaultGroup, ...] = ()
        self._last_launches: dict[tuple[FaultKey, int], int] = {}
        self._faults_left_out = False
        self._others_seq = 0
        self._processes: set[int] = set()
        self._last: Snapshot | None = None

    def poll(self, *, reads_rows: bool = True) -> Snapshot:
        """Read new records, and return a snapshot, the same as before if there are none.

        Args:
            reads_rows: read the launches one by one, too; their number costs nothing without.

        Raises:
            SessionError: the session cannot be read.
        """
        run = self.session.run()
        last = self._last or Snapshot(run)
        rows_changed = self._read_launches() if reads_rows else self._note_process()
        faults_changed = self._read_faults()
        running = tuple(
            group for group in self.session.running_faults() if group.key not in self._faults
        )
        if running != self._running:
            self._running, faults_changed = running, True
        kernels = last.kernels
        if len(kernels) < MAX_KERNELS:
            new = self.session.kernels(kernels[-1].seq if kernels else 0)
            kernels = (*kernels, *new)[:MAX_KERNELS] if new else kernels
        summaries = self.session.kernel_summaries()
        progress = {(p.process, p.launch_id): p for p in self.session.progress()}
        if faults_changed:
            faults = (*self._faults.values(), *running)
            failing = sum(group.first.event.fails for group in faults)
            warnings = sum(group.first.event.is_open for group in faults) - failing
            last = replace(last, faults=faults, failing=failing, warnings=warnings)
        self._last = replace(
            last,
            run=run,
            rows=tuple(self._rows.values()) if rows_changed else last.rows,
            launch_count=sum(summary.launches for summary in summaries),
            summaries=last.summaries if summaries == last.summaries else summaries,
            kernels=kernels,
            faulty=frozenset(self._faulty) if faults_changed else last.faulty,
            fault_limit_reached=self._faults_left_out,
            progress=last.progress if progress == last.progress else progress,
            others=self._read_others(last.others),
        )
        return self._last

    def poll_output(self) -> bool:
        """Forward the script's output since the last call, and return whether there was any."""
        if self._on_output is None:
            return False
        chunks = self.session.records(Output, self._output_seq, OUTPUT_PAGE_ROWS)
        for chunk in chunks:
            self._on_output(chunk.event.text)
            self._output_seq = chunk.seq
            self._processes.add(chunk.process)
        return bool(chunks)

    def state(self) -> ScriptState:
        """Return the state of the script by its records; call after `poll`."""
        if self._last is None:
            return ScriptState("starting")
        run = self._last.run
        if run.end_ns is not None:
            return ScriptState("ended", run.exit_status)
        if run.host == socket.gethostname():
            for process in sorted(self._processes):
                if _alive(process):
                    return ScriptState("running", process=process)
        return ScriptState("unended")

    def _note_process(self) -> bool:
        """Note the process of the latest launch; return False, as no row has changed."""
        latest = self.session.launches(self.session.recent_cursor(1), 1).launches
        self._processes.update(launch.process for launch in latest)
        return False

    def _read_launches(self) -> bool:
        changed = False
        # A follower that is far behind goes on with the latest: totals are exact in any case.
        self._cursor = max(self._cursor, self.session.recent_cursor(MAX_ROWS))
        for _ in range(MAX_ROWS // PAGE_ROWS + 1):
            page = self.session.launches(self._cursor, PAGE_ROWS)
            self._cursor = page.cursor
            for launch in page.launches:
                changed = True
                self._rows[launch.seq] = launch
                self._processes.add(launch.process)
            if not page.more:
                break
        if changed:
            oldest_first = sorted(self._rows)
            for seq in oldest_first[: max(0, len(oldest_first) - MAX_ROWS)]:
                del self._rows[seq]
        return changed

    def _read_others(self, known: tuple[ActivityTotal, ...]) -> tuple[ActivityTotal, ...]:
        self._others_seq, new = self.session.other_totals(self._others_seq)
        return sum_of_totals((*known, *new)) if new else known

    def _load_faults(self) -> None:
        """Read all faults from before, which may be very many, at once."""
        overview = self.session.fault_overview(MAX_FAULTY_LAUNCHES)
        self._fault_seq = overview.last_seq
        self._faulty.update(overview.launches)
        self._processes.update(process for process, _ in overview.launches)
        self._faults.update((group.key, group) for group in overview.groups[:MAX_FAULT_GROUPS])
        self._faults_left_out = len(overview.groups) > MAX_FAULT_GROUPS

    def _read_faults(self) -> bool:
        if self._last is None:
            self._load_faults()
        faults = self.session.records(Fault, self._fault_seq)
        for recorded in faults:
            self._fault_seq = recorded.seq
            self._processes.add(recorded.process)
            if recorded.event.fails and len(self._faulty) < MAX_FAULTY_LAUNCHES:
                self._faulty.add((recorded.process, recorded.event.launch_id))
            self._add_fault(recorded)
        return bool(faults) or self._last is None

    def _add_fault(self, recorded: RecordedFault) -> None:
        fault, key = recorded.event, fault_key(recorded.event)
        group = self._faults.get(key)
        if group is None and len(self._faults) >= MAX_FAULT_GROUPS:
            self._faults_left_out = True
            return
        group = group or FaultGroup(recorded, 0, 0)
        # Several ops of a line may fault in one launch, whose faults follow each other.
        place = (key, recorded.process)
        launches = int(self._last_launches.get(place, 0) != fault.launch_id)
        self._last_launches[place] = fault.launch_id
        self._faults[key] = FaultGroup(
            group.first, group.count + fault.count, group.launches + launches
        )


def _alive(process: int) -> bool:
    if process <= 0:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
