"""Reads what checked kernels of the script's process find while they run.

Their tables lie in memory that this process maps, so the script's process does nothing for it.
Invariant: a launch is left out once the script has read its table, as the script then reports its
faults.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tkdebug.instrument.session_file.queued_events import SeenFault, SeenFaults
from tkdebug.records.running_faults import ShownKernel, seen

# The interval between two looks, and the most faults that are stored at a time.
LOOK_S = 0.2
MOST_FAULTS = 256


class RunningFaults:
    """The tables of one process."""

    def __init__(self) -> None:
        self._tables: list[tuple[memoryview, int]] = []
        self._kernels: dict[int, ShownKernel] = {}
        self._last: tuple[SeenFault, ...] = ()
        self._due_s = 0.0

    def add_tables(self, memory: memoryview, stride_bytes: int) -> None:
        """Add tables to read.

        Args:
            memory: the memory that they lie in.
            stride_bytes: from one table's header to the next one's.
        """
        self._tables.append((memory, stride_bytes))

    def add_kernel(self, kernel: ShownKernel) -> None:
        """Take the names of a checked build's sites."""
        self._kernels[kernel.number] = kernel

    def look(self, is_last: bool = False) -> SeenFaults | None:
        """All faults found so far; None if nothing changed, or `LOOK_S` is not over.

        Args:
            is_last: look even if `LOOK_S` is not over.
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
