"""State of an evaluator: the batch of programs, which of them take part, the algebras of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.strided_access import StridedAccess
from tkdebug.interpreter.tiles.forms import TileForms
from tkdebug.interpreter.tiles.index import IndexAlgebra
from tkdebug.interpreter.tiles.masks import MaskAlgebra
from tkdebug.interpreter.tiles.program_bases import Base, ProgramPattern
from tkdebug.interpreter.tiles.values import (
    AffineTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Batch:
    """Programs `first … first + programs - 1` (x fastest) of a grid, and their settings.

    Attributes:
        fusion: ops that may write over an operand or straight into memory.
        written: storages that the kernel may write, None for any.
        buffers: every tensor that the launch knows of.
        scheduler: lets other programs go on where this one waits, None if none waits.
        numbers: linear numbers of programs that do not follow each other; None for those that do.
            Then `first` is 0, and a program's number is its place here.
    """

    grid: tuple[int, int, int]
    first: int
    programs: int
    device: torch.device
    faults: FaultLog
    fusion: Fusion
    written: frozenset[int] | None = None
    buffers: Sequence[Buffer] = ()
    strict_ieee: bool = False
    scheduler: Scheduler | None = None
    numbers: tuple[int, ...] | None = None


class EvaluatorState(TileForms):
    """State of a batch of programs while it is evaluated: `Batch`'s attributes, and more.

    Attributes:
        active: (P,) bool, the programs that take part just now; None for all.
        lanes: the number of entries of the program axis that one program has.
        index: the algebra of integer tiles.
        masks: the algebra of masks.
        access: reads and writes through offsets that were found legal.
        rounds: by loop, the number and induction variable of its current iteration.
    """

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch.programs, batch.device, batch.fusion)
        self.grid = batch.grid
        self.first = batch.first
        self.faults = batch.faults
        self.written = batch.written
        self.buffers = batch.buffers
        self.strict_ieee = batch.strict_ieee
        self.scheduler = batch.scheduler
        self.numbers = batch.numbers
        self.active: Tensor | None = None
        self.rounds: dict[Operation, tuple[int, TileValue]] = {}
        self.lanes = 1
        self.masks = MaskAlgebra(self)
        self.index = IndexAlgebra(self, self.masks)
        self.access = StridedAccess(self)

    def release(self) -> None:
        """Drop all references; the evaluator cannot be used any more.

        Its parts refer back to it: without this its tiles and the script's tensors would wait for
        the garbage collector.
        """
        vars(self).clear()

    # Programs

    def takes_part(self, program: int) -> bool:
        """Whether the program of a linear number is in the batch, and active just now."""
        place = program - self.first
        if not 0 <= place < self.programs:
            return False
        return self.active is None or bool(self.active[place])

    def program_id(self, axis: int) -> TileValue:
        """Program ids along a grid axis: an int if equal in the batch.

        All lanes of a program have its id.
        """
        x, y, _ = self.grid
        below = (1, x, x * y)[axis]
        extent = self.grid[axis]
        if self.numbers is not None:
            return self._chosen_ids(below, extent)
        programs = self.programs // self.lanes
        first = self.first // below % extent
        last = (self.first + programs - 1) // below % extent
        if programs == 1 or (first == last and programs <= below):
            return first
        if extent == 1:
            return 0
        if below == 1 and first < last == first + programs - 1 and self.lanes == 1:
            steps = ProgramPattern(first, (programs,), (1,))
            return AffineTile(0, Base.of_pattern(steps, (programs,), self.device), (), ())
        ids = torch.arange(self.first, self.first + programs, dtype=torch.int64, device=self.device)
        if below > 1:
            ids = ids.div(below, rounding_mode="floor")
        if below * extent < x * y * self.grid[2]:
            ids = ids % extent
        if self.lanes > 1:
            ids = ids.repeat_interleave(self.lanes)
        return AffineTile(0, Base(ids, (0, extent - 1)), (), ())

    def _chosen_ids(self, below: int, extent: int) -> TileValue:
        assert self.numbers is not None
        ids = torch.tensor([number // below % extent for number in self.numbers])
        if self.lanes > 1:
            ids = ids.repeat_interleave(self.lanes)
        return AffineTile(0, Base(ids.to(self.device), (0, extent - 1)), (), ())

    def num_programs(self, axis: int) -> int:
        """Extent of a grid axis."""
        return self.grid[axis]

    def program_at(self, position: int) -> tuple[int, int, int]:
        """Program id (x, y, z) of the batch's entry at `position` of the program axis."""
        linear = self.first + position // self.lanes
        if self.numbers is not None:
            linear = self.numbers[linear]
        x, y, _ = self.grid
        return (linear % x, linear // x % y, linear // (x * y))

    def offender(
        self,
        bad: Tensor,
        offsets: Tensor | None,
        programs: Tensor | None,
        allowed: Tensor | None = None,
    ) -> Offender:
        """Return the first true element of `bad` (P, *shape), with its offset and program.

        Args:
            bad: bool, full along every axis.
            offsets: broadcastable to `bad`.
            programs: batch positions of bad's programs, None for all of them.
            allowed: the elements that count for `is_whole_tile`, None for all.
        """
        flat = int(bad.reshape(-1).to(torch.uint8).argmax())
        place = []
        for extent in reversed(bad.shape):
            place.append(flat % extent)
            flat //= extent
        place.reverse()
        program = place[0] if programs is None else int(programs[place[0]])
        index = None
        if offsets is not None:
            index = int(offsets.expand(bad.shape)[tuple(place)])
        right = ~bad[place[0]]
        if allowed is not None:
            right = right & allowed.expand(bad.shape)[place[0]]
        return Offender(self.program_at(program), tuple(place[1:]), index, not bool(right.any()))
