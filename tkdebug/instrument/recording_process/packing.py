"""The script's side of messages to the recording process: packed launches, encoded events.

Launches go into the ring, by functions that are written for each kernel. Facts that launches of a
kernel share are sent once, as a variant; so are shapes and strides that come again (facts) and
names of scopes. A slot has their numbers, and the values that differ from launch to launch. Events
go as plain values and records of tkdebug's own types: a record that a script or plugin made becomes
its row here, by the same table that the store has, so nothing of theirs leaves the process.
Invariant: no argument is held on to, and no value of a tensor is read.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from time import time_ns
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

from tkdebug.errors import Frame
from tkdebug.instrument.device_records import Origin
from tkdebug.instrument.recording_process.ring import OPERATION, SCALARS, RingWriter, launch_format
from tkdebug.instrument.records import NOT_A_RECORD, Launch, Output, RecordTables
from tkdebug.instrument.session_file.queued_events import EncodedRow, Event, Stamped
from tkdebug.records.columns import columns_of
from tkdebug.records.events import KernelCompiled, LaunchProgress
from tkdebug.records.hook_chain import NoteParts, PackableKernel
from tkdebug.records.scopes import SCOPES, ScopeWatcher
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.records.events import KernelLaunch

# How a scalar is packed, by the kind of its parameter.
SCALAR_CODES = {"int": "q", "uint": "Q", "float": "d"}
MAX_KEPT = 1 << 14
Send = Callable[..., None]
# note(launch, x, y, z, stream, start_ns, *values)
Note = Callable[..., None]
Odd = Callable[..., None]
# Records sent unchanged: the store makes more than a row of each, and their fields are plain.
_AS_THEY_ARE = (LaunchProgress, Output)
_OPTIONS = next(column for column in columns_of(Launch) if column.name == "options")


class _Here(threading.local):
    """The calling thread; to ask the system for its id takes a call."""

    def __init__(self) -> None:
        self.native_id = threading.get_native_id()


class LaunchPacker:
    """Packs the launches of this process.

    Args:
        ring: the ring to fill.
        send: sends a message.
        odd: called with a kernel and the arguments of `note`, for a launch that no slot can hold.
        watcher: the watcher whose scopes are recorded.
        flags: one byte, the flags that launches get from now on.
        time_of: measures a launch on the device.

    Attributes:
        notes: by kernel, the function to call after each of its launches with its number, grid,
            stream, start, and all values.
    """

    def __init__(
        self,
        ring: RingWriter,
        send: Send,
        odd: Odd,
        watcher: ScopeWatcher,
        flags: bytearray,
        time_of: Callable[[int], Callable[..., int | None]],
    ) -> None:
        self._ring = ring
        self._send = send
        self._odd = odd
        self._watcher = watcher
        self._here = _Here()
        self._variants = itertools.count(1)
        self._facts = itertools.count(1)
        self._scopes: dict[tuple[str, ...], int] = {}
        self._scope_numbers = itertools.count(1)
        self._kept: list[dict[Hashable, int]] = []
        self._kept_count = 0
        self._origins: dict[tuple[CodeType, int, tuple[str, ...]], int] = {}
        self._flags = flags
        self.time_of = time_of
        self.notes: dict[object, Note] = {}

    def note_of(self, kernel: PackableKernel) -> Note:
        """The function that notes launches of `kernel`; the kernel is kept with it."""
        note = self.notes.get(kernel)
        if note is None:
            note = self.notes[kernel] = self._make_note(kernel)
        return note

    def _make_note(self, kernel: PackableKernel) -> Note:
        kinds, record = kernel.parameter_kinds, kernel.launch_record
        packed = tuple(i for i, kind in enumerate(kinds) if kind in SCALAR_CODES)[:SCALARS]
        codes = "".join(SCALAR_CODES[kinds[place]] for place in packed)
        variant = next(self._variants)
        self._send(
            "variant",
            variant,
            (record.kernel, record.kernel_hash, record.mode, dict(record.options)),
            tuple(zip(packed, codes, strict=True)),
        )
        kept: dict[Hashable, int] = {}
        self._kept.append(kept)
        return kernel.write_note(
            NoteParts(
                kinds=tuple(kinds),
                packed=packed,
                variant=variant,
                kept=kept.get,
                describe=partial(self._describe, record, kept),
                infos=record.describe,
                pack=launch_format(codes).pack,
                put=self._ring.put,
                here=self._here,
                flags=self._flags,
                scopes_now=self._scopes_now,
                odd=partial(self._odd, kernel),
            )
        )

    def _describe(
        self,
        record: type[KernelLaunch],
        kept: dict[Hashable, int],
        key: Hashable,
        values: tuple[Any, ...],
    ) -> int:
        """Send facts that no launch of the kernel had before; return their number."""
        self._count_kept()
        number = next(self._facts)
        self._send("facts", number, record.describe(values))
        kept[key] = number
        return number

    def note_operation(self, start_ns: int, end_ns: int, code: CodeType, line: int) -> None:
        """Note an operation of torch's that the script called at that line."""
        scopes = () if SCOPES.is_plain else SCOPES.path(self._watcher)
        origin = self._origins.get((code, line, scopes))
        if origin is None:
            origin = self._origins[code, line, scopes] = len(self._origins) + 1
            frame = Frame(code.co_filename, line, code.co_name)
            self._send("event", Stamped(Origin(origin, frame, scopes), time_ns()))
        here = self._here.native_id
        self._ring.put_fields(OPERATION, origin, 0, 0, 0, 0, here, 0, start_ns, end_ns, 0, 0)

    def _count_kept(self) -> None:
        """Count a new fact; after `MAX_KEPT` of them forget all, and have the other side do so."""
        self._kept_count += 1
        if self._kept_count > MAX_KEPT:
            self._kept_count = 0
            self._scopes.clear()
            for kept in self._kept:
                kept.clear()
            self._send("forget", self._ring.filled, next(self._facts), next(self._scope_numbers))

    def _scopes_now(self) -> int:
        path = SCOPES.path(self._watcher)
        if not path:
            return 0
        number = self._scopes.get(path)
        if number is None:
            self._count_kept()
            number = next(self._scope_numbers)
            self._send("scopes", number, path)
            self._scopes[path] = number
        return number


assert _OPTIONS.encode is not None
# Launches of few kernels, of which each is passed much the same.
encoded_options, decoded_options = _OPTIONS.encode, _OPTIONS.decode


class EventEncoder:
    """Encodes the events of one process.

    Args:
        process: the id of the process.
        rank: its rank.
    """

    def __init__(self, process: int, rank: int) -> None:
        self._stamp = (process, rank)
        self._tables = RecordTables()

    def encoded(self, event: Event) -> Event | None:
        """Return the form of `event` that is sent, or None if it cannot be recorded."""
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
    """Return the options as plain values, the same as a session gives them when it is read."""
    return cast("Mapping[str, object]", decoded_options(encoded_options(options)))
