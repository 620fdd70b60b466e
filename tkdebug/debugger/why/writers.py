"""Writers of memory: the write of an element in a launch, and the launch that wrote a tensor last.

Writes in the launch, and writes of the memory that a slice has loaded, are found by executing
again.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.causes.launches import REMEMBERED
from tkdebug.compiler.ir import Operation
from tkdebug.debugger.elements import tensor_in
from tkdebug.debugger.execution import CountingObserver, Execution
from tkdebug.debugger.stops import Moment

if TYPE_CHECKING:
    from tkdebug.debugger.elements import Element
    from tkdebug.interpreter.memory.observed_access import ObservedAccess
    from tkdebug.interpreter.memory.touched import Touched
    from tkdebug.interpreter.state import EvaluatorState


@dataclass(frozen=True, slots=True)
class Write:
    """A write of an element.

    Attributes:
        time: the number of ops that had begun.
        program: the linear number of the program that wrote.
        lane: the position in the tile that was stored, row by row.
        byte: the place of the element's first byte in its allocation.
    """

    time: int
    op: Operation
    program: int
    lane: int
    byte: int


class WriteFinder(CountingObserver):
    """Notes the last write of an element."""

    follows_accesses = True

    def __init__(self, execution: Execution, until: Moment, now: int, element: Element) -> None:
        super().__init__(execution, until, now)
        self._element = element
        self.found: Write | None = None

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note a store."""
        self._note(access)

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note an atomic."""
        self._note(access)

    def _note(self, access: ObservedAccess) -> None:
        element = self._element
        if access.buffer.storage_key != element.storage_key:
            return
        touched = access.touch()
        hit = (touched.places * access.itemsize == element.byte).nonzero().reshape(-1)
        if hit.numel():
            last = int(hit[-1])
            self.found = _write(self.now, access, touched, last)


def write_of(execution: Execution, element: Element, until: Moment) -> Write | None:
    """Return the last write of an element up to a moment, or None."""
    finder = execution.execute_beside(
        lambda now: WriteFinder(execution, until, now, element), until, is_whole=True
    )
    return finder.found


class SourceFinder(CountingObserver):
    """Notes the writes of memory that a slice has loaded.

    Attributes:
        found: by allocation the last write that hit one of its elements.
    """

    follows_accesses = True

    def __init__(
        self,
        execution: Execution,
        until: Moment,
        now: int,
        bytes_of: Mapping[int, Tensor],
    ) -> None:
        super().__init__(execution, until, now)
        self.found: dict[int, Write] = {}
        self._bytes_of = bytes_of

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note a store."""
        self._note(access)

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note an atomic."""
        self._note(access)

    def _note(self, access: ObservedAccess) -> None:
        wanted = self._bytes_of.get(access.buffer.storage_key)
        if wanted is None:
            return
        touched = access.touch()
        hit = torch.isin(touched.places * access.itemsize, wanted).nonzero().reshape(-1)
        if hit.numel():
            last = int(hit[-1])
            self.found[access.buffer.storage_key] = _write(self.now, access, touched, last)


def _write(now: int, access: ObservedAccess, touched: Touched, at: int) -> Write:
    byte = int(touched.places[at]) * access.itemsize
    return Write(now, access.op, int(touched.programs[at]), int(touched.lanes[at]), byte)


def bit_mask(shape: Sequence[int], lane: int) -> Tensor:
    """A mask that is true at one position of a tile."""
    mask = torch.zeros(tuple(shape), dtype=torch.bool)
    mask.reshape(-1)[lane] = True
    return mask


@dataclass(frozen=True, slots=True)
class Writer:
    """A launch that has written memory.

    Attributes:
        number: its number among the launches that are debugged, from 1 on; 0 if it is not known.
        ordinal: its number among those of its kernel, from 1 on; 0 if it is not known.
        place: the number of remembered launches before it.
    """

    number: int
    kernel: str
    ordinal: int
    place: int

    def __str__(self) -> str:
        return f"launch {self.number} of {self.kernel}" if self.number else self.kernel


@dataclass(frozen=True, slots=True)
class _Known:
    storage: weakref.ref[torch.UntypedStorage]
    version: int
    writer: Writer


class Writers:
    """The last launch that may have written each allocation.

    torch counts changes of a tensor in place: after anything but a launch the writer is unknown.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._by_place: dict[int, Writer] = {}

    def note(
        self, tensors: Iterable[Tensor], number: int, kernel: str, ordinal: int, place: int
    ) -> None:
        """Note that a launch has written `tensors`; the other arguments are as for `Writer`."""
        writer = self._by_place[place] = Writer(number, kernel, ordinal, place)
        self._by_place.pop(place - REMEMBERED, None)
        for tensor in tensors:
            version = _version(tensor)
            if version is not None:
                storage = tensor.untyped_storage()
                known = _Known(weakref.ref(storage), version, writer)
                self._known[storage.data_ptr()] = known

    def of(self, arguments: Iterable[Any]) -> dict[int, Writer]:
        """Return the last writers of the allocations of a launch's arguments, by address."""
        found: dict[int, Writer] = {}
        for argument in arguments:
            if isinstance(argument, tuple):
                found |= self.of(argument)
            tensor = tensor_in(argument)
            if tensor is None:
                continue
            key = tensor.untyped_storage().data_ptr()
            known = self._known.get(key)
            if known is not None and known.storage() is not None:
                if known.version == _version(tensor):
                    found[key] = known.writer
        return found

    def at(self, place: int, kernel: str) -> Writer:
        """Return the launch of a kernel after `place` remembered ones; unnumbered if unknown."""
        return self._by_place.get(place) or Writer(0, kernel, 0, place)


def _version(tensor: Tensor) -> int | None:
    """Return how often torch has changed a tensor; None if it does not count."""
    return None if tensor.is_inference() else tensor._version  # noqa: SLF001
