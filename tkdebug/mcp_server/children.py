"""Processes of tkdebug's commands: each in a group of its own, which ends when nobody waits."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
import anyio.abc

from tkdebug.errors import ErrorRecord, TkError, UsageError

# Reports tell a client how many seconds have passed.
Progress = Callable[[float, str], Awaitable[None]]
_MOST_OUTPUT = 64 << 20
_KEPT_OUTPUT = 256 << 10
_KEPT_ERRORS = 64 << 10
_GRACE_S = 2.0
_MOST_AT_ONCE = 4


class ChildError(TkError):
    """A command that ended by an error, with what it said."""

    def __init__(self, record: ErrorRecord) -> None:
        super().__init__(record.message)
        self.record = record


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended.

    Attributes:
        status: its exit status; -n where signal n ended it.
        out: its stdout.
        err: the end of its stderr.
    """

    words: tuple[str, ...]
    status: int
    out: bytes
    err: str

    def answer(self) -> Any:
        """Return the JSON that it printed.

        Raises:
            ChildError: it ended by an error, or printed none.
        """
        self.refuse_error()
        with contextlib.suppress(ValueError):
            return json.loads(self.out)
        last = self.err.strip().splitlines()[-1:]
        how = f"status {self.status}" if self.status >= 0 else f"signal {-self.status}"
        said = f": {last[0]}" if last else ", and said nothing"
        text = f"`{replay_of(self.words)}` ended with {how}{said}; `run` has what it printed"
        raise ChildError(ErrorRecord("script-ended", text, next="`run` has what it printed"))

    def refuse_error(self) -> None:
        """Raise the error that a failed command printed, if it did.

        Raises:
            ChildError: the command failed, and printed an error object.
        """
        record = error_in(self.err)
        if record is not None and self.status != 0:
            raise ChildError(record)


def error_in(err: str) -> ErrorRecord | None:
    """Return the error object at the end of a command's stderr, or None without one."""
    for line in err.strip().splitlines()[-1:]:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            parts = json.loads(line)["error"]
            return ErrorRecord(**parts)
    return None


def replay_of(words: Sequence[str]) -> str:
    """Return the command line that shows the same to a person."""
    kept = [word for word in words if word not in ("--errors=json", "--no-tui", "--no-rc")]
    return shlex.join(["tkdebug", *kept])


