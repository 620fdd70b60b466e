"""Asynchronous copies and dots: how they start, and how waits end them.

A copy's target is poison from where the copy is issued until it lands. A dot's result is poison
until its wait hands it on, and stays poison when an operand's buffer changed in between. A bulk
copy lands at its mbarrier, whose state is the word in its buffer, so that whatever overwrites it
breaks it here too; a wait that would never end is an error, as only a wrong pass makes one. A copy
to memory is made at the wait for it, and writes poison where its buffer has changed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import ttg, ttng
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.errors import LaunchError
from tkdebug.interpreter.in_flight import BulkLoad, Copy
from tkdebug.interpreter.memory.checked_access import loaded_type
from tkdebug.interpreter.memory.descriptors import load_block, store_block
from tkdebug.interpreter.memory.loads_and_stores import load_pointers
from tkdebug.interpreter.memory.shared_buffers import (
    buffer_contents,
    indices,
    poison_of,
    read_view,
    write_view,
)
from tkdebug.interpreter.tile_ops.dots import dot
from tkdebug.interpreter.tiles.values import BufferView, DescriptorTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# Copies


def async_copy(
    run: Evaluator,
    view: ttg.AsyncCopyGlobalToLocal,
    pointer: TileValue,
    buffer: TileValue,
    mask: TileValue = 1,
    other: TileValue | None = None,
) -> int:
    """ttg.async_copy_global_to_local; memory is read now, the buffer written at the wait."""
    assert isinstance(buffer, BufferView)
    loaded = load_pointers(run, view.op, pointer, mask, other)
    values = buffer_contents(run, loaded, loaded_type(view.op))
    write_view(run, buffer, poison_of(run, view.buffer.type), run.active)
    run.in_flight.uncommitted.append(Copy(view.op, buffer, values, run.active))
    return 0


def async_commit_group(run: Evaluator, view: ttg.AsyncCommitGroup, *tokens: TileValue) -> int:
    """ttg.async_commit_group."""
    group, left = run.in_flight.uncommitted, []
    if run.active is not None:
        for copy in group:
            outside = ~run.active if copy.programs is None else copy.programs & ~run.active
            if bool(outside.any()):
                left.append(Copy(copy.op, copy.view, copy.values, outside))

    def land(programs: Tensor | None) -> None:
        for copy in group:
            mask = copy.programs
            if programs is not None:
                mask = programs if mask is None else mask & programs
            write_view(run, copy.view, copy.values, mask)

    run.in_flight.uncommitted = left
    run.in_flight.copies.push(land, run.active, [copy.op for copy in group], group)
    return 0


def async_wait(run: Evaluator, view: ttg.AsyncWait, *tokens: TileValue) -> int:
    """ttg.async_wait."""
    run.in_flight.copies.land(view.num, run.active)
    return 0


# Dots


def local_dot(
    run: Evaluator, view: ttg.LocalDot, a: TileValue, b: TileValue, acc: TileValue
) -> TileValue:
    """ttg.local_dot."""
    return dot(run, view, _operand(run, a), _operand(run, b), acc)


def warp_group_dot(
    run: Evaluator, view: ttng.WarpGroupDot, a: TileValue, b: TileValue, acc: TileValue
) -> TileValue:
    """ttng.warp_group_dot: at once, or with `async` at its wait."""
    if not view.is_async:
        return dot(run, view, _operand(run, a), _operand(run, b), acc)
    started = [_operand(run, a), _operand(run, b)]
    total = run.in_flight.pending.get(acc) if isinstance(acc, Tensor) else None
    poison = poison_of(run, view.result.type)
    settled = poison.repeat(run.programs, *ir.shape_of(view.result.type))

    def land(programs: Tensor | None) -> None:
        ended = [_operand(run, a), _operand(run, b)]
        value = run.dense(
            dot(run, view, ended[0], ended[1], acc if total is None else total()), view.result.type
        )
        value = torch.where(_changed(run, started, ended), poison, value)
        if programs is None:
            settled.copy_(value)
        else:
            settled[programs] = value.expand(settled.shape)[programs]

    run.in_flight.dots.push(land, run.active, [view.op])
    return _until_settled(run, poison, lambda: settled)


def _operand(run: Evaluator, value: TileValue) -> TileValue:
    return read_view(run, value) if isinstance(value, BufferView) else value


def _changed(run: Evaluator, before: Sequence[TileValue], after: Sequence[TileValue]) -> Tensor:
    """Return programs in which an operand has changed, (P, 1, 1) bool."""
    changed = torch.zeros(run.programs, dtype=torch.bool, device=run.device)
    for old, new in zip(before, after, strict=True):
        if old is new:
            continue
        assert isinstance(old, Tensor)
        assert isinstance(new, Tensor)
        differ = bits_of(old) != bits_of(new)
        changed |= differ.reshape(differ.shape[0], -1).any(1)
    return changed.reshape(-1, 1, 1)


def _until_settled(run: Evaluator, visible: Tensor, settled: Callable[[], Tensor]) -> Tensor:
    """Return a copy of `visible` that is pending: a wait replaces it by `settled()`."""
    shown = visible.clone()
    run.in_flight.pending[shown] = settled
    return shown


def warp_group_dot_wait(
    run: Evaluator, view: ttng.WarpGroupDotWait, *operands: TileValue
) -> Sequence[TileValue]:
    """ttng.warp_group_dot_wait."""
    pendings = view.pendings
    run.in_flight.dots.land(pendings, run.active)
    results: list[TileValue] = []
    for value in operands:
        settled = run.in_flight.pending.get(value) if isinstance(value, Tensor) else None
        if settled is None:
            results.append(value)
        elif pendings == 0 and run.active is None:
            results.append(settled().clone())
        else:
            results.append(_until_settled(run, settled(), settled))
    return results


def blend_pending(run: Evaluator, test: Tensor, a: TileValue, b: TileValue, out: Tensor) -> Tensor:
    """Return `out` (`a` where `test` holds, else `b`), marked as pending if a source is pending."""
    pending = [run.in_flight.pending.get(v) if isinstance(v, Tensor) else None for v in (a, b)]
    if pending == [None, None]:
        return out
    first, second = (
        (lambda value=value: value) if found is None else found
        for found, value in zip(pending, (a, b), strict=True)
    )
    column = test.reshape(-1, *(1,) * (out.dim() - 1))
    return _until_settled(run, out, lambda: torch.where(column, first(), second()))


_BIT_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(tensor: Tensor) -> Tensor:
    """The elements as integers, so that NaN equals itself."""
    return tensor.contiguous().view(_BIT_DTYPES[tensor.element_size()])


# The word of an mbarrier: its phase, how many arrive in each, how many of them have not yet, a mark
# that distinguishes it from other contents, and the bytes that have not landed (more may than were
# announced, so they have a sign).
_COUNT_BITS = 12
_PHASE, _ALL, _LEFT, _MARK_AT, _BYTES = 0, 1, 1 + _COUNT_BITS, 1 + 2 * _COUNT_BITS, 32
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_MARK_MASK = (1 << _BYTES - _MARK_AT) - 1
_MARK = 0x2B


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
    """ttng.wait_barrier: end the copies that were announced to the mbarrier."""
    assert isinstance(barrier, BufferView)
    active = _all_active(run)
    for load in run.in_flight.bulk_loads:
        here = load.programs & active & _same(run, load.barrier, barrier)
        if bool(here.any()):
            write_view(run, load.view, load.values, here)
            load.programs = load.programs & ~here
            state = _state(run, view, barrier, here)
            _put(run, barrier, _ended(state - (load.size_bytes << _BYTES)), here)
    run.in_flight.bulk_loads = [
        load for load in run.in_flight.bulk_loads if bool(load.programs.any())
    ]
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
    """Return the state of an mbarrier's word (one element) as text; "" if it is no mbarrier."""
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
    """Return the programs in which an op with a predicate acts, (P,) bool."""
    holds = run.dense(predicate, ir.I1).reshape(-1)
    return _all_active(run) & holds


def _state(run: Evaluator, view: OpView, barrier: BufferView, programs: Tensor) -> Tensor:
    """Return the words of an mbarrier, (P,) i64.

    Raises:
        LaunchError: the buffer holds no mbarrier in some of `programs`.
    """
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
    """Return the programs in which two views show one mbarrier, (P,) bool."""
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
    run.in_flight.bulk_loads.append(BulkLoad(op, buffer, values, barrier, size_bytes, programs))
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

    run.in_flight.bulk_stores.push(land, run.active, [view.op])
    return ()


def bulk_store_wait(run: Evaluator, view: ttng.AsyncTmaStoreWait) -> Sequence[TileValue]:
    """ttng.async_tma_store_wait."""
    run.in_flight.bulk_stores.land(view.pendings, run.active)
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
    """Return an mbarrier's words after an arrival: a phase with nothing left to wait for ends."""
    is_over = ((state >> _LEFT & _COUNT_MASK) == 0) & ((state >> _BYTES) == 0)
    renewed = (state ^ (1 << _PHASE)) + ((state >> _ALL & _COUNT_MASK) << _LEFT)
    return torch.where(is_over, renewed, state)
