"""Who wrote an element, and who wrote what was loaded: found by executing again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.debugger.counting import CountingObserver
from tkdebug.debugger.execution import Execution
from tkdebug.debugger.moments import Moment

if TYPE_CHECKING:
    from tkdebug.debugger.elements import Element
    from tkdebug.interpreter.memory.observed_access import ObservedAccess
    from tkdebug.interpreter.state import EvaluatorState


@dataclass(frozen=True, slots=True)
class Write:
    """A write of an element.

    Attributes:
        time: how many ops had begun.
        program: linear number of who wrote.
        lane: the position in the tile that was stored, row by row.
    """

    time: int
    op: Operation
    program: int
    lane: int


class WriteFinder(CountingObserver):
    """Notes the last write of an element."""

    follows_accesses = True

    def __init__(self, execution: Execution, until: Moment, now: int, element: Element) -> None:
        super().__init__(execution, until, now)
        self._element = element
        self.found: Write | None = None

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a store."""
        self._note(access)

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After an atomic."""
        self._note(access)

    def _note(self, access: ObservedAccess) -> None:
        element = self._element
        if access.buffer.storage_key != element.storage_key:
            return
        touched = access.touch()
        hit = (touched.places * access.itemsize == element.byte).nonzero().reshape(-1)
        if hit.numel():
            last = int(hit[-1])
            self.found = Write(
                self.now, access.op, int(touched.programs[last]), int(touched.lanes[last])
            )


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
        """After a store."""
        self._note(access)

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After an atomic."""
        self._note(access)

    def _note(self, access: ObservedAccess) -> None:
        wanted = self._bytes_of.get(access.buffer.storage_key)
        if wanted is None:
            return
        touched = access.touch()
        hit = torch.isin(touched.places * access.itemsize, wanted).nonzero().reshape(-1)
        if hit.numel():
            last = int(hit[-1])
            self.found[access.buffer.storage_key] = Write(
                self.now, access.op, int(touched.programs[last]), int(touched.lanes[last])
            )


def bit_mask(shape: Sequence[int], lane: int) -> Tensor:
    """A mask that is true at one position of a tile."""
    mask = torch.zeros(tuple(shape), dtype=torch.bool)
    mask.reshape(-1)[lane] = True
    return mask
