"""A launch's memory as it was before some of its batches, so that it can be executed again.

An execution depends only on what is saved here. Programs that wait for each other are no batches:
their launch has the first checkpoint only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.debugger.stops import Moment
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.address_registry import ADDRESSES
from tkdebug.interpreter.observers import LaunchContext


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A moment from which a launch can be executed.

    Attributes:
        op: the number of ops that had begun.
        first: the first program of the batch.
        memory: the bytes of each storage that may be written.
        faults: the faults found until then.
    """

    op: int
    first: int
    memory: tuple[Tensor, ...]
    faults: FaultLog

    @property
    def size_bytes(self) -> int:
        """The bytes that it holds."""
        return sum(tensor.numel() for tensor in self.memory)


class Checkpoints:
    """The checkpoints of one launch.

    Args:
        limit_bytes: the most bytes of all but the first one together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._live: tuple[Tensor, ...] = ()
        self._taken: list[Checkpoint] = []

    def begin(self, launch: LaunchContext) -> None:
        """Find the memory that the launch may write, unless it is executed again."""
        if not self._taken:
            self._live = tuple(_written_storages(launch))

    def take(self, op: int, first: int, faults: FaultLog) -> None:
        """Save the memory before a batch; over the budget, drop every second checkpoint."""
        if self._taken and op <= self._taken[-1].op:
            return
        self._taken.append(
            Checkpoint(op, first, tuple(one.clone() for one in self._live), faults.copied())
        )
        while len(self._taken) > 2 and self.size_bytes > self._limit_bytes:
            # Every second one goes: what is left is as far apart everywhere.
            self._taken[1:] = self._taken[2::2]

    @property
    def size_bytes(self) -> int:
        """Size in bytes of all checkpoints but the first, which the limit does not count."""
        return sum(one.size_bytes for one in self._taken[1:])

    def before(self, moment: Moment) -> Checkpoint:
        """The last checkpoint that is before `moment`, else the first one."""
        return next((one for one in reversed(self._taken) if one.op < moment.op), self._taken[0])

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Restore the present memory after the block."""
        saved = [live.clone() for live in self._live]
        try:
            yield
        finally:
            for live, kept in zip(self._live, saved, strict=True):
                live.copy_(kept)

    @property
    def first(self) -> Checkpoint:
        """The checkpoint of the launch's beginning."""
        return self._taken[0]

    def forget_later(self) -> None:
        """Forget all but the first one."""
        del self._taken[1:]

    def restore(self, checkpoint: Checkpoint) -> None:
        """Put the memory back to what a checkpoint holds."""
        for live, saved in zip(self._live, checkpoint.memory, strict=True):
            live.copy_(saved)


def _written_storages(launch: LaunchContext) -> Iterable[Tensor]:
    buffers = list(launch.buffers)
    if launch.written is None:
        buffers += ADDRESSES.buffers()
    found: dict[int, Tensor] = {}
    for buffer in buffers:
        key = buffer.storage_key
        if key not in found and (launch.written is None or key in launch.written):
            storage = buffer.tensor.untyped_storage()
            memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
            found[key] = memory.set_(storage, 0, (storage.nbytes(),), (1,))
    return found.values()
