"""Copies and dots that were started and not yet waited for, in one batch of programs.

Most come in groups that land in order, at a wait that names how many of the last ones may still be
on their way; programs count their own groups, so divergent ones need not agree.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.tiles.values import BufferView

# Makes something happen in some programs, all for None.
Landing = Callable[[Tensor | None], None]


@dataclass
class Copy:
    """A copy on its way to a buffer.

    Attributes:
        op: the op that started it.
        programs: (P,) bool, the programs that started it; None for all.
    """

    op: Operation
    view: BufferView
    values: Tensor
    programs: Tensor | None


@dataclass
class Group:
    """Copies and dots that land together.

    Attributes:
        waiting: (P,) bool, the programs in which it has not landed; None for all.
        ops: the ops that started them.
        copies: copies to buffers, if it is a group of copies.
    """

    land: Landing
    waiting: Tensor | None
    ops: Sequence[Operation] = ()
    copies: Sequence[Copy] = ()


class LandingQueue:
    """Groups on their way, oldest first."""

    def __init__(self) -> None:
        self._groups: list[Group] = []

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups on their way, oldest first."""
        return tuple(self._groups)

    def push(
        self,
        land: Landing,
        active: Tensor | None,
        ops: Sequence[Operation],
        copies: Sequence[Copy] = (),
    ) -> None:
        """Start a group in the programs `active`."""
        self._groups.append(Group(land, active, ops, copies))

    def land(self, kept: int, active: Tensor | None) -> None:
        """Land all groups but the last `kept` of every program of `active`."""
        if active is None and all(group.waiting is None for group in self._groups):
            while len(self._groups) > kept:
                self._groups.pop(0).land(None)
            return
        masks = [group.waiting for group in self._groups if group.waiting is not None]
        some = active if active is not None else masks[0]
        count = torch.zeros(some.shape, dtype=torch.int64, device=some.device)
        everyone = torch.ones_like(some)
        landing = []
        for group in reversed(self._groups):
            waiting = everyone if group.waiting is None else group.waiting
            due = waiting & (count >= kept)
            landing.append((group, waiting, due if active is None else due & active))
            count = count + waiting
        for group, waiting, due in reversed(landing):
            if bool(due.any()):
                group.land(due)
                group.waiting = waiting & ~due
        self._groups = [g for g in self._groups if g.waiting is None or bool(g.waiting.any())]


@dataclass
class BulkLoad:
    """A copy on its way to a buffer.

    Attributes:
        op: the op that started it.
        barrier: the mbarrier that it lands at.
        programs: (P,) bool, the programs in which it has not landed.
    """

    op: Operation
    view: BufferView
    values: Tensor
    barrier: BufferView
    size_bytes: int
    programs: Tensor


class InFlight:
    """The asynchronous work of one batch.

    Attributes:
        copies: groups of copies.
        uncommitted: copies that are in no group yet.
        dots: asynchronous products.
        pending: by the tensor object of a poison tile, the tile that a wait replaces it by.
        bulk_loads: bulk copies to shared memory.
        bulk_stores: bulk copies from shared memory.
    """

    def __init__(self) -> None:
        self.copies = LandingQueue()
        self.uncommitted: list[Copy] = []
        self.dots = LandingQueue()
        self.pending: MutableMapping[Tensor, Callable[[], Tensor]] = WeakTensorKeyDictionary()
        self.bulk_loads: list[BulkLoad] = []
        self.bulk_stores = LandingQueue()
