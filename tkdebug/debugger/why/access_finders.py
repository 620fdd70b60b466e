"""Who wrote an element, who missed it, and who wrote what was loaded: found by executing again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.debugger.counting import CountingObserver
from tkdebug.debugger.execution import Execution
from tkdebug.debugger.moments import Moment
from tkdebug.interpreter.tiles.values import PointerTile, TileValue

if TYPE_CHECKING:
    from tkdebug.debugger.elements import Element
    from tkdebug.interpreter.evaluator import Evaluator
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


@dataclass(frozen=True, slots=True)
class Miss:
    """A store that addresses an element and does not write it.

    Attributes:
        is_masked: whether its mask is false there; else the program does not come by.
    """

    op: Operation
    program: int
    is_masked: bool


class MissFinder(CountingObserver):
    """Notes the stores that address an element, or what those of its tensor address instead.

    Attributes:
        misses: the first few.
        reached: for each store into the tensor the lowest and the highest element that it
            addresses, from the tensor's first.
    """

    def __init__(self, execution: Execution, until: Moment, now: int, element: Element) -> None:
        super().__init__(execution, until, now)
        self._element = element
        self.misses: list[Miss] = []
        self.reached: dict[Operation, tuple[int, int]] = {}

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Look at a store's pointers."""
        super().before(run, op, operands)
        if not tt.Store.matches(op) or not isinstance(operands[0], PointerTile):
            return
        pointer, element = operands[0], self._element
        buffer = pointer.buffer
        if buffer.storage_key != element.storage_key:
            return
        shape = ir.shape_of(tt.Store(op).pointer.type)
        offsets = run.full(pointer.offset, ir.tile(shape, ir.I64) if shape else ir.I64)
        low, high = self.reached.get(op, (int(offsets.min()), int(offsets.max())))
        self.reached[op] = (min(low, int(offsets.min())), max(high, int(offsets.max())))
        place = element.byte // buffer.itemsize - buffer.storage_offset
        hits = (offsets == place).reshape(offsets.shape[0], -1).any(1)
        hits = hits.expand(run.programs)
        mask = tt.Store(op).mask
        for program in hits.nonzero().reshape(-1).tolist()[:4]:
            is_here = run.active is None or bool(run.active[program])
            if len(self.misses) < 8 and (mask is not None or not is_here):
                self.misses.append(Miss(op, run.first + program, is_here))


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
