"""Makes the machine code that notes launches of one kernel, and tells it which tensors it knows.

Responsible for the state of that code. Invariants: a set of tensors is replaced by one call of C,
so a launch, which notes with the GIL held, sees the whole of it; a set that nobody has written yet
is like no tensors, whatever threads and signal handlers do meanwhile; all memory whose address the
code has is exported as long as the code is there, so nobody can close or resize it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tkdebug.launch_packing import NoteParts
from tkdebug.runtime.launch_notes.machine_code import (
    BEFORE_VALUES,
    KINDS,
    KINDS_AT,
    MAX_DIMS,
    TENSOR_WORDS,
    WORD_BYTES,
    NoteSelf,
    StateWords,
    note_maker,
)
from tkdebug.runtime.thread_ids import thread_key

# Kernels are launched with a few kinds of tensors in turn, as by the layers of a network.
KNOWN_SETS = 8
_SETS_WORD_AT = WORD_BYTES * StateWords._fields.index("sets")
# Bytes of a set that is like no tensors: they would have -1 axes.
_UNWRITTEN = b"\xff"


class MachineNote:
    """The function that notes launches of one kernel.

    Attributes:
        note: that.
    """

    def __init__(self, make: Callable[[NoteSelf], Callable[..., None]], parts: NoteParts) -> None:
        tensors = parts.kinds.count("tensor")
        self._set_words = 1 + tensors * TENSOR_WORDS
        # Without tensors all sets are alike, an unwritten one too: the only one is written first.
        self._most_sets = KNOWN_SETS if tensors else 1
        kinds = bytes(KINDS.index(kind) for kind in parts.kinds)
        memory, flags = _export(parts.memory), _export(parts.flags)
        self._sets_at = KINDS_AT + -(-len(kinds) // WORD_BYTES) * WORD_BYTES
        words = StateWords(
            arguments=BEFORE_VALUES + len(kinds),
            ring=ctypes.addressof(memory),
            flags=ctypes.addressof(flags),
            variant=parts.variant,
            parameters=len(kinds),
            tensors=tensors,
            sets=0,
            set_bytes=self._set_words * WORD_BYTES,
            sets_at=self._sets_at,
            thread_key=thread_key(os.getpid()),
        )
        head = struct.pack(f"={len(words)}q", *words) + kinds
        self._size_bytes = self._sets_at + self._most_sets * self._set_words * WORD_BYTES
        self._state = bytearray(head.ljust(self._size_bytes, _UNWRITTEN))
        self._next_set = itertools.count().__next__
        self.note = make(
            NoteSelf(
                self._state,
                parts.instead,
                parts.late,
                parts.numbers,
                parts.scopes_now,
                (memory, flags, _export(self._state)),
            )
        )

    def know(self, facts: int, tensors: Sequence[Any]) -> None:
        """Note launches with tensors of these shapes and strides under that number from now on."""
        words = [facts]
        for tensor in tensors:
            shape, strides = tuple(tensor.shape), tuple(tensor.stride())
            if len(shape) > MAX_DIMS:
                return
            rest = (0,) * (MAX_DIMS - len(shape))
            words += (len(shape), *shape, *rest, *strides, *rest)
        packed = struct.pack(f"={self._set_words}q", *words)
        if packed in self._sets():
            return
        number = self._next_set()
        at = self._sets_at + number % self._most_sets * len(packed)
        self._state[at : at + len(packed)] = packed
        # No launch looks at a set before it is there.
        self._tell_sets(min(number + 1, self._most_sets))

    def _sets(self) -> list[bytes]:
        size_bytes = self._set_words * WORD_BYTES
        (count,) = struct.unpack_from("=q", self._state, _SETS_WORD_AT)
        starts = (self._sets_at + number * size_bytes for number in range(count))
        return [bytes(self._state[at : at + size_bytes]) for at in starts]

    def forget(self) -> None:
        """Know no tensors."""
        self._next_set = itertools.count().__next__
        self._tell_sets(0)
        sets_bytes = self._size_bytes - self._sets_at
        self._state[self._sets_at : self._size_bytes] = _UNWRITTEN * sets_bytes

    def _tell_sets(self, count: int) -> None:
        self._state[_SETS_WORD_AT : _SETS_WORD_AT + WORD_BYTES] = struct.pack("=q", count)


def machine_note(parts: NoteParts) -> MachineNote | None:
    """The code for one kernel; None where there can be none."""
    make = note_maker(parts.places)
    return None if make is None else MachineNote(make, parts)


def _export(memory: Any) -> ctypes.c_char:
    """The first byte of memory, which cannot be closed or resized as long as this is there."""
    return ctypes.c_char.from_buffer(memory)
