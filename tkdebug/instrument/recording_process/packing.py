"""The functions that pack launches into the ring, one generated for each kernel.

What launches of a kernel have in common is sent once, as a variant; so are shapes and strides that
come again (facts) and names of scopes. A slot has their numbers, and what differs from launch to
launch. Responsible for the script's side. Invariant: no argument is held on to, and no value of a
tensor is read.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Sequence
from time import time_ns
from types import CodeType
from typing import Any

from tkdebug.errors import Frame
from tkdebug.instrument.device_records import Origin
from tkdebug.instrument.recording_process.note_text import facts_are_of_tensors, note_text
from tkdebug.instrument.recording_process.ring import (
    OPERATION,
    PLACES,
    SCALARS,
    RingWriter,
    slot_format,
)
from tkdebug.instrument.session_file.queued_events import Stamped
from tkdebug.launch_packing import MachineNote, NoteParts, PackableKernel
from tkdebug.scopes import SCOPES, ScopeWatcher

# How a scalar is packed, by the kind of its parameter.
SCALAR_CODES = {"int": "q", "uint": "Q", "float": "d"}
MAX_KEPT = 1 << 14

Send = Callable[..., None]
# note(launch, x, y, z, stream, start_ns, *values)
Note = Callable[..., None]
Odd = Callable[..., None]

_NOTHING_KNOWN: tuple[Callable[..., bool], int] = (lambda *tensors: False, 0)


class _Here(threading.local):
    """The calling thread; to ask the system for its id takes a call."""

    def __init__(self) -> None:
        self.native_id = threading.get_native_id()


class LaunchPacker:
    """Packs the launches of this process.

    Args:
        ring: where to.
        send: sends a message.
        odd: called with a kernel and what `note` was, of a launch that no slot can hold.
        watcher: whose scopes are recorded.
        flags: a byte, of launches that are made now.
        time_of: what measures a launch on the device.

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
        # By kernel, what tells the tensors of a recent launch, and the number of its facts.
        self._known: list[list[tuple[Callable[..., bool], int]]] = []
        self._machine_notes: list[MachineNote] = []
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
        kinds = kernel.parameter_kinds
        packed = [i for i, kind in enumerate(kinds) if kind in SCALAR_CODES][:SCALARS]
        codes = "".join(SCALAR_CODES[kinds[place]] for place in packed)
        variant = next(self._variants)
        record = kernel.launch_record
        self._send(
            "variant",
            variant,
            (record.kernel, record.kernel_hash, record.mode, dict(record.options)),
            tuple(zip(packed, codes, strict=True)),
        )
        kept: dict[Hashable, int] = {}
        self._kept.append(kept)
        known = [_NOTHING_KNOWN]
        self._known.append(known)

        def know(looks: Hashable, facts: int, tensors: tuple[Any, ...]) -> None:
            known[0] = (kernel.known_tensors(tensors) or _NOTHING_KNOWN[0], facts)
            if kept.get(looks) != facts:
                # Another thread has begun anew meanwhile.
                known[0] = _NOTHING_KNOWN

        namespace: dict[str, Any] = {
            "now": time_ns,
            "kept": kept.get,
            "known": known,
            "know": know,
            "next_unlike": itertools.count().__next__,
            "describe": self._describer(kernel, kept),
            "infos": record.describe,
            "named": SCOPES,
            "scopes_now": self._scopes_now,
            "odd": lambda *launch: self._odd(kernel, *launch),
            "next_number": self._ring.next_number,
            "ring": self._ring,
            "await_room": self._ring.await_room,
            "leave_empty": self._ring.leave_empty,
            "pack": slot_format(codes).pack_into,
            "memory": self._ring.memory,
            "here": self._here,
            "flags": self._flags,
        }
        machine_note = None
        if facts_are_of_tensors(kinds, packed):
            machine_note = self._machine_note(kernel, variant, kept, namespace)
        text = note_text(kinds, packed, variant, machine_note is not None)
        exec(compile(text, f"<note of {record.kernel}>", "exec"), namespace)
        note: Note = namespace["note"] if machine_note is None else machine_note.note
        return note

    def _machine_note(
        self,
        kernel: PackableKernel,
        variant: int,
        kept: dict[Hashable, int],
        namespace: dict[str, Any],
    ) -> MachineNote | None:
        """Machine code in the place of the function `note` of a namespace, which it may call."""
        machine_note = kernel.machine_note(
            NoteParts(
                memory=self._ring.memory,
                places=PLACES,
                numbers=self._ring.numbers,
                flags=self._flags,
                variant=variant,
                kinds=kernel.parameter_kinds,
                scopes_now=self._scopes_now,
                instead=lambda *launch: namespace["note"](*launch),
                late=self._ring.put_late,
            )
        )
        if machine_note is None:
            return None
        self._machine_notes.append(machine_note)

        def learn(looks: Hashable, facts: int, tensors: tuple[Any, ...]) -> None:
            machine_note.know(facts, tensors)
            if kept.get(looks) != facts:
                # Another thread has begun anew meanwhile.
                machine_note.forget()

        namespace["learn"] = learn
        return machine_note

    def _describer(
        self, kernel: PackableKernel, kept: dict[Hashable, int]
    ) -> Callable[[Hashable, Sequence[Any]], int]:
        def describe(looks: Hashable, values: Sequence[Any]) -> int:
            self._count_kept()
            number = next(self._facts)
            self._send("facts", number, kernel.launch_record.describe(tuple(values)))
            kept[looks] = number
            return number

        return describe

    def note_operation(self, start_ns: int, end_ns: int, code: CodeType, line: int) -> None:
        """Note an operation of torch's that the script called at that line."""
        scopes = () if SCOPES.is_plain else SCOPES.path(self._watcher)
        origin = self._origins.get((code, line, scopes))
        if origin is None:
            origin = self._origins[code, line, scopes] = len(self._origins) + 1
            frame = Frame(code.co_filename, line, code.co_name)
            self._send("event", Stamped(Origin(origin, frame, scopes), time_ns()))
        number = self._ring.next_number()
        if number < self._ring.limit or self._ring.await_room(number):
            here = self._here.native_id
            self._ring.put(number, OPERATION, origin, 0, 0, 0, 0, here, 0, start_ns, end_ns, 0, 0)

    def _count_kept(self) -> None:
        """Begin anew where every launch passes something else; the other side does so, too."""
        self._kept_count += 1
        if self._kept_count > MAX_KEPT:
            self._kept_count = 0
            self._scopes.clear()
            for kept in self._kept:
                kept.clear()
            for known in self._known:
                known[0] = _NOTHING_KNOWN
            for machine_note in self._machine_notes:
                machine_note.forget()
            at = self._ring.next_number()
            if at < self._ring.limit or self._ring.await_room(at):
                self._ring.leave_empty(at)
            self._send("forget", at, next(self._facts), next(self._scope_numbers))

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
