"""The script's side of recording in a process of its own.

Responsible for starting that process, for handing events over, and for its answers. It has the
methods of `SessionWriter`, which records inside of the script's process. Invariants: nothing here
raises into the script; once the process is gone, one line says so and later events are dropped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tkdebug.instrument.cupti.layouts import RecordError
from tkdebug.instrument.recording_process.channel import (
    DESCRIPTOR_NUMBER,
    ChannelClosed,
    channel_pair,
)
from tkdebug.instrument.recording_process.packing import MAX_KEPT, EventEncoder, encoded_options
from tkdebug.instrument.recording_process.ring import RingWriter
from tkdebug.instrument.session_file.queued_events import (
    Event,
    LaunchStarted,
    MadeLineTable,
    Stamped,
)
from tkdebug.instrument.session_file.store import (
    LOCKED,
    line_table_text,
    process_rank,
    remedy,
)
from tkdebug.records.events import ArgumentInfo, KernelCompiled
from tkdebug.records.running_faults import SharedTables, ShownKernel
from tkdebug.terminal.text import tell

START_S = 20.0
# The time after which storing the last launches is reported.
QUIET_S = 2.0
DRAIN_S = 60.0
_POLL_S = 0.05
_WAS_KILLED = "the recording process was killed"
_AFTER_KILL = "dmesg says whether it was for want of memory"
_PROGRAM = (
    "import os, sys; os.fork() and os._exit(0); sys.path += {path}; "
    "from tkdebug.instrument.recording_process.process import main; main()"
)


class CannotStart(Exception):
    """There is no recording process; the message says why."""


class RecordingProcess:
    """A process that records the session at `path` for this one, from `begin` on.

    Raises:
        CannotStart: it cannot be started.

    Attributes:
        error: why recording stopped before `close`, None if it did not.
        ring: memory for launches.
        number: the process id of the recording process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.error: str | None = None
        self.owner = os.getpid()
        self._channel, theirs = channel_pair()
        self._descriptors, their_descriptors = socket.socketpair()
        self.number = 0
        self._acknowledged = 0
        self._asked = 0
        self._is_ready = False
        self._is_done = False
        self._has_told_lock = False
        self._closing = threading.RLock()
        self._numbers_shown = itertools.count(1)
        self._devices: set[int] = set()
        self._refusal: str | None = None
        self._arguments: dict[int, tuple[tuple[ArgumentInfo, ...], int]] = {}
        self._numbers = itertools.count(1)
        self.failed: Callable[[], None] | None = None
        self.names_at: Callable[[list[int]], Mapping[int, str]] | None = None
        try:
            self.ring = RingWriter(self._is_read)
            self._encoder = EventEncoder(os.getpid(), process_rank())
            with theirs, their_descriptors:
                self._start(theirs.fileno(), their_descriptors.fileno())
            self.ring.close_descriptor()
            self.ring.touch()  # while the process starts
        except (OSError, AttributeError, subprocess.SubprocessError) as error:
            self._close()
            raise CannotStart(str(error) or type(error).__name__) from error

    def begin(self) -> None:
        """Have the process open the session, which nobody else writes from here on.

        Raises:
            CannotStart: it cannot.
        """
        try:
            self._channel.send("begin")
            self._await_start()
        except OSError as error:
            self._close()
            raise CannotStart(str(error) or type(error).__name__) from error

    def _start(self, their_end: int, their_descriptors: int) -> None:
        # From the first moment on: a process that dies early is seen, and its number not another's.
        watched = os.pidfd_open(os.getpid())
        try:
            settings = {
                "path": str(self.path),
                "process": os.getpid(),
                "rank": process_rank(),
                "channel": their_end,
                "descriptors": their_descriptors,
                "ring": self.ring.descriptor,
                "watched": watched,
            }
            program = _PROGRAM.format(path=_import_path())
            # Isolated, so that no file of the script's folder is taken for a module.
            command = [sys.executable, "-I", "-S", "-c", program, json.dumps(settings)]
            # It forks at once and ends: a script that waits for its children must not find one.
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(their_end, their_descriptors, self.ring.descriptor, watched),
                start_new_session=True,
                cwd="/",
                timeout=START_S,
                check=True,
            )
        finally:
            os.close(watched)

    def _await_start(self) -> None:
        ends_s = time.monotonic() + START_S
        while not self._is_ready:
            self._take_answers(_POLL_S)
            if self.error is not None:
                raise OSError(self.error)
            if time.monotonic() > ends_s:
                raise OSError("it does not answer")

    def put(self, event: Event) -> None:
        """Hand an event over."""
        if isinstance(event, LaunchStarted):
            self._put_started(event)
            return
        encoded = self._encoder.encoded(event)
        if encoded is None:
            return
        self.send("event", encoded)
        kernel = event.event if isinstance(event, Stamped) else None
        if isinstance(kernel, KernelCompiled) and kernel.line_table is not None:
            # Only this process has what a line table is made from.
            self.send("event", MadeLineTable(kernel.hash, line_table_text(kernel.line_table)))

    def _put_started(self, event: LaunchStarted) -> None:
        """Send the start of a launch that is an event: interpreted, or in no slot."""
        arguments, number = self._arguments.get(id(event.arguments), (None, 0))
        if arguments is not event.arguments:
            # The tuple is kept, so that no other one gets its id.
            if len(self._arguments) >= MAX_KEPT:
                self._arguments.clear()
                self.send("forget arguments")
            number = next(self._numbers)
            self._arguments[id(event.arguments)] = (event.arguments, number)
            self.send("arguments", number, event.arguments)
        options = encoded_options(event.options)
        self.send("started", *event._replace(options=options, arguments=number))  # type: ignore[arg-type]

    def send(self, *message: Any) -> None:
        """Send a message; one to a process that is gone is dropped."""
        if self.error is not None or self._is_done:
            return
        try:
            self._channel.send(*message)
        except ChannelClosed:
            self._take_answers()

    def show_memory(self, descriptor: int) -> None:
        """Let the process read memory, by its descriptor."""
        self._show(descriptor, "memory")

    def show_checked(self, one: SharedTables | ShownKernel) -> None:
        """Let the process see what checked kernels find while they run."""
        if isinstance(one, ShownKernel):
            self.send("checked", one)
        else:
            self._show(one.descriptor, "tables", one.stride_bytes)

    def _show(self, descriptor: int, *message: Any) -> None:
        """Hand a descriptor over, and the message that describes it."""
        if self.error is not None or self._is_done:
            return
        # A signal handler may run between the two sends, and show memory, too.
        number = next(self._numbers_shown)
        try:
            socket.send_fds(self._descriptors, [DESCRIPTOR_NUMBER.pack(number)], [descriptor])
        except OSError as error:
            self._take_answers()  # where it was killed, that says so
            self._fail(str(error))
        kind, *rest = message
        self.send(kind, number, *rest)

    def flush(self, timeout_s: float = 60.0) -> None:
        """Wait until all events so far are in the file; hardly at all while it is locked."""
        if self.error is not None or self._is_done:
            return
        self._asked += 1
        asked = self._asked
        self.send("flush", asked)
        self._await(lambda: self._acknowledged >= asked, timeout_s)

    def close(self) -> None:
        """Wait until everything is in the file, at most a minute, and let the process end."""
        with self._closing:
            if self._is_done or self.error is not None:
                return
            self.send("end")
            if not self._await(lambda: self._is_done, QUIET_S):
                tell(f"{self.path}: the recording process stores the last launches")
            if not self._await(lambda: self._is_done, DRAIN_S):
                tell(
                    f"{self.path}: the recording process is still storing; the session is complete "
                    f"when process {self.number} has ended"
                )
            self._is_done = True
            self._close()

    def leave(self) -> None:
        """Close the channel: in a forked child, or before `begin`, which ends the process."""
        self._is_done = True
        self._close()

    def _close(self) -> None:
        self._channel.close()
        self._descriptors.close()

    def take_answers(self) -> set[int]:
        """Answer the process's questions, and return the devices that ran something.

        Raises:
            RecordError: CUPTI's records were not of the expected layout.
        """
        self._take_answers()
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise RecordError(refusal)
        devices, self._devices = self._devices, set()
        return devices

    def _is_read(self) -> bool:
        self._take_answers()
        return self.error is None and not self._is_done

    def _await(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        ends_s = time.monotonic() + timeout_s
        while not is_done() and self.error is None and time.monotonic() < ends_s:
            self._take_answers(_POLL_S)
        return is_done() or self.error is not None

    def _take_answers(self, wait_s: float = 0.0) -> None:
        if self._is_done or self.error is not None:
            return
        try:
            for kind, *parts in self._channel.receive(wait_s):
                self._answer(kind, *parts)
        except ChannelClosed:
            if not self._is_done:
                self._fail(_WAS_KILLED)

    def _answer(self, kind: str, *parts: Any) -> None:
        if kind == "ready":
            self._is_ready = True
            (self.number,) = parts
        elif kind == "stored":
            self._acknowledged = max(self._acknowledged, parts[0])
        elif kind == "devices":
            self._devices |= parts[0]
        elif kind == "names":
            if self.names_at is not None:
                self.send("names", dict(self.names_at(parts[0])))
        elif kind == "refused":
            (self._refusal,) = parts
        elif kind == "locked":
            self._acknowledged = max(self._acknowledged, parts[0])
            if not self._has_told_lock:
                self._has_told_lock = True
                tell(f"{self.path}: {LOCKED}; what is recorded waits in memory")
        elif kind == "failed":
            self._fail(parts[0])
        else:
            assert kind == "done", kind
            self._is_done = True

    def _fail(self, reason: str) -> None:
        if self.error is not None:
            return
        self.error = reason
        if self.failed is not None:
            self.failed()
        if self._is_ready:
            then = _AFTER_KILL if reason == _WAS_KILLED else remedy(reason)
            tell(f"{self.path}: recording stopped: {reason}; {then}")
        with contextlib.suppress(OSError):
            self._close()


def _import_path() -> list[str]:
    """Return the folders that tkdebug and numpy are imported from."""
    places = [Path(__file__).parents[3]]
    numpy = importlib.util.find_spec("numpy")
    if numpy is not None and numpy.origin is not None:
        places.append(Path(numpy.origin).parents[1])
    return [str(place) for place in places]
