"""Finds programs of one launch that touch the same memory in no order that is certain.

Each element of a written allocation remembers which program wrote it, read it, and changed it by
an atomic. What another program then does to it is a race, unless it makes no difference: storing
the value that is already there races with nothing. Kernels whose programs order themselves
by atomics are left alone (`synchronising_op`).

Invariant: a program never races with itself, except by storing different values to one element in
one op.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.race_hints import load_and_store_hint
from tkdebug.interpreter.waiting import is_uncached_load, waiting_loops

_LAZY_BYTES = 1 << 22
_HINTS = {
    "store": "give every program elements of its own, or combine them with atomics",
    "atomic": "use an atomic in both places, or make it two launches",
    "tile": "let one element of the tile store (a mask), or reduce the tile first",
}


def synchronising_op(module: Module) -> Operation | None:
    """An op by which programs may wait for each other, so that their accesses have an order.

    They wait by looking at what others change: a flag that is only set orders nothing.
    """
    for op in module.walk():
        if tt.AtomicCas.matches(op) or is_uncached_load(op):
            return op
        if tt.AtomicRmw.matches(op) and op.result.uses:
            return op
    return next(iter(waiting_loops(module)), None)


@dataclass(frozen=True, slots=True)
class Touched:
    """The elements that an op accesses, in order of programs, then of the tile.

    Attributes:
        places: offsets from the start of the allocation, in elements of `itemsize` bytes.
        programs: linear program ids.
        lanes: positions in the tile, row by row.
        shape: of the tile.
    """

    places: Tensor
    programs: Tensor
    lanes: Tensor
    shape: tuple[int, ...]
    itemsize: int

    def chosen(self, where: Tensor) -> Touched:
        """Those where the bool tensor `where` is true."""
        return replace(
            self,
            places=self.places[where],
            programs=self.programs[where],
            lanes=self.lanes[where],
        )


@dataclass(frozen=True, slots=True)
class Race:
    """The first of some accesses that race in one way.

    Attributes:
        first: its position among the accesses.
        other: the other program, None for the same tile; -1 when one of several.
        other_op: what that program does there.
        did: what that is, as "writes".
    """

    first: int
    count: int
    other: int | None
    other_op: Operation
    did: str
    hint: str


Report = Callable[[Operation, Buffer, Touched, Race], None]


def _zeros(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that take memory where something is noted: launches touch little of a large tensor."""
    size_bytes = count * dtype.itemsize
    if device.type != "cpu" or size_bytes < _LAZY_BYTES:
        return torch.zeros(count, dtype=dtype, device=device)
    return torch.frombuffer(mmap.mmap(-1, size_bytes), dtype=dtype)


class _Marks:
    """Per element who did something to it, and by which op.

    0 is nobody, p + 1 program p alone, -(p + 1) program p and others.
    """

    def __init__(self, elements: int, device: torch.device) -> None:
        self.who = _zeros(elements, torch.int32, device)
        self.op = _zeros(elements, torch.int32, device)

    def refine(self, ratio: int) -> None:
        """Count in elements `ratio` times as small."""
        self.who = self.who.repeat_interleave(ratio)
        self.op = self.op.repeat_interleave(ratio)

    def take(self, places: Tensor, codes: Tensor, op: Operation) -> None:
        """Note `codes` at `places`, whoever was noted there before."""
        self.who[places] = codes
        self.op[places] = op.id

    def add(self, places: Tensor, codes: Tensor, op: Operation) -> None:
        """Note `codes` at `places`; whoever finds another one there joins it."""
        free = self.who[places] == 0
        self.take(places[free], codes[free], op)
        found = self.who[places].abs()
        shared = found != codes
        self.who[places[shared]] = -found[shared]


