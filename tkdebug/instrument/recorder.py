"""The recorder: one subscriber of the hook chain, which writes a run into a session file.

Responsible for what is recorded of events; it holds on to no argument, tensor or kernel once a
callback has returned. `session_file` stores.

`EventSink` receives the events. It starts with a thread of this process, which costs a short run
nothing. Once CUDA is in use, or many events have come, a recording process takes over, as Python
code in a thread beside the script holds the script up; events in the thread are stored first. After
a fork the child starts again with a thread of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, TextIO, cast

from tkdebug.errors import SessionError
from tkdebug.instrument.recording.device_times import DeviceTimes, StoredTime
from tkdebug.instrument.recording.gpu_recording import GpuRecording
from tkdebug.instrument.recording_process.packing import LaunchPacker
from tkdebug.instrument.recording_process.ring import TIMED
from tkdebug.instrument.records import Output, ScopeSpan
from tkdebug.instrument.session_file.creation import RunStart, create_session, file_behind
from tkdebug.instrument.session_file.lock import SessionLock
from tkdebug.instrument.session_file.queued_events import (
    Event,
    LaunchEnded,
    LaunchStarted,
    RunEnded,
    Stamped,
)
from tkdebug.instrument.session_file.tables import BUSY_TIMEOUT_S
from tkdebug.instrument.session_file.writer import SessionWriter, flush_at_process_exit
from tkdebug.knobs import KNOBS
from tkdebug.process.forks import follow_forks
from tkdebug.records.events import Fault, KernelCompiled, KernelLaunch, LaunchRecord
from tkdebug.records.hook_chain import HOOKS, ActivityBuffers, Hook, PackableKernel
from tkdebug.records.running_faults import SHOWN, SharedTables, ShownKernel
from tkdebug.records.scopes import SCOPES, Metrics, Scope
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.instrument.cupti.activity_join import Measured
    from tkdebug.instrument.recording_process.client import RecordingProcess

MOVED_AFTER = 2000  # events
SESSION_VARIABLE = "TKDEBUG_SESSION"
FAULT_WAIT_S = 5.0
_STUCK_S = 0.5

Grid = tuple[int, int, int]


class EventSink:
    """Takes the events of one recorder.

    Args:
        path: the session.
        is_child: whether another process may end this one at any time.
        left: called in a forked child, and where recording has stopped.

    Attributes:
        put: takes an event, from any thread.
        process: the recording process, None if there is none.
    """

    def __init__(self, path: Path, is_child: bool, left: Callable[[], None]) -> None:
        self._path = path
        self._left = left
        self._is_child = is_child
        self._writer = SessionWriter(path, is_child=is_child)
        self._moving = threading.RLock()
        self._is_closed = False
        self._begin_here()
        follow_forks(after_in_child=self.after_fork_in_child)

    def _begin_here(self) -> None:
        self.process: RecordingProcess | None = None
        # A recording process that was started and is not needed yet.
        self._prepared: RecordingProcess | None = None
        self.put: Callable[[Event], None] = self._put_here
        self._may_move = KNOBS.recording_process and hasattr(os, "memfd_create")
        self._count = itertools.count(1)

    @property
    def error(self) -> str | None:
        """The reason why recording stopped before `close`; None if it did not."""
        return self._writer.error or (self.process.error if self.process is not None else None)

    def _put_here(self, event: Event) -> None:
        self._writer.put(event)
        if self._may_move and next(self._count) >= MOVED_AFTER and not self._writer.is_locked:
            self.move()

    def prepare(self) -> None:
        """Start a recording process that takes over later, while the script starts."""
        from tkdebug.instrument.recording_process.client import CannotStart, RecordingProcess

        # `move` tries again, and reports what is wrong.
        with contextlib.suppress(CannotStart):
            self._prepared = RecordingProcess(self._path) if self._may_move else None

    def move(self) -> RecordingProcess | None:
        """Let a recording process take over, and return it; None if there can be none."""
        with self._moving:
            if not self._may_move or self._is_closed or self._writer.error is not None:
                return self.process
            # Before all else, as a signal handler may call this, too.
            self._may_move = False
            # If events cannot be stored here, the other process could not store them either.
            self._writer.rest()
            if self._writer.error is not None:
                return None
            if self._writer.is_locked:
                self._may_move = True  # the events that wait here have to be stored first
                return None
            # Most runs without a GPU end before they need it.
            from tkdebug.instrument.recording_process.client import CannotStart, RecordingProcess

            try:
                process = self._prepared or RecordingProcess(self._path)
                self._prepared = None
                process.begin()
            except CannotStart as error:
                tell(
                    f"{self._path}: no recording process ({error}); launches are recorded in this "
                    "one, which takes the script more time"
                )
                return None
            process.failed = self._left
            self.process = process
            if self._is_child:
                flush_at_process_exit(self)
            self.put = process.put
        self._writer.rest()
        return process

    def flush(self, timeout_s: float = 60.0) -> None:
        """Wait until all events so far are in the file."""
        self._writer.flush(timeout_s)
        if self.process is not None:
            self.process.flush(timeout_s)

    def close(self) -> None:
        """Store what came; later events are dropped."""
        self._is_closed = True
        self._leave_prepared()
        self._writer.close()
        if self.process is not None:
            self.process.close()

    def _leave_prepared(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.leave()

    def after_fork_in_child(self) -> None:
        """Forget the recording process, which is the parent's."""
        self._moving = threading.RLock()
        self._leave_prepared()
        self._is_child = True
        if self.process is not None:
            self.process.leave()
            self._left()
        self._begin_here()


