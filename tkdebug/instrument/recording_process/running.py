"""What checked kernels of the script's process have found while they run.

Their tables lie in memory that this process maps; nothing is asked of the script's. Invariant:
nobody is told of a launch whose table the script has read, since it reports what was there itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tkdebug.instrument.session_file.queued_events import SeenFault, SeenFaults
from tkdebug.running_faults import CheckedKernel, seen

# How often it looks, and how many faults of all launches are told of.
LOOK_S = 0.2
MOST_FAULTS = 256


class RunningFaults:
    """The tables of one process."""

    def __init__(self) -> None:
        self._tables: list[tuple[memoryview, int]] = []
        self._kernels: dict[int, CheckedKernel] = {}
        self._last: tuple[SeenFault, ...] = ()
        self._due_s = 0.0

    def add_tables(self, memory: memoryview, stride_bytes: int) -> None:
        """Look at these, too."""
        self._tables.append((memory, stride_bytes))

    def add_kernel(self, kernel: CheckedKernel) -> None:
        """Know the sites of a checked build."""
        self._kernels[kernel.number] = kernel

    def look(self, is_last: bool = False) -> SeenFaults | None:
        """All that is there now; None where it is as before, or was looked at just now.

        Args:
            is_last: look in any case.
        """
        now_s = time.monotonic()
        if not self._tables or (now_s < self._due_s and not is_last):
            return None
        self._due_s = now_s + LOOK_S
        found = tuple(sorted(self._found(), key=lambda one: (one.launch_id, one.site)))
        if found == self._last:
            return None
        self._last = found
        return SeenFaults(found[:MOST_FAULTS])

    def _found(self) -> Iterator[SeenFault]:
        for memory, stride_bytes in self._tables:
            for one in seen(memory, stride_bytes):
                kernel = self._kernels.get(one.number)
                if kernel is None or one.site >= len(kernel.sites):
                    continue  # its sites are on their way
                kind, frames, tensor, state = kernel.sites[one.site]
                if state is not None:
                    place = (kind, frames, tensor, state)
                    yield SeenFault(
                        one.launch, one.site, kernel.kernel, *place, one.program, one.bad
                    )
