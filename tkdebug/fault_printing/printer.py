"""Faults on stderr when they happen: each in full the first time it comes up, then only counted.

Responsible for what is printed while a script runs; the summary at its end is its caller's. Compile
errors are left out: callers of the compiler get them as exceptions. Which process of a run prints a
fault is decided in `processes`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.fault_printing.text import counted_line, describe, names_of
from tkdebug.terminal.display import style_of, view_of
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.records.events import Fault

MAX_PRINTED = 50


class PrintedFaults:
    """The faults that processes of a run have printed: an empty file for each, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def claim(self, fault: Fault) -> bool:
        """Whether no process has printed `fault`; from now on it counts as printed."""
        try:
            os.close(os.open(self._file(fault), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError:
            return False  # printed, or the run has ended and its folder has gone
        return True

    def __contains__(self, fault: Fault) -> bool:
        return self._file(fault).exists()

    def _file(self, fault: Fault) -> Path:
        frames = [(frame.file, frame.line, frame.function) for frame in fault.frames]
        place = json.dumps([fault.kind, fault.kernel, frames, fault.tensor])
        return self.folder / hashlib.sha256(place.encode()).hexdigest()


@contextlib.contextmanager
def printing_faults() -> Iterator[PrintedFaults]:
    """Print faults of this process and its children while the block lasts.

    What it gives can be asked for them until the block ends.
    """
    owner, stream, file = os.getpid(), sys.stderr, _stderr_file()
    folder = TemporaryFolder("printed")
    printed = PrintedFaults(folder.path)

    def claims(fault: Fault) -> bool:
        # Forked children come here, too. A script may have led its stderr elsewhere.
        is_seen = file is not None and _stderr_file() == file
        if os.getpid() == owner and sys.stderr is stream and stream is not None:
            is_seen = True
        return is_seen and printed.claim(fault)

    teller = FaultPrinter(claims, "further faults are reported at the end")
    hook = Hook(fault=teller.on_fault)
    os.environ[VARIABLE] = f"{file or ''}:{folder.path}"
    HOOKS.add(hook)
    try:
        yield printed
    finally:
        HOOKS.remove(hook)
        os.environ.pop(VARIABLE, None)
        folder.remove()


def print_from_environment() -> None:
    """Print faults in this process, a child of one that prints them, where stderr is the same."""
    file, _, folder = os.environ.get(VARIABLE, "").partition(":")
    if not file or not folder:
        return
    printed = PrintedFaults(Path(folder))
    teller = FaultPrinter(
        lambda fault: _stderr_file() == file and printed.claim(fault),
        "further faults are reported at the end",
    )
    HOOKS.add(Hook(fault=teller.on_fault))


def _stderr_file() -> str | None:
    """Return the identity of the file that stderr is, or None if it is no file."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError, io.UnsupportedOperation):
        return None
    return f"{status.st_dev}-{status.st_ino}"


@dataclass(slots=True)
class _Count:
    """One fault: its first occurrence, and how often it came up since."""

    fault: Fault
    count: int = 0
    launches: int = 0


class FaultPrinter:
    """A subscriber that prints faults when they happen.

    Args:
        claims: whether this process prints a fault that it has not printed; asked once for each.
        end: the line instead of further faults once there were `MAX_PRINTED`.
    """

    def __init__(
        self,
        claims: Callable[[Fault], bool] = lambda fault: sys.stderr is not None,
        end: str = "further faults are not shown here; `tkdebug run` has all",
    ) -> None:
        self._claims = claims
        self._end = end
        self._printed = 0
        self._counts: dict[tuple[object, ...], _Count] = {}
        # Worker threads of a script launch, too.
        self._lock = threading.Lock()
        self._owner = self._process = os.getpid()

    def on_fault(self, fault: Fault) -> None:
        """Count `fault`, and print it if it is new; ignore one that does not count."""
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
            if not is_new or self._printed > MAX_PRINTED:
                return
            if self._printed == MAX_PRINTED:
                self._printed += 1
                tell(self._end)
                return
            if not self._claims(fault):
                return
            self._printed += 1
        tell(describe(fault, view_of(sys.stderr)), styled=True)

    def reset(self) -> None:
        """Forget what was printed and counted, so that it is printed again."""
        with self._lock:
            self._counts.clear()
            self._printed = 0

    def tell_counts(self) -> None:
        """Print each fault in a line with its counts, unless there was only one, once.

        A forked child tells nothing: what it counts began with its parent's counts.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            counts = list(self._counts.values())
        if sum(known.launches for known in counts) < 2:
            return
        style, names = style_of(sys.stderr), names_of(known.fault for known in counts)
        for known in counts[:MAX_PRINTED]:
            line = counted_line(known.fault, known.count, known.launches, style, names)
            tell(line, styled=True)