class _Shadow:
    """The marks of one allocation, in units of the smallest element that was accessed."""

    def __init__(self, nbytes: int, itemsize: int, device: torch.device) -> None:
        self.itemsize = itemsize
        elements = nbytes // itemsize
        self.writers = _Marks(elements, device)
        # Where a store brought another value: only those matter to readers.
        self.changed = _zeros(elements, torch.bool, device)
        self.readers = _Marks(elements, device)
        self.atomics = _Marks(elements, device)

    def spread(self, touched: Touched) -> tuple[Tensor, Tensor, int]:
        """Places and codes in units of this shadow, and how many there are to an element."""
        if self.itemsize > touched.itemsize:
            for marks in (self.writers, self.readers, self.atomics):
                marks.refine(self.itemsize // touched.itemsize)
            self.changed = self.changed.repeat_interleave(self.itemsize // touched.itemsize)
            self.itemsize = touched.itemsize
        ratio = touched.itemsize // self.itemsize
        codes = (touched.programs + 1).to(torch.int32)
        if ratio == 1:
            return touched.places, codes, 1
        steps = torch.arange(ratio, device=codes.device)
        places = (touched.places[:, None] * ratio + steps).reshape(-1)
        return places, codes.repeat_interleave(ratio), ratio


class RaceDetector:
    """Who touched what in one launch."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._shadows: dict[int, _Shadow] = {}
        self._ops: dict[int, Operation] = {}

    def read(self, op: Operation, buffer: Buffer, touched: Touched) -> None:
        """A plain load."""
        shadow, places, codes, ratio = self._at(op, buffer, touched)
        accesses = (places, codes, ratio)
        bad = _by_one_other(shadow.writers, places, codes) & shadow.changed[places]
        seen = self._find(shadow.writers, bad, *accesses)
        self._tell(op, buffer, touched, seen, "writes", None)
        seen = self._find(shadow.atomics, _by_others(shadow.atomics, places, codes), *accesses)
        self._tell(op, buffer, touched, seen, "changes atomically", _HINTS["atomic"])
        shadow.readers.add(places, codes, op)

    def atomic(self, op: Operation, buffer: Buffer, touched: Touched) -> None:
        """An atomic whose old value nobody looks at."""
        shadow, places, codes, ratio = self._at(op, buffer, touched)
        accesses = (places, codes, ratio)
        seen = self._find(shadow.writers, _by_one_other(shadow.writers, places, codes), *accesses)
        self._tell(op, buffer, touched, seen, "writes", _HINTS["atomic"])
        seen = self._find(shadow.readers, _by_others(shadow.readers, places, codes), *accesses)
        self._tell(op, buffer, touched, seen, "reads", _HINTS["atomic"])
        shadow.atomics.add(places, codes, op)

    def write(self, op: Operation, buffer: Buffer, touched: Touched, changed: Tensor) -> None:
        """A plain store, before it is done; `changed` is where it brings another value."""
        shadow, places, codes, ratio = self._at(op, buffer, touched)
        changed = changed.repeat_interleave(ratio)
        accesses = (places, codes, ratio)
        bad = _by_one_other(shadow.writers, places, codes) & changed
        seen = self._find(shadow.writers, bad, *accesses, by_place=True)
        self._tell(op, buffer, touched, seen, "writes", _HINTS["store"])
        bad = _by_others(shadow.readers, places, codes) & changed
        seen = self._find(shadow.readers, bad, *accesses)
        self._tell(op, buffer, touched, seen, "reads", None)
        bad = _by_others(shadow.atomics, places, codes)
        seen = self._find(shadow.atomics, bad, *accesses)
        self._tell(op, buffer, touched, seen, "changes atomically", _HINTS["atomic"])
        shadow.changed[places[changed]] = True
        shadow.writers.take(places[changed], codes[changed], op)
        shadow.writers.add(places, codes, op)

    def overwritten(self, op: Operation, buffer: Buffer, touched: Touched, lost: Tensor) -> None:
        """After a store: `lost` is where memory holds the value of another element of it."""
        where = lost.nonzero().reshape(-1)
        if not where.numel():
            return
        shadow, places, _, _ = self._at(op, buffer, touched.chosen(lost))
        # Several programs, but not one value.
        shadow.writers.who[places] = shadow.writers.who[places].abs()
        first = int(where[0])
        rivals = touched.programs[touched.places == touched.places[first]]
        others = rivals[rivals != touched.programs[first]]
        other = int(others[-1]) if others.numel() else None
        hint = _HINTS["tile" if other is None else "store"]
        race = Race(first, int(where.numel()), other, op, "writes", hint)
        self._report(op, buffer, touched, race)

    def _at(
        self, op: Operation, buffer: Buffer, touched: Touched
    ) -> tuple[_Shadow, Tensor, Tensor, int]:
        self._ops[op.id] = op
        shadow = self._shadows.get(buffer.storage_key)
        if shadow is None:
            storage = buffer.tensor.untyped_storage()
            shadow = _Shadow(storage.nbytes(), touched.itemsize, storage.device)
            self._shadows[buffer.storage_key] = shadow
        return shadow, *shadow.spread(touched)

    def _find(
        self,
        marks: _Marks,
        bad: Tensor,
        places: Tensor,
        codes: Tensor,
        ratio: int,
        by_place: bool = False,
    ) -> tuple[int, int, int, Operation] | None:
        """Among accesses: the first bad one, how many, the other program (or -1) and its op."""
        hits = bad.nonzero().reshape(-1)
        if not hits.numel():
            return None
        first = int(hits[0])
        code = abs(int(marks.who[places[first]]))
        other = code - 1 if code != int(codes[first]) else -1
        count = int(torch.unique((places[hits] if by_place else hits) // ratio).numel())
        return first // ratio, count, other, self._ops[int(marks.op[places[first]])]

    def _tell(
        self,
        op: Operation,
        buffer: Buffer,
        touched: Touched,
        seen: tuple[int, int, int, Operation] | None,
        did: str,
        hint: str | None,
    ) -> None:
        """Report what was seen; without a `hint`, one for the load and the store that it is."""
        if seen is not None:
            first, count, other, other_op = seen
            if hint is None:
                load, store = (op, other_op) if did == "writes" else (other_op, op)
                hint = load_and_store_hint(load, store)
            self._report(op, buffer, touched, Race(first, count, other, other_op, did, hint))


def _by_one_other(marks: _Marks, places: Tensor, codes: Tensor) -> Tensor:
    """Where one other program is noted: what several wrote is one value, whoever they are."""
    who = marks.who[places]
    return (who > 0) & (who != codes)


def _by_others(marks: _Marks, places: Tensor, codes: Tensor) -> Tensor:
    """Where a program other than the one of `codes` is noted."""
    who = marks.who[places]
    return (who != 0) & (who != codes)
