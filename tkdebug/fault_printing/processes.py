"""The choice of the process of a run that prints a fault.

Invariant: one process does, and a process prints nothing where the user would not see it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tkdebug.fault_printing.printer import FaultPrinter
from tkdebug.process.temporary_folders import TemporaryFolder
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS, Hook

# Names the folder of `PrintedFaults` for child processes, and the file that stderr is.
VARIABLE = "TKDEBUG_TOLD_FAULTS"


class PrintedFaults:
    """The faults that processes of a run have printed: an empty file for each, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def claim(self, fault: Fault) -> bool:
        """Mark `fault` as printed, and return whether no process had printed it before."""
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

    The yielded object knows the printed faults until the block ends.
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
    """Print faults in this process, a child of one that prints them, if stderr is the same."""
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
