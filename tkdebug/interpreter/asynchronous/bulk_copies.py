"""Bulk copies by tensor maps, and the mbarriers that they complete on.

An mbarrier's state is the word in its buffer, so that whatever overwrites it breaks it here too. A
copy's target is poison from where the copy is issued to the wait at its mbarrier; a wait that would
never end is an error, as only a wrong pass makes one. A copy to memory is made at the wait for it,
and writes poison where its buffer has changed in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import ttng
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.errors import LaunchError
from tkdebug.interpreter.asynchronous.in_flight import bits_of
from tkdebug.interpreter.memory.checked_access import loaded_type
from tkdebug.interpreter.memory.descriptors import load_block, store_block
from tkdebug.interpreter.memory.shared_buffers import (
    buffer_contents,
    indices,
    poison_of,
    read_view,
    write_view,
)
from tkdebug.interpreter.tiles.values import BufferView, DescriptorTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# The word of an mbarrier: its phase, how many arrive in each, how many of them have not yet, a mark
# that distinguishes it from other contents, and the bytes that have not landed (more may than were
# announced, so they have a sign).
_COUNT_BITS = 12
_PHASE, _ALL, _LEFT, _MARK_AT, _BYTES = 0, 1, 1 + _COUNT_BITS, 1 + 2 * _COUNT_BITS, 32
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_MARK_MASK = (1 << _BYTES - _MARK_AT) - 1
_MARK = 0x2B


@dataclass
class BulkLoad:
    """A copy on its way to a buffer.

    Attributes:
        op: that started it.
        barrier: where it lands.
        programs: (P,) bool, those in which it has not landed.
    """

    op: Operation
    view: BufferView
    values: Tensor
    barrier: BufferView
    size_bytes: int
    programs: Tensor


# Mbarriers


def init_barrier(run: Evaluator, view: ttng.InitBarrier, barrier: TileValue) -> Sequence[TileValue]:
    """ttng.init_barrier."""
    assert isinstance(barrier, BufferView)
    word = _MARK << _MARK_AT | view.count << _ALL | view.count << _LEFT
    _put(run, barrier, torch.full((1,), word, device=run.device), run.active)
    return ()


def inval_barrier(
    run: Evaluator, view: ttng.InvalBarrier, barrier: TileValue
) -> Sequence[TileValue]:
    """ttng.inval_barrier."""
    assert isinstance(barrier, BufferView)
    _state(run, view, barrier, _all_active(run))
    write_view(run, barrier, poison_of(run, view.barrier.type), run.active)
    return ()


def barrier_expect(
    run: Evaluator, view: ttng.BarrierExpect, barrier: TileValue, predicate: TileValue
) -> Sequence[TileValue]:
    """ttng.barrier_expect."""
    assert isinstance(barrier, BufferView)
    programs = _where(run, predicate)
    state = _state(run, view, barrier, programs)
    _put(run, barrier, _ended(state - (1 << _LEFT) + (view.size_bytes << _BYTES)), programs)
    return ()


def wait_barrier(
    run: Evaluator, view: ttng.WaitBarrier, barrier: TileValue, phase: TileValue
) -> Sequence[TileValue]:
    """ttng.wait_barrier: what was announced to the mbarrier lands."""
    assert isinstance(barrier, BufferView)
    active = _all_active(run)
    for load in run.bulk_loads:
        here = load.programs & active & _same(run, load.barrier, barrier)
        if bool(here.any()):
            write_view(run, load.view, load.values, here)
            load.programs = load.programs & ~here
            state = _state(run, view, barrier, here)
            _put(run, barrier, _ended(state - (load.size_bytes << _BYTES)), here)
    run.bulk_loads = [load for load in run.bulk_loads if bool(load.programs.any())]
    state = _state(run, view, barrier, active)
    parity = run.dense(phase, ir.I32).reshape(-1) & 1
    stuck = ((state >> _PHASE & 1) == parity) & active
    if bool(stuck.any()):
        where = view.op.location.primary
        raise LaunchError(
            f"{where.file}:{where.line}: {view.name} #{view.op.id}: the phase it waits for never "
            "ends; a pass announces bytes or counts phases wrongly"
        )
    return ()


def mbarrier_text(words: Tensor) -> str:
    """What an mbarrier's word (one element) says; "" where it is none."""
    word = int(words.reshape(-1)[0])
    if words.numel() != 1 or word >> _MARK_AT & _MARK_MASK != _MARK:
        return ""
    left, size_bytes = word >> _LEFT & _COUNT_MASK, word >> _BYTES
    return f"mbarrier in phase {word >> _PHASE & 1}, {left} to arrive, {size_bytes} bytes to land"


