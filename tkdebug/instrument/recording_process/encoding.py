"""Events as they go to the recording process: as plain values and records of tkdebug's own types.

What a script or plugin has put into a record never leaves the script's process: a record becomes
its row here, by the same table that the store has. Responsible for that alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from tkdebug.instrument.records import Launch, Output
from tkdebug.instrument.session_file.columns import columns_of
from tkdebug.instrument.session_file.queued_events import EncodedRow, Event, Stamped
from tkdebug.instrument.session_file.record_tables import NOT_A_RECORD, RecordTables
from tkdebug.records.events import KernelCompiled, LaunchProgress
from tkdebug.terminal.text import tell

# Of these the store makes more than a row. Their fields are plain, but for the ones below.
_AS_THEY_ARE = (LaunchProgress, Output)
_OPTIONS = next(column for column in columns_of(Launch) if column.name == "options")
assert _OPTIONS.encode is not None
# Launches of few kernels, of which each is passed much the same.
encoded_options, decoded_options = _OPTIONS.encode, _OPTIONS.decode


class EventEncoder:
    """Encodes the events of one process.

    Args:
        process: its id.
        rank: its rank.
    """

    def __init__(self, process: int, rank: int) -> None:
        self._stamp = (process, rank)
        self._tables = RecordTables()

    def encoded(self, event: Event) -> Event | None:
        """What to send of `event`; None where it is nothing that can be recorded."""
        if not isinstance(event, Stamped) or isinstance(event.event, _AS_THEY_ARE):
            return event
        if isinstance(event.event, KernelCompiled):
            kernel = event.event
            plain = replace(kernel, options=_plain(kernel.options), line_table=None, image=None)
            return Stamped(replace(plain, artifacts=dict(kernel.artifacts)), event.time_ns)
        return self._row(event)

    def _row(self, stamped: Stamped) -> EncodedRow | None:
        kind = type(stamped.event)
        try:
            table = self._tables.known(kind)
            row = table.stamped_row(stamped.event, *self._stamp, stamped.time_ns)
        except NOT_A_RECORD as error:
            # A mistake in a plugin's record must not end the recording.
            if self._tables.refuse(kind):
                tell(f"{kind.__qualname__}: cannot be recorded: {error} (shown once)")
            return None
        files = {f.file for name in table.chains for f in getattr(stamped.event, name)}
        return EncodedRow(table.name, table.statements, table.insert, tuple(row), tuple(files))


def _plain(options: Mapping[str, Any]) -> Mapping[str, object]:
    """What the column would hold of them."""
    return cast("Mapping[str, object]", decoded_options(encoded_options(options)))