@dataclass
class Children:
    """Starts commands of tkdebug in the folder, and ends them.

    Attributes:
        root: the folder.
        command: returns the command line that starts tkdebug with some words.
        tasks: the tasks that read what they print.
    """

    root: Path
    command: Callable[..., list[str]]
    tasks: anyio.abc.TaskGroup
    _running: set[anyio.abc.Process] = field(default_factory=set)
    _room: anyio.CapacityLimiter = field(
        default_factory=lambda: anyio.CapacityLimiter(_MOST_AT_ONCE)
    )

    async def run(
        self, words: Sequence[str], progress: Progress, seconds: float, keeps_all: bool = True
    ) -> Finished:
        """Run a command to its end, or for some seconds; one that nobody waits for is killed.

        Args:
            words: the words of its command line.
            progress: called each second.
            seconds: how long it may take.
            keeps_all: whether its stdout is an answer; else the end of it is kept.

        Raises:
            UsageError: it took too long, or printed too much.
        """
        async with self._turn(words, progress), self._started(words, DEVNULL) as process:
            out, err = bytearray(), bytearray()
            assert process.stdout is not None
            assert process.stderr is not None
            with anyio.move_on_after(seconds) as limit:
                async with anyio.create_task_group() as tasks:
                    kept = _MOST_OUTPUT if keeps_all else _KEPT_OUTPUT
                    ends = anyio.Event(), anyio.Event()
                    tasks.start_soon(_collect, process.stdout, out, kept, ends[0])
                    tasks.start_soon(_collect, process.stderr, err, _KEPT_ERRORS, ends[1])
                    tasks.start_soon(tick, progress, replay_of(words))
                    await process.wait()
                    with anyio.move_on_after(_GRACE_S):  # what it started may keep pipes open
                        for end in ends:
                            await end.wait()
                    tasks.cancel_scope.cancel()
            if limit.cancelled_caught:
                raise UsageError(
                    f"`{replay_of(words)}` ran for {seconds:g} s and was stopped; give more by "
                    "`seconds`, or smaller inputs"
                )
            if keeps_all and len(out) >= _MOST_OUTPUT:
                raise UsageError(
                    f"`{replay_of(words)}` printed more than {_MOST_OUTPUT >> 20} MiB; ask for one "
                    "kernel or line"
                )
            status = process.returncode
            assert status is not None
            return Finished(tuple(words), status, bytes(out), err.decode(errors="replace"))

    async def start(self, words: Sequence[str]) -> Talk:
        """Start a command that reads requests from its stdin."""
        process = await self._open(words, PIPE)
        talk = Talk(process, tuple(words))
        assert process.stderr is not None
        self.tasks.start_soon(_collect, process.stderr, talk.err, _KEPT_ERRORS, talk.has_ended)
        return talk

    async def end(self, process: anyio.abc.Process) -> None:
        """End a process and its group, whatever is cancelled meanwhile."""
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                _signal_group(process, signal.SIGTERM)
                with anyio.move_on_after(_GRACE_S):
                    await process.wait()
            self.kill(process)
            await process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    await stream.aclose()
            self._running.discard(process)

    def kill(self, process: anyio.abc.Process) -> None:
        """Kill a process and what is left of its group."""
        _signal_group(process, getattr(signal, "SIGKILL", signal.SIGTERM))

    async def end_all(self) -> None:
        """End all running commands."""
        for process in [*self._running]:
            await self.end(process)

    def kill_all(self) -> None:
        """Kill all running commands at once, as the server is about to die."""
        for process in self._running:
            self.kill(process)

    @contextlib.asynccontextmanager
    async def _turn(self, words: Sequence[str], progress: Progress) -> AsyncIterator[None]:
        """Wait until another command may run, and report how long that takes."""
        is_held = False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tick, progress, f"{replay_of(words)} waits for other commands")
                await self._room.acquire()
                is_held = True
                tasks.cancel_scope.cancel()
            yield
        finally:
            if is_held:
                self._room.release()

    @contextlib.asynccontextmanager
    async def _started(self, words: Sequence[str], stdin: int) -> AsyncIterator[anyio.abc.Process]:
        process = await self._open(words, stdin)
        try:
            yield process
        finally:
            await self.end(process)

    async def _open(self, words: Sequence[str], stdin: int) -> anyio.abc.Process:
        # Shielded: a process that has started must be noted before anything is cancelled.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                self.command(*words),
                stdin=stdin,
                stdout=PIPE,
                stderr=PIPE,
                cwd=self.root,
                start_new_session=True,
            )
            self._running.add(process)
        return process


@dataclass
class Talk:
    """A running command: it reads requests from stdin, and answers on stdout, an object a line.

    Attributes:
        err: the end of its stderr.
        has_ended: set when its stderr has been read to the end.
    """

    process: anyio.abc.Process
    words: tuple[str, ...]
    err: bytearray = field(default_factory=bytearray)
    has_ended: anyio.Event = field(default_factory=anyio.Event)
    _buffer: bytearray = field(default_factory=bytearray)

    async def ask(self, line: str) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.process.stdin.send(line.encode() + b"\n")

    async def event(self) -> dict[str, Any] | None:
        """Return the next object with an `event`; None at the end of the output.

        Raises:
            UsageError: a line of it is too long.
        """
        assert self.process.stdout is not None
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = rest
                with contextlib.suppress(ValueError):  # printed by what the script started
                    record = json.loads(line)
                    if isinstance(record, dict) and "event" in record:
                        return record
                continue
            if len(self._buffer) > _MOST_OUTPUT:
                raise UsageError(f"an answer has more than {_MOST_OUTPUT >> 20} MiB; ask for less")
            try:
                self._buffer += await self.process.stdout.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return None


async def _collect(
    stream: anyio.abc.ByteReceiveStream, into: bytearray, kept: int, end: anyio.Event
) -> None:
    """Read a stream to its end, keep the last bytes of it, and set `end` then."""
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for piece in stream:
            into += piece
            del into[:-kept]
    end.set()


async def tick(progress: Progress, what: str) -> None:
    """Report each second how long something takes, until it is cancelled."""
    begun = anyio.current_time()
    while True:
        await anyio.sleep(1)
        seconds = anyio.current_time() - begun
        await progress(seconds, f"{what}: {seconds:.0f} s")


def _signal_group(process: anyio.abc.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        elif process.returncode is None:
            process.kill()