def _all_active(run: Evaluator) -> Tensor:
    if run.active is not None:
        return run.active
    return torch.ones(run.programs, dtype=torch.bool, device=run.device)


def _where(run: Evaluator, predicate: TileValue) -> Tensor:
    """(P,) bool: the programs in which an op with a predicate acts."""
    holds = run.dense(predicate, ir.I1).reshape(-1)
    return _all_active(run) & holds


def _state(run: Evaluator, view: OpView, barrier: BufferView, programs: Tensor) -> Tensor:
    """(P,) i64: the words of an mbarrier, which must be one in `programs`."""
    words = read_view(run, barrier).reshape(-1).expand(run.programs)
    if bool((programs & ((words >> _MARK_AT & _MARK_MASK) != _MARK)).any()):
        where = view.op.location.primary
        raise LaunchError(
            f"{where.file}:{where.line}: {view.name} #{view.op.id}: its buffer holds no mbarrier; "
            "a pass did not make it, or something overwrote it"
        )
    return words


def _put(run: Evaluator, barrier: BufferView, words: Tensor, programs: Tensor | None) -> None:
    write_view(run, barrier, words.reshape(-1, 1), programs)


def _same(run: Evaluator, a: BufferView, b: BufferView) -> Tensor:
    """(P,) bool: the programs in which two views show one mbarrier."""
    assert a.other is None
    assert b.other is None
    if a.storage.data_ptr() != b.storage.data_ptr():
        return torch.zeros(run.programs, dtype=torch.bool, device=run.device)
    return indices(run, a.index) == indices(run, b.index)


# Copies


def bulk_load(
    run: Evaluator,
    view: ttng.AsyncTmaCopyGlobalToLocal,
    descriptor: TileValue,
    buffer: TileValue,
    barrier: TileValue,
    predicate: TileValue,
    *offsets: TileValue,
) -> Sequence[TileValue]:
    """ttng.async_tma_copy_global_to_local; memory is read now."""
    assert isinstance(buffer, BufferView)
    assert isinstance(barrier, BufferView)
    programs = _where(run, predicate)
    if not bool(programs.any()):
        return ()
    _state(run, view, barrier, programs)
    op = view.op
    type_ = loaded_type(op)
    with _only(run, programs):
        values = buffer_contents(run, load_block(run, op, descriptor, offsets), type_)
    write_view(run, buffer, poison_of(run, type_), programs)
    size_bytes = values[0].numel() * values.element_size()
    run.bulk_loads.append(BulkLoad(op, buffer, values, barrier, size_bytes, programs))
    return ()


def bulk_store(
    run: Evaluator,
    view: ttng.AsyncTmaCopyLocalToGlobal,
    descriptor: TileValue,
    buffer: TileValue,
    *offsets: TileValue,
) -> Sequence[TileValue]:
    """ttng.async_tma_copy_local_to_global."""
    assert isinstance(buffer, BufferView)
    assert isinstance(descriptor, DescriptorTile)
    block = view.buffer.type
    started = read_view(run, buffer)

    def land(programs: Tensor | None) -> None:
        ended = read_view(run, buffer)
        poison = poison_of(run, block)
        stored = torch.where(bits_of(started) != bits_of(ended), poison, ended)
        with _only(run, _all_active(run) if programs is None else programs):
            store_block(run, view.op, block, descriptor, stored, offsets)

    run.bulk_stores.push(land, run.active, [view.op])
    return ()


def bulk_store_wait(run: Evaluator, view: ttng.AsyncTmaStoreWait) -> Sequence[TileValue]:
    """ttng.async_tma_store_wait."""
    run.bulk_stores.land(view.pendings, run.active)
    return ()


@contextmanager
def _only(run: Evaluator, programs: Tensor) -> Iterator[None]:
    """Let ops act in `programs` alone."""
    outer = run.active
    run.active = None if bool(programs.all()) else programs
    try:
        yield
    finally:
        run.active = outer


def _ended(state: Tensor) -> Tensor:
    """The words after what has just been done: a phase that has nothing left ends."""
    is_over = ((state >> _LEFT & _COUNT_MASK) == 0) & ((state >> _BYTES) == 0)
    anew = (state ^ (1 << _PHASE)) + ((state >> _ALL & _COUNT_MASK) << _LEFT)
    return torch.where(is_over, anew, state)
