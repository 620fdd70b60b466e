"""The protocol of dumps that a platform's devices write of kernels that crash or hang.

`compat.gpu_failures` decides when dumps are switched on, asked for and looked for; the platform
reads their files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tkdebug.records.events import Fault
    from tkdebug.runtime.launch.launches_in_flight import InFlight


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """Settings that switch dumps on.

    Attributes:
        pattern: file name as `CrashDumps.expanded` takes it.
        is_owned: whether the files are tkdebug's, to be deleted once they are read.
        variables: environment variables, to be set before the device is first used.
        pipe: pattern of the file that a request for a dump is written into; None for no requests.
    """

    pattern: str
    is_owned: bool
    variables: Mapping[str, str]
    pipe: str | None = None


@dataclass(frozen=True, slots=True)
class CrashReport:
    """The content of a dump.

    Attributes:
        device: name of the device.
        architecture: the architecture of its code.
        driver: the driver's version, "" if not known.
        faults: one for each place that crashed; () if nothing did.
    """

    device: str
    architecture: str
    driver: str
    faults: tuple[Fault, ...]


class CrashDumps(Protocol):
    """Dumps of one platform."""

    def settings(self, folder: Callable[[], str], by_request: bool) -> DumpSettings | None:
        """Return the settings that switch dumps on, or None if the user's variables forbid it.

        Args:
            folder: makes a folder for them, if the user has not named a file.
            by_request: whether dumps are wanted on request, too.
        """
        ...

    def asked_for_by(self) -> str | None:
        """Return the user's variable that switches dumps on, or None if there is none."""
        ...

    def are_understood(self) -> bool:
        """Whether the driver does as the settings say; asked once they are in force."""
        ...

    def expanded(self, pattern: str) -> str:
        """Return a glob for the dumps of this process, escaped but for the variable parts."""
        ...

    def read(self, path: Path, launches: InFlight | None) -> CrashReport:
        """Read a dump.

        Args:
            path: the file.
            launches: the launches in flight, if the dump is of this process.

        Raises:
            TkError: the file is no dump, or a damaged one.
        """
        ...

    def read_hang(self, path: Path, launches: InFlight, waited: str) -> tuple[Fault, ...]:
        """Read a dump that was asked for: a fault for each line where kernels wait.

        Raises:
            TkError: the file is no dump, or a damaged one.
        """
        ...

    def without_dump(self, error: str, launches: InFlight) -> Fault:
        """The fault for an error of the driver's that left no dump."""
        ...

    def error(self) -> str | None:
        """Wait for the device, and return the driver's error if a kernel failed."""
        ...

    def is_busy(self, device: int, stream: int) -> bool:
        """Whether work on that stream has not ended; a failed device is not busy."""
        ...
