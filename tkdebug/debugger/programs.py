"""Selections of programs, and the places of all programs of a launch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.ir import Operation
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

Grid = tuple[int, int, int]
ProgramId = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Selection:
    """Some programs of a launch, or all of them.

    Attributes:
        programs: their linear numbers, x fastest; None for all.
    """

    programs: frozenset[int] | None = None

    @classmethod
    def of(cls, ids: Iterable[Sequence[int]], grid: Grid) -> Selection:
        """The programs with `ids`, of one to three numbers each.

        Raises:
            UsageError: a program is outside of the grid.
        """
        return cls(frozenset(linear_id(id_, grid) for id_ in ids))

    @classmethod
    def narrowed(cls, programs: frozenset[int], grid: Grid) -> Selection:
        """The programs of these linear numbers; all of a grid count as no selection."""
        return cls(None if len(programs) == math.prod(grid) else programs)

    def positions(self, run: Evaluator) -> Tensor:
        """The batch positions of the programs that take part just now, int64, in order."""
        if run.active is None:
            here = torch.arange(run.programs)
        else:
            here = run.active.nonzero().reshape(-1).cpu()
        if self.programs is None:
            return here
        return torch.tensor(
            [place for place in here.tolist() if run.first + place in self.programs],
            dtype=torch.int64,
        )

    def is_here(self, run: Evaluator) -> bool:
        """Whether one of the programs takes part just now."""
        return self.is_among(run.first, run.programs, run.active)

    def is_among(self, first: int, count: int, active: Tensor | None) -> bool:
        """Whether one of them is in a batch, of `count` programs from `first` on, and active."""
        if self.programs is None:
            return True
        for program in self.programs:
            if first <= program < first + count:
                if active is None or bool(active[program - first]):
                    return True
        return False

    def __contains__(self, program: int) -> bool:
        return self.programs is None or program in self.programs

    def text(self, grid: Grid) -> str:
        """Return it as people read it: `all programs`, `program (3, 0, 0)`, `3 programs`."""
        if self.programs is None:
            return "all programs"
        if len(self.programs) == 1:
            return f"program {program_text(next(iter(self.programs)), grid)}"
        return f"{len(self.programs)} programs"


ALL = Selection()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Programs of the batch that do not take part just now, and why.

    Attributes:
        line: the line of the `if` or the loop at which they parted.
        reason: "in the other branch of the `if`", "past the loop".
        programs: their linear numbers.
    """

    line: int
    reason: str
    programs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Census:
    """The places of all programs of a launch.

    Attributes:
        here: linear numbers of the programs at the stop.
        elsewhere: the programs that are masked off.
        waiting: the number of programs that have begun and wait for others.
        ended: the number that have ended.
        not_begun: the number that have not begun.
    """

    grid: Grid
    here: tuple[int, ...]
    elsewhere: tuple[Elsewhere, ...]
    waiting: int
    ended: int
    not_begun: int

    @property
    def total(self) -> int:
        """All programs of the launch."""
        return math.prod(self.grid)

    def text(self) -> str:
        """Return the number of programs at each place, as one line."""
        if len(self.here) == self.total:
            return f"all {self.total} programs are here" if self.total > 1 else "the only program"
        verb = "is" if len(self.here) == 1 else "are"
        parts = [f"{len(self.here)} of {self.total} programs {verb} here"]
        parts += [
            f"{len(group.programs)} {group.reason} at line {group.line}" for group in self.elsewhere
        ]
        for count, what in (
            (self.waiting, "waiting"),
            (self.ended, "ended"),
            (self.not_begun, "not begun"),
        ):
            if count:
                parts.append(f"{count} {what}")
        return ", ".join(parts)


def elsewhere(
    run: Evaluator, entered: Sequence[tuple[Operation, Tensor | None]]
) -> list[Elsewhere]:
    """The masked-off programs of a batch, by the place where they parted from the active ones.

    Args:
        run: the batch.
        entered: each op whose region is running, outermost first, with the programs in it.
    """
    if run.active is None:
        return []
    found: list[Elsewhere] = []
    before: Tensor = torch.ones(run.programs, dtype=torch.bool)
    for op, active in [*entered]:
        now = torch.ones(run.programs, dtype=torch.bool) if active is None else active.cpu()
        gone = before & ~now
        if bool(gone.any()):
            reason = "in the other branch of the `if`" if scf.If.matches(op) else "past the loop"
            programs = tuple(run.first + place for place in gone.nonzero().reshape(-1).tolist())
            found.append(Elsewhere(op.location.primary.line, reason, programs))
        before = now
    return found


def linear_id(id_: Sequence[int], grid: Grid) -> int:
    """The linear number of a program by its id along x, y, z.

    Raises:
        UsageError: the id is outside of the grid.
    """
    full = (*id_, 0, 0, 0)[:3]
    if len(id_) > 3 or any(
        not 0 <= place < extent for place, extent in zip(full, grid, strict=True)
    ):
        shown = ", ".join(map(str, id_))
        raise UsageError(f"program ({shown}) is outside of the grid {grid}")
    x, y, z = full
    return x + grid[0] * (y + grid[1] * z)


def program_id(linear: int, grid: Grid) -> ProgramId:
    """The id of a program along x, y, z."""
    return linear % grid[0], linear // grid[0] % grid[1], linear // (grid[0] * grid[1])


def program_text(linear: int, grid: Grid) -> str:
    """The id as people write it, as long as the grid needs: `3`, `(3, 1)`, `(3, 1, 0)`."""
    id_ = program_id(linear, grid)
    rank = 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1
    return str(id_[0]) if rank == 1 else str(id_[:rank])