class Recorder:
    """Records launches, kernels, faults and output of this process from `start` to `stop`.

    Args:
        path: the session file; created by `start`, replacing an older session of that name.
        script: the name of the run; the running program by default.
        argv: its arguments; this process's by default.
        mode: how kernels run, as shown in reports until the first launch.
        join: add to the session that another process created instead of creating one.
        output: also record what goes through `sys.stdout` and `sys.stderr`.
        stacks: record which line launched others' kernels; `note_operation` has to be called.
        stalls: sample where warps of native kernels wait, by CUPTI.
        expects_gpu: have the recording process, which takes over when CUDA is first used, start
            with the recorder, so that the script does not wait for it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        script: str | None = None,
        argv: tuple[str, ...] | None = None,
        mode: str = "interpret",
        join: bool = False,
        output: bool = True,
        stacks: bool = False,
        stalls: bool = False,
        expects_gpu: bool = False,
    ) -> None:
        self.path = file_behind(Path(path))
        self._start_info = RunStart(
            script=sys.argv[0] if script is None else script,
            argv=tuple(sys.argv[1:]) if argv is None else argv,
            mode=mode,
        )
        self._join = join
        self._output = output
        self._expects_gpu = expects_gpu
        self._sink: EventSink | None = None
        self._packer: LaunchPacker | None = None
        self._follower: Callable[[SharedTables | ShownKernel], None] | None = None
        self._tees: tuple[OutputTee, ...] = ()
        self._owner = 0
        self._hook = Hook(
            enter=self._on_enter,
            exit=self._on_exit,
            compiled=self._on_compiled,
            autotuned=self._on_record,
            fault=self._on_fault,
            progress=self._on_record,
            record=self._on_record,
            device=self._gpu_used,
            profiler=self._profiler_took,
            timed=True,
        )
        self._gpu = GpuRecording(
            self._on_measured,
            self._on_record,
            self._on_switched,
            has_origins=stacks,
            has_stalls=stalls,
        )
        self._device_times: DeviceTimes | None = None
        self._stored_places: set[tuple[object, ...]] = set()
        self._scope_metrics: dict[int, dict[str, object]] = {}

    @property
    def error(self) -> str | None:
        """The reason why recording stopped before `stop`; None if it did not."""
        return self._sink.error if self._sink is not None else None

    def start(self) -> Recorder:
        """Create or join the session and subscribe.

        Raises:
            SessionError: the session cannot be created, or to join one that is not there.
        """
        if self._sink is not None:
            raise SessionError(f"{self.path}: this recorder was started before; make a new one")
        self._lock = self._locked()
        self._sink = EventSink(self.path, self._join, self._unpack)
        if self._expects_gpu:
            self._sink.prepare()
        self._owner = os.getpid()
        HOOKS.add(self._hook)
        SCOPES.watch(self)
        if self._output:
            self._tees = (
                OutputTee(sys.stdout, "stdout", self._on_output),
                OutputTee(sys.stderr, "stderr", self._on_output),
            )
            for tee in self._tees:
                tee.start()
        atexit.register(self.stop)
        return self

    def _locked(self) -> SessionLock:
        if not self._join:
            return create_session(self.path, self._start_info)
        if not self.path.is_file():
            raise SessionError(f"{self.path}: no session to join; start one there first")
        lock = SessionLock(self.path)
        if not lock.share(BUSY_TIMEOUT_S):
            raise lock.in_use()
        return lock

    def stop(self, exit_status: int | None = None, *, is_gpu_stuck: bool = False) -> None:
        """Unsubscribe and store everything; a second call is a no-op.

        Args:
            exit_status: the exit status of the script; None if it is not known.
            is_gpu_stuck: whether the GPU runs work that never ends: then nothing waits for it.
        """
        if self._sink is None:
            return
        atexit.unregister(self.stop)
        for tee in reversed(self._tees):
            tee.stop()
        self._tees = ()
        HOOKS.remove(self._hook)
        HOOKS.pack_natively(self._hook, None)
        if self._follower is not None:
            SHOWN.unfollow(self._follower)
        SCOPES.unwatch(self)
        self._stop_times(is_gpu_stuck)
        # A forked child that comes here, or one that joined, does not end the run.
        if not self._join and os.getpid() == self._owner:
            self._put(RunEnded(exit_status, time.time_ns()))
        self._sink.close()
        self._lock.release()

    def _stop_times(self, is_gpu_stuck: bool) -> None:
        if is_gpu_stuck:
            self._gpu.abandon(_STUCK_S)
            if self._device_times is not None:
                self._device_times.abandon()
            return
        self._gpu.stop()
        if self._device_times is not None:
            self._device_times.stop()

    def take_ended(self, limit_s: float) -> None:
        """Store the records of work that has ended on the GPU, without waiting for running work."""
        self._gpu.take_ended(limit_s)
        if self._sink is not None:
            # The first answer may be a question, for the names of kernels.
            for _ in range(2):
                self._sink.flush(limit_s)

    def flush(self) -> None:
        """Wait until all events so far are in the file."""
        if self._sink is not None:
            self._sink.flush()

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(0 if error is None else 1)

    def note_operation(self, start_ns: int, end_ns: int, code: CodeType, line: int) -> None:
        """Note that an operation of torch's, called at that line, has ended."""
        packer = self._packer
        if packer is not None:
            packer.note_operation(start_ns, end_ns, code, line)

    def _put(self, event: Event) -> None:
        assert self._sink is not None
        self._sink.put(event)

    def _gpu_used(self, make_buffers: Callable[[], ActivityBuffers]) -> None:
        assert self._sink is not None
        process = self._sink.move()
        if process is not None:
            self._packer = LaunchPacker(
                process.ring, process.send, self._odd, self, self._gpu.flags, self._time_of
            )
            HOOKS.pack_natively(self._hook, self._packer)
            SHOWN.follow(process.show_checked)
            self._follower = process.show_checked
        self._gpu.start(make_buffers, process, HOOKS.profiler_has_cupti)

    def _unpack(self) -> None:
        """Stop packing: the recording process that read packed launches is gone."""
        self._packer = None
        HOOKS.pack_natively(self._hook, None)

    def _profiler_took(self, is_taken: bool) -> None:
        self._gpu.share(is_taken)

    def _on_switched(self, by_cupti: bool) -> None:
        """Note that CUPTI times launches from now on, or that CUDA events do."""
        HOOKS.time_natively(self._hook, not by_cupti)

    def _on_enter(self, kernel: object, record: LaunchRecord) -> None:
        if record.mode == "native":
            if self._packer is not None:
                # A packed launch is noted at its end.
                if self._gpu.is_on:
                    record.device_ns = self._time_of(record.id)
                return
            if self._gpu.is_on:
                record.device_ns = self._gpu.enter(record.id)
        self._put(_started(record, SCOPES.path(self)))

    def _on_exit(self, kernel: object, record: LaunchRecord) -> None:
        packer = self._packer
        if packer is not None and record.mode == "native":
            is_timed = self._pack(packer, kernel, record)
        else:
            is_timed = self._gpu.exit(record)
        if record.mode != "native" or record.error is not None:
            self._put(LaunchEnded(record.id, record.duration_ns, record.error, "host"))
        elif is_timed:
            pass
        elif record.device_ns is None:
            # It was made part of a CUDA graph: nothing ran.
            self._put(LaunchEnded(record.id, None, None, "none"))
        else:
            # A native launch lasts until the device is done with it.
            if self._device_times is None:
                self._device_times = DeviceTimes(self._on_settled)
            self._device_times.add(record.id, record.device_ns)

    def _pack(self, packer: LaunchPacker, kernel: object, record: LaunchRecord) -> bool:
        """Pack a launch that has a record; return whether CUPTI times it."""
        flags = self._gpu.flags[0]
        if record.error is not None:
            self._put(_started(record, SCOPES.path(self)))
        elif isinstance(record, KernelLaunch):
            packer.note_of(cast("PackableKernel", kernel))(
                record.id, *record.grid, record.stream, record.start_ns, *record.values
            )
        else:
            self._put(_started(record, SCOPES.path(self)))
            self._tell_made(record.id, record.start_ns, time.time_ns(), record.grid)
        return bool(flags & TIMED)

    def _odd(
        self,
        kernel: PackableKernel,
        launch: int,
        grid: Grid,
        stream: int,
        start_ns: int,
        end_ns: int,
        values: tuple[object, ...],
    ) -> None:
        """Record a launch that no slot can hold."""
        record = kernel.launch_record(launch, grid, stream, values, start_ns)
        self._put(_started(record, SCOPES.path(self)))
        self._tell_made(launch, start_ns, end_ns, grid)

    def _tell_made(self, launch: int, start_ns: int, end_ns: int, grid: Grid) -> None:
        is_timed = self._gpu.flags[0] & TIMED
        if is_timed and self._sink is not None and self._sink.process is not None:
            self._sink.process.send(
                "made", (launch, threading.get_native_id(), start_ns, end_ns, grid)
            )

    def _time_of(self, launch: int) -> StoredTime:
        return StoredTime(self.path, launch, self._settle)

    def _settle(self) -> None:
        """Store all times of launches that can be known."""
        self._gpu.wait()
        self.flush()

    def _on_settled(
        self, launch: int, duration_ns: int | None, error: str | None, source: str
    ) -> None:
        process = self._sink.process if self._packer is not None and self._sink else None
        if process is not None and duration_ns is not None and error is None:
            if process.ring.put_end(launch, duration_ns, source):
                return
        self._put(LaunchEnded(launch, duration_ns, error, source))

    def _on_measured(self, measured: Measured) -> None:
        launch, duration_ns, *place = measured
        source = "none" if duration_ns is None else "cupti"
        self._put(LaunchEnded(launch, duration_ns, None, source, *place))

    def _on_compiled(self, event: KernelCompiled) -> None:
        self._on_record(event)
        self._gpu.compiled(event)

    def _on_record(self, event: object) -> None:
        self._put(Stamped(event, time.time_ns()))

    def _on_fault(self, event: Fault) -> None:
        self._on_record(event)
        place = (os.getpid(), event.kind, event.frames, event.tensor)
        if self._sink is not None and place not in self._stored_places:
            # A worker process may be ended by its parent as soon as the launch returns.
            self._stored_places.add(place)
            self._sink.flush(FAULT_WAIT_S)

    def entered(self, scope: Scope, metrics: Metrics) -> None:
        """Note that a scope of the script's began."""
        self._scope_metrics[scope.id] = {}
        self.measured(scope, metrics)

    def measured(self, scope: Scope, metrics: Metrics) -> None:
        """Note metrics that the script measured of a scope."""
        # Reading a tensor would wait for the device.
        plain = {str(name): v for name, v in metrics.items() if not hasattr(v, "data_ptr")}
        self._scope_metrics.setdefault(scope.id, {}).update(plain)

    def exited(self, scope: Scope) -> None:
        """Record a scope that has ended."""
        parent = None if scope.parent is None else scope.parent.id
        metrics = self._scope_metrics.pop(scope.id, {})
        ends = (scope.start_ns, time.time_ns())
        self._on_record(ScopeSpan(scope.id, parent, scope.thread, scope.name, metrics, *ends))

    def _on_output(self, stream: str, text: str) -> None:
        self._on_record(Output(stream, text))


