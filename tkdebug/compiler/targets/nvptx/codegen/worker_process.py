"""Starting, asking and ending code generation workers.

Responsible for the processes: lazily started, one request at a time each, a few side by side when
several threads compile, killed at exit. The requests are the callers'. Invariants: a worker that
died, hung or was interrupted in the middle of a request is never asked again; a forked child starts
workers of its own.
"""

from __future__ import annotations

import atexit
import math
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import tkdebug
from tkdebug.compiler.targets.nvptx.codegen import wire
from tkdebug.errors import TkError

MODULE = "tkdebug.compiler.targets.nvptx.codegen.worker"
_STDERR_TAIL_BYTES = 16 << 10
_STOP_SEEN_WITHIN_S = 0.05
# Requests made while this is set, which another thread may do, are given up with `Stopped`.
STOP: ContextVar[threading.Event | None] = ContextVar("tkdebug_stop_codegen", default=None)
# `-I` keeps the script's folder, PYTHON* variables and sitecustomize away from the worker; what it
# needs of our path is appended, so nothing of the script's can stand before the standard library.
_BOOTSTRAP = (
    "import sys, runpy\n"
    "root, *rest = sys.argv[1:]\n"
    "if root not in sys.path: sys.path.insert(0, root)\n"
    "sys.path += [p for p in rest if p not in sys.path]\n"
    f"runpy.run_module({MODULE!r}, run_name='__main__', alter_sys=True)\n"
)


class WorkerDied(Exception):
    """The worker ended, or was ended, in the middle of a request.

    Args:
        stage: the last stage that it reported.
        how: "signal 6 (SIGABRT)", "exit status 1", "no answer in 300 s".
        stderr: the end of its standard error.
    """

    def __init__(self, stage: str, how: str, stderr: str) -> None:
        self.stage = stage
        self.how = how
        self.stderr = stderr
        super().__init__(f"{stage}: {how}")


class Stopped(Exception):
    """The caller has stopped waiting for an answer (`STOP`)."""


class WorkerProcess:
    """One worker; not for use by two threads at once."""

    def __init__(self) -> None:
        if not sys.executable:
            raise TkError("native mode: this Python has no sys.executable to start a worker with")
        root = str(Path(tkdebug.__file__).resolve().parents[1])
        paths = [path for path in sys.path if path and os.path.isabs(path)]
        self._stderr = tempfile.TemporaryFile(mode="w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOTSTRAP, root, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            cwd=os.sep if os.name == "posix" else None,
        )
        self._stage = "start"

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def ask(
        self, header: Mapping[str, object], body: bytes, timeout_s: float
    ) -> tuple[wire.Header, bytes]:
        """The answer to one request; its status is "ok" or "error".

        Raises:
            WorkerDied: there is no answer, and this worker is gone.
            Stopped: the answer is no longer wanted, and this worker is gone.
        """
        deadline = time.monotonic() + timeout_s
        try:
            self._write(wire.pack(header, body))
            while True:
                answer, blob = wire.read(lambda count: self._read(count, deadline))
                if answer.get("status") != "stage":
                    return answer, blob
                self._stage = str(answer.get("stage"))
        except _TimedOut:
            self.kill()
            raise WorkerDied(self._stage, f"no answer in {timeout_s:g} s", "") from None
        except (EOFError, OSError):
            raise self._obituary() from None
        except BaseException:  # also Ctrl-C: half an answer is in the pipe, so it is of no more use
            self.kill()
            raise

    def kill(self) -> None:
        """End the worker now; twice is fine."""
        self._process.kill()
        self._process.wait()
        self.abandon()

    def abandon(self) -> None:
        """Close our ends; a worker that belongs to another process lives on."""
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def alive(self) -> bool:
        """Whether the worker still runs."""
        return self._process.poll() is None

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[os.write(self._process.stdin.fileno(), view) :]

    def _read(self, count: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        parts = []
        while count:
            _wait_readable(handle, deadline)
            part = os.read(handle, min(count, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _obituary(self) -> WorkerDied:
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
        text = self._stderr.read().decode(errors="replace")
        self.abandon()
        return WorkerDied(self._stage, _how(status), text)


class _TimedOut(Exception):
    pass


def _wait_readable(handle: int, deadline: float) -> None:
    poll = getattr(select, "poll", None)
    if poll is None:  # Windows, whose pipes cannot be waited for: the read itself waits
        return
    waiter = poll()
    waiter.register(handle, select.POLLIN)
    longest_s = math.inf if STOP.get() is None else _STOP_SEEN_WITHIN_S
    while True:
        _give_up_if_stopped()
        left_s = max(0.0, deadline - time.monotonic())
        if waiter.poll(min(left_s, longest_s) * 1000):
            return
        if left_s <= longest_s:
            raise _TimedOut


def _give_up_if_stopped() -> None:
    stop = STOP.get()
    if stop is not None and stop.is_set():
        raise Stopped


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    import signal

    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


class WorkerPool:
    """The workers of this process: at most `size` at work, each reused."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._free_slots = threading.BoundedSemaphore(self.size)
        self._idle: list[WorkerProcess] = []
        self._all: list[WorkerProcess] = []

    def after_fork_in_child(self) -> None:
        """Forget the parent's workers: their pipes carry its answers."""
        inherited = self._all
        self._reset()
        for worker in inherited:
            worker.abandon()

    @contextmanager
    def borrow(self) -> Iterator[WorkerProcess]:
        """Lend a worker to a `with` block, and keep it for the next one if it still lives."""
        with self._free_slots:
            _give_up_if_stopped()
            worker = self._take()
            try:
                yield worker
            finally:
                self._give_back(worker)

    def start_one(self) -> None:
        """Start a worker if none is idle, without waiting until it is ready."""
        with self._free_slots:
            self._give_back(self._take())

    def close(self) -> None:
        """Kill all workers."""
        with self._lock:
            workers, self._all, self._idle = self._all, [], []
        for worker in workers:
            worker.kill()

    def _take(self) -> WorkerProcess:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive():
                    return worker
                self._all.remove(worker)
                worker.abandon()
        worker = WorkerProcess()
        with self._lock:
            self._all.append(worker)
        return worker

    def _give_back(self, worker: WorkerProcess) -> None:
        with self._lock:
            if worker not in self._all:
                return
            if worker.alive():
                self._idle.append(worker)
            else:
                self._all.remove(worker)


POOL = WorkerPool(size=max(1, min(8, os.cpu_count() or 1)))
atexit.register(POOL.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.after_fork_in_child)
