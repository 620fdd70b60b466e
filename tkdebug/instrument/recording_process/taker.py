"""Hands what CUPTI recorded over to the recording process, unread."""

from __future__ import annotations

from collections.abc import Callable

from tkdebug.instrument.cupti.activity_join import Round
from tkdebug.instrument.cupti.collection import names_at
from tkdebug.instrument.recording_process.client import RecordingProcess


class JoinApart:
    """Has rounds joined by the recording process.

    Args:
        process: that.
        version: of CUPTI, which says how its records lie in memory.
        has_origins: whether operations of torch are reported.
    """

    def __init__(self, process: RecordingProcess, version: int, has_origins: bool) -> None:
        self._process = process
        process.names_at = names_at
        process.send("cupti", version, has_origins)

    def take(self, collect: Callable[[], Round]) -> set[int]:
        """Hand a round over; the devices are those of rounds that were joined meanwhile."""
        self._process.send("round", collect())
        return self._process.take_answers()

    def give_up(self) -> None:
        """No record comes any more."""
        self._process.send("no more records")
