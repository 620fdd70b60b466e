"""The candidate's process, seen from the command: its start, its answers, its end.

Invariant: nothing that it started is left when `verify` returns or raises. Imports no torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import IO, Any

from tkdebug.errors import UsageError
from tkdebug.verification.records import Answer, Case, Finding, Request

# By the clock a budget of processor time may take this many times as long, and some to stop.
# Imports take their time before.
_WALL = 3.0
_STOP_S = 1.0
_IMPORTS_S = 60.0
# A call that takes this part of the budget when the process is ended is named.
_LONG_SHARE = 0.25
_MOST_LINE = 64 << 20


def verify(request: Request) -> Answer:
    """Verify in a process of its own, and return the answer.

    Raises:
        UsageError: the reference or the example inputs are not there.
    """
    last: Answer | None = None
    at: tuple[Case, float] | None = None
    with _started(request) as (process, pipe):
        for record in _records(pipe, _WALL * request.seconds + _STOP_S):
            if "error" in record:
                raise UsageError(record["error"])
            if "ready" in record:
                continue
            try:
                if "at" in record:
                    at = Case.of_text(json.dumps(record["at"])), time.monotonic()
                else:
                    last = Answer.of_json(record["answer"])
                    if record.get("is_final"):
                        return last
            except (KeyError, TypeError, ValueError, UsageError):
                return _unreadable(request)
        process.poll()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        status = process.returncode
    return _ended_early(request, last, at, status)


def _unreadable(request: Request) -> Answer:
    """Return the answer about a process whose code wrote into the pipe of its answers."""
    answer = Answer.new(request)
    answer.why = "the kernel's process wrote a record that is none of tkdebug's"
    answer.judge()
    return answer


def _ended_early(
    request: Request, last: Answer | None, at: tuple[Case, float] | None, status: int | None
) -> Answer:
    """Return the answer of a process that was ended, or ended itself."""
    answer = last or Answer.new(request)
    limit = getattr(signal, "SIGXCPU", None)
    if status is not None and not (limit is not None and status == -limit):
        how = f"signal {-status}" if status < 0 else f"status {status}"
        answer.why = f"the kernel's process ended with {how}" + _during(at)
    elif at is None:
        answer.why = f"nothing was called within {request.seconds:g} s: imports, or the reference"
    elif time.monotonic() - at[1] > _LONG_SHARE * request.seconds:
        text = f"a call did not end within the budget of {request.seconds:g} s{_during(at)}"
        answer.findings.append(Finding("no-end", text, False, at[0], request.file))
        answer.why = text
    else:
        answer.covered.notes.append("the budget ended before the planned cases did")
    answer.judge()
    return answer


def _during(at: tuple[Case, float] | None) -> str:
    return "" if at is None else f", in the case: {at[0].name}"


@contextlib.contextmanager
def _started(request: Request) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    reads, writes = os.pipe()
    command = [
        *(sys.executable, "-m", "tkdebug.verification.worker"),
        *(json.dumps(asdict(request)), str(writes)),
    ]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=2,
            pass_fds=(writes,),
            start_new_session=True,
        )
    finally:
        os.close(writes)
    try:
        with os.fdopen(reads, "rb", buffering=0) as pipe:
            yield process, pipe
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _records(pipe: IO[bytes], seconds: float) -> Iterator[dict[str, Any]]:
    """Yield what the process writes until it ends, or some seconds after its first record."""
    left, end = b"", time.monotonic() + _IMPORTS_S
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while time.monotonic() < end:
            if not selector.select(timeout=min(0.5, max(end - time.monotonic(), 0.0))):
                continue
            piece = pipe.read(1 << 16)
            if not piece:
                return
            left += piece
            if len(left) > _MOST_LINE:
                return
            *lines, left = left.split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    record = json.loads(line)
                    if isinstance(record, dict):
                        if "ready" in record:
                            end = time.monotonic() + seconds
                        yield record