def _started(record: LaunchRecord, scopes: tuple[str, ...]) -> LaunchStarted:
    return LaunchStarted(
        record.id,
        record.kernel,
        record.kernel_hash,
        record.mode,
        record.grid,
        dict(record.options),
        record.arguments,
        record.stream,
        record.start_ns,
        scopes,
    )


def join_from_environment() -> Recorder | None:
    """Join the session that a parent process named in `TKDEBUG_SESSION`; None if it named none.

    A session that cannot be joined is reported on stderr; the child runs on unrecorded.
    """
    path = os.environ.get(SESSION_VARIABLE)
    if not path:
        return None
    # The parent prints output that is piped to it, and it is recorded then.
    to_terminal = sys.stdout is not None and sys.stdout.isatty()
    try:
        return Recorder(path, join=True, output=to_terminal).start()
    except SessionError as error:
        tell(str(error))
        return None


RecordOutput = Callable[[str, str], None]


class OutputTee:
    """Records every `write` to `stream` under `name` between `start` and `stop`.

    The stream object stays the same one, with its `buffer`, `isatty` and `fileno`; only its `write`
    is covered by one that also records. Output that bypasses it (to `buffer`, to the file
    descriptor, by other processes) is not recorded.
    """

    def __init__(self, stream: TextIO | None, name: str, record: RecordOutput) -> None:
        self._stream = stream
        self._name = name
        self._record = record
        self._covered = False

    def start(self) -> None:
        """Cover the stream's `write`; a stream that lets no attribute be set is not recorded."""
        if self._stream is None:
            return
        write = self._stream.write

        def write_and_record(text: str) -> int:
            written = write(text)
            self._record(self._name, text)
            return written

        try:
            vars(self._stream)["write"] = write_and_record
        except TypeError:
            return
        self._covered = True

    def stop(self) -> None:
        """Uncover the stream's `write`."""
        if self._covered and self._stream is not None:
            vars(self._stream).pop("write", None)
            self._covered = False
