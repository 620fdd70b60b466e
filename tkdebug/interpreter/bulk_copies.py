"""Bulk copies by tensor maps, and the mbarriers at which they land.

An mbarrier's state is the word in its buffer, so that whatever overwrites it breaks it here too. A
copy's target is poison from where the copy is issued to the wait at its mbarrier; a wait that would
never end is an error, as only a wrong pass makes one. A copy to memory is made at the wait for it,
and writes poison where its buffer has changed in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.errors import LaunchError
from tkdebug.interpreter.checked_access import loaded_type
from tkdebug.interpreter.descriptor_blocks import DescriptorBlockOps
from tkdebug.interpreter.in_flight import AsyncOps, LandingQueue, bits_of
from tkdebug.interpreter.state import Batch
from tkdebug.interpreter.values import BufferView, DescriptorTile, TileValue

# The word of an mbarrier: its phase, how many arrive in each, how many of them have not yet, a mark
# that tells it from other contents, and the bytes that have not landed (more may than were
# announced, so they have a sign).
_COUNT_BITS = 12
_PHASE, _ALL, _LEFT, _MARK_AT, _BYTES = 0, 1, 1 + _COUNT_BITS, 1 + 2 * _COUNT_BITS, 32
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_MARK_MASK = (1 << _BYTES - _MARK_AT) - 1
_MARK = 0x2B


@dataclass
class _BulkLoad:
    """A copy on its way to a buffer.

    Attributes:
        barrier: where it lands.
        programs: (P,) bool, those in which it has not landed.
    """

    view: BufferView
    values: Tensor
    barrier: BufferView
    size_bytes: int
    programs: Tensor


class BulkCopyOps(AsyncOps, DescriptorBlockOps):
    """ttng.async_tma_* and the ops on mbarriers."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._bulk_loads: list[_BulkLoad] = []
        self._bulk_stores = LandingQueue()

    # Mbarriers

    def init_barrier(self, op: Operation, barrier: TileValue) -> Sequence[TileValue]:
        """ttng.init_barrier."""
        assert isinstance(barrier, BufferView)
        count = op.attributes["count"]
        assert isinstance(count, int)
        word = _MARK << _MARK_AT | count << _ALL | count << _LEFT
        self._put(barrier, torch.full((1,), word, device=self.device), self.active)
        return ()

    def inval_barrier(self, op: Operation, barrier: TileValue) -> Sequence[TileValue]:
        """ttng.inval_barrier."""
        assert isinstance(barrier, BufferView)
        self._state(op, barrier, self._all_active())
        self.write_view(barrier, self.poison(op.operands[0].type), self.active)
        return ()

    def barrier_expect(
        self, op: Operation, barrier: TileValue, predicate: TileValue
    ) -> Sequence[TileValue]:
        """ttng.barrier_expect."""
        assert isinstance(barrier, BufferView)
        size_bytes = op.attributes["size_bytes"]
        assert isinstance(size_bytes, int)
        programs = self._where(predicate)
        state = self._state(op, barrier, programs)
        self._put(barrier, _ended(state - (1 << _LEFT) + (size_bytes << _BYTES)), programs)
        return ()

    def wait_barrier(
        self, op: Operation, barrier: TileValue, phase: TileValue
    ) -> Sequence[TileValue]:
        """ttng.wait_barrier: what was announced to the mbarrier lands."""
        assert isinstance(barrier, BufferView)
        active = self._all_active()
        for load in self._bulk_loads:
            here = load.programs & active & self._same(load.barrier, barrier)
            if bool(here.any()):
                self.write_view(load.view, load.values, here)
                load.programs = load.programs & ~here
                state = self._state(op, barrier, here)
                self._put(barrier, _ended(state - (load.size_bytes << _BYTES)), here)
        self._bulk_loads = [load for load in self._bulk_loads if bool(load.programs.any())]
        state = self._state(op, barrier, active)
        parity = self.dense(phase, ir.I32).reshape(-1) & 1
        stuck = ((state >> _PHASE & 1) == parity) & active
        if bool(stuck.any()):
            where = op.location.primary
            raise LaunchError(
                f"{where.file}:{where.line}: {op.name} #{op.id}: the phase it waits for never "
                "ends; a pass announces bytes or counts phases wrongly"
            )
        return ()

    def _all_active(self) -> Tensor:
        if self.active is not None:
            return self.active
        return torch.ones(self.programs, dtype=torch.bool, device=self.device)

    def _where(self, predicate: TileValue) -> Tensor:
        """(P,) bool: the programs in which an op with a predicate acts."""
        holds = self.dense(predicate, ir.I1).reshape(-1)
        return self._all_active() & holds

    def _state(self, op: Operation, barrier: BufferView, programs: Tensor) -> Tensor:
        """(P,) i64: the words of an mbarrier, which must be one in `programs`."""
        words = self.read_view(barrier).reshape(-1).expand(self.programs)
        if bool((programs & ((words >> _MARK_AT & _MARK_MASK) != _MARK)).any()):
            where = op.location.primary
            raise LaunchError(
                f"{where.file}:{where.line}: {op.name} #{op.id}: its buffer holds no mbarrier; "
                "a pass did not make it, or something overwrote it"
            )
        return words

    def _put(self, barrier: BufferView, words: Tensor, programs: Tensor | None) -> None:
        self.write_view(barrier, words.reshape(-1, 1), programs)

    def _same(self, a: BufferView, b: BufferView) -> Tensor:
        """(P,) bool: the programs in which two views show one mbarrier."""
        assert a.other is None
        assert b.other is None
        if a.storage.data_ptr() != b.storage.data_ptr():
            return torch.zeros(self.programs, dtype=torch.bool, device=self.device)
        return self._indices(a.index) == self._indices(b.index)

    # Copies

    def bulk_load(
        self,
        op: Operation,
        descriptor: TileValue,
        view: TileValue,
        barrier: TileValue,
        predicate: TileValue,
        *offsets: TileValue,
    ) -> Sequence[TileValue]:
        """ttng.async_tma_copy_global_to_local; memory is read now."""
        assert isinstance(view, BufferView)
        assert isinstance(barrier, BufferView)
        programs = self._where(predicate)
        if not bool(programs.any()):
            return ()
        self._state(op, barrier, programs)
        type_ = loaded_type(op)
        with self._only(programs):
            values = self.contents(self.descriptor_load(op, descriptor, *offsets), type_)
        self.write_view(view, self.poison(type_), programs)
        size_bytes = values[0].numel() * values.element_size()
        self._bulk_loads.append(_BulkLoad(view, values, barrier, size_bytes, programs))
        return ()

    def bulk_store(
        self, op: Operation, descriptor: TileValue, view: TileValue, *offsets: TileValue
    ) -> Sequence[TileValue]:
        """ttng.async_tma_copy_local_to_global."""
        assert isinstance(view, BufferView)
        assert isinstance(descriptor, DescriptorTile)
        started = self.read_view(view)

        def land(programs: Tensor | None) -> None:
            ended = self.read_view(view)
            poison = self.poison(op.operands[1].type)
            stored = torch.where(bits_of(started) != bits_of(ended), poison, ended)
            with self._only(self._all_active() if programs is None else programs):
                self.descriptor_store(op, descriptor, stored, *offsets)

        self._bulk_stores.push(land, self.active)
        return ()

    def bulk_store_wait(self, op: Operation) -> Sequence[TileValue]:
        """ttng.async_tma_store_wait."""
        pendings = op.attributes["pendings"]
        assert isinstance(pendings, int)
        self._bulk_stores.land(pendings, self.active)
        return ()

    @contextmanager
    def _only(self, programs: Tensor) -> Iterator[None]:
        """Let ops act in `programs` alone."""
        outer = self.active
        self.active = None if bool(programs.all()) else programs
        try:
            yield
        finally:
            self.active = outer


def _ended(state: Tensor) -> Tensor:
    """The words after what has just been done: a phase that has nothing left ends."""
    is_over = ((state >> _LEFT & _COUNT_MASK) == 0) & ((state >> _BYTES) == 0)
    anew = (state ^ (1 << _PHASE)) + ((state >> _ALL & _COUNT_MASK) << _LEFT)
    return torch.where(is_over, anew, state)
