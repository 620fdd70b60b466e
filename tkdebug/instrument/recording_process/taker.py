"""Lends what CUPTI recorded to the recording process, which reads it where it lies."""

from __future__ import annotations

import time

from tkdebug.instrument.cupti.activity_join import Round
from tkdebug.instrument.cupti.collection import Collection, names_at
from tkdebug.instrument.recording_process.client import RecordingProcess
from tkdebug.records.hook_chain import ActivityBuffers

# Beyond that CUPTI goes on to fill the buffer that it has, as the process does not keep up.
MOST_LENT = 16


class JoinApart:
    """Has rounds joined by the recording process.

    Args:
        process: the recording process.
        buffers: the memory that CUPTI fills.
        version: the version of CUPTI, which says how its records lie in memory.
        has_origins: whether operations of torch are reported.
    """

    def __init__(
        self, process: RecordingProcess, buffers: ActivityBuffers, version: int, has_origins: bool
    ) -> None:
        self._process = process
        self._buffers = buffers
        process.names_at = names_at
        process.show_memory(buffers.descriptor)
        process.send("cupti", version, has_origins)

    def take(self, collection: Collection, is_forced: bool) -> set[int]:
        """Lend a round; return the devices of rounds that were joined meanwhile."""
        if self._process.error is not None:
            self._buffers.take_back()
            collection.take(is_forced)  # so that CUPTI has room
            return self._process.take_answers()
        offset_ns = collection.clock().offset_ns
        may_lend = is_forced or self._buffers.lent_count() <= MOST_LENT
        lent = collection.lend(is_forced) if may_lend else []
        # There is room for few calls, so they are taken in any case.
        taken = Round(time.time_ns(), offset_ns, (), collection.dropped(), collection.calls())
        if may_lend or taken.calls:
            self._process.send("round", taken, lent)
        return self._process.take_answers()

    def give_up(self) -> None:
        """Give up launches without a record: no more records come."""
        self._process.send("no more records")
