"""Faults on stderr when they happen: each in full the first time it comes up, then only counted.

Responsible for what is printed while a script runs; the summary at its end is its caller's. Compile
errors are left out: whoever compiles gets them as exceptions. Invariant: of the processes of a run
one tells a fault, and a process tells nothing where the user would not see it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tkdebug.events import HOOKS, Fault, Hook
from tkdebug.fault_text import counted_line, describe
from tkdebug.terminal_style import style_of
from tkdebug.terminal_text import tell

# Names the folder of `ToldFaults` for child processes, and the file that stderr is.
VARIABLE = "TKDEBUG_TOLD_FAULTS"
MAX_TOLD = 50


@dataclass(slots=True)
class _Count:
    """One fault: its first occurrence, and how often it came up since."""

    fault: Fault
    count: int = 0
    launches: int = 0


class FaultTeller:
    """A subscriber that tells faults when they come up.

    Args:
        claims: whether this process is to tell a fault that it has not told; asked once for each.
        end: what is told instead of further faults once there were `MAX_TOLD`.
    """

    def __init__(
        self,
        claims: Callable[[Fault], bool] = lambda fault: sys.stderr is not None,
        end: str = "further faults are not told here; `tkdebug run` has all",
    ) -> None:
        self._claims = claims
        self._end = end
        self._told = 0
        self._counts: dict[tuple[object, ...], _Count] = {}
        # Worker threads of a script launch, too.
        self._lock = threading.Lock()
        self._owner = self._process = os.getpid()

    def on_fault(self, fault: Fault) -> None:
        """Count `fault`, and tell it if it is new; one that does not count is passed over."""
        if fault.kind == "compile-error" or not fault.is_open:
            return
        place = (fault.kind, fault.kernel, fault.frames, fault.tensor)
        if os.getpid() != self._process:
            # Forked: a thread that is not here may have held the lock.
            self._lock, self._process = threading.Lock(), os.getpid()
        with self._lock:
            known = self._counts.setdefault(place, _Count(fault))
            is_new = known.launches == 0
            known.count += fault.count
            known.launches += 1
            if not is_new or self._told > MAX_TOLD:
                return
            if self._told == MAX_TOLD:
                self._told += 1
                tell(self._end)
                return
            if not self._claims(fault):
                return
            self._told += 1
        tell(describe(fault, style_of(sys.stderr)), styled=True)

    def reset(self) -> None:
        """Forget what was told and counted, so that it is told again."""
        with self._lock:
            self._counts.clear()
            self._told = 0

    def tell_counts(self) -> None:
        """Tell each fault in a line with its counts, unless there was but one, once.

        A forked child tells nothing: what it counts began with its parent's counts.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            counts = list(self._counts.values())
        if sum(known.launches for known in counts) < 2:
            return
        style = style_of(sys.stderr)
        for known in counts[:MAX_TOLD]:
            tell(counted_line(known.fault, known.count, known.launches, style), styled=True)


class ToldFaults:
    """Which faults the processes of a run have told: an empty file for each, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def claim(self, fault: Fault) -> bool:
        """Whether nobody has told `fault`; from now on it counts as told."""
        try:
            os.close(os.open(self._file(fault), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError:
            return False  # told, or the run has ended and its folder has gone
        return True

    def __contains__(self, fault: Fault) -> bool:
        return self._file(fault).exists()

    def _file(self, fault: Fault) -> Path:
        frames = [(frame.file, frame.line, frame.function) for frame in fault.frames]
        place = json.dumps([fault.kind, fault.kernel, frames, fault.tensor])
        return self.folder / hashlib.sha256(place.encode()).hexdigest()


@contextlib.contextmanager
def telling() -> Iterator[ToldFaults]:
    """Tell faults of this process and of those that it starts while the block lasts.

    What it gives can be asked for them until the block ends.
    """
    owner, stream, file = os.getpid(), sys.stderr, _stderr_file()
    folder = tempfile.mkdtemp(prefix="tkdebug-told-")
    told = ToldFaults(Path(folder))

    def claims(fault: Fault) -> bool:
        # Forked children come here, too. A script may have led its stderr elsewhere.
        is_seen = file is not None and _stderr_file() == file
        if os.getpid() == owner and sys.stderr is stream and stream is not None:
            is_seen = True
        return is_seen and told.claim(fault)

    teller = FaultTeller(claims, "further faults are told at the end")
    hook = Hook(fault=teller.on_fault)
    os.environ[VARIABLE] = f"{file or ''}:{folder}"
    HOOKS.add(hook)
    try:
        yield told
    finally:
        HOOKS.remove(hook)
        os.environ.pop(VARIABLE, None)
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def tell_from_environment() -> None:
    """Tell faults in this process, a child of one that is `telling`, where stderr is the same."""
    file, _, folder = os.environ.get(VARIABLE, "").partition(":")
    if not file or not folder:
        return
    told = ToldFaults(Path(folder))
    teller = FaultTeller(
        lambda fault: _stderr_file() == file and told.claim(fault),
        "further faults are told at the end",
    )
    HOOKS.add(Hook(fault=teller.on_fault))


def _stderr_file() -> str | None:
    """Which file stderr is; None for one that is none of the system's."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError, io.UnsupportedOperation):
        return None
    return f"{status.st_dev}-{status.st_ino}"
