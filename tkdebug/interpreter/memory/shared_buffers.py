"""Shared memory of the batch: buffers, views of them, and the poison that they hold.

A buffer is storage of its own until AllocateShared gives it an offset; from then on it is a window
on one arena a program, so that buffers that overlap wrongly overwrite each other here too, and so
do the scratch regions of ops. Memory that was never written, or is being written by a copy that
nobody waited for, is poison: NaN for floats, `POISON` for integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import ttg
from tkdebug.compiler.ir import MemDescType, Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.errors import LaunchError
from tkdebug.interpreter.memory.pointers import byte_addresses
from tkdebug.interpreter.tiles.values import AddressTile, BufferView, PointerTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# 0xDEADBEEF in each 32 bits; narrower integers hold its low bits.
POISON = 0xDEADBEEFDEADBEEF
_ALL_ONES_BYTE = 0xFF


# Poison


def poison_of(run: Evaluator, type_: ir.Type) -> Tensor:
    """Poison of a type's elements, with extent 1 along every axis of the tile."""
    kind = run.dtype_of(type_)
    shape = (1,) * (len(ir.shape_of(type_)) + 1)
    if kind == torch.bool:
        return torch.ones(shape, dtype=kind, device=run.device)
    if kind == torch.uint8:
        # f8E4M3B11FNUZ has one NaN: the sign bit alone.
        return torch.full(shape, 0x80, dtype=kind, device=run.device)
    if kind.is_floating_point:
        return torch.full(shape, float("nan"), device=run.device).to(kind)
    bits = POISON & ((1 << torch.iinfo(kind).bits) - 1)
    signed = bits - (1 << torch.iinfo(kind).bits)
    return torch.full(shape, signed, dtype=kind, device=run.device)


# Buffers


def local_alloc(run: Evaluator, view: ttg.LocalAlloc, value: TileValue | None = None) -> BufferView:
    """ttg.local_alloc."""
    type_ = view.result.type
    assert isinstance(type_, MemDescType)
    shape = (type_.buffers, *type_.buffer_shape)
    if view.offset is not None:
        storage = _arena_window(run, view.op, view.offset, type_).view(run.programs, *shape)
    elif value is not None and view.source is not None and not type_.mutable:
        contents = buffer_contents(run, value, view.source.type)
        return _whole(contents.reshape(-1, *shape), type_)
    else:
        kind = run.dtype_of(type_)
        storage = torch.empty((run.programs, *shape), dtype=kind, device=run.device)
    buffer = _whole(storage, type_)
    if value is None or view.source is None:
        write_view(run, buffer, poison_of(run, type_), run.active)
    else:
        contents = buffer_contents(run, value, view.source.type)
        write_view(run, buffer, contents, run.active)
    return buffer


def buffer_contents(run: Evaluator, value: TileValue, type_: ir.Type) -> Tensor:
    """Return the contents of a buffer for `value`: pointers as addresses; all tile axes in full."""
    if isinstance(value, PointerTile | AddressTile):
        value = byte_addresses(value)
        type_ = ir.with_element(type_, ir.I64)
    return run.full(value, type_)


def local_dealloc(run: Evaluator, view: ttg.LocalDealloc, buffer: TileValue) -> Sequence[TileValue]:
    """ttg.local_dealloc: a later use finds poison."""
    assert isinstance(buffer, BufferView)
    write_view(run, buffer, poison_of(run, view.buffer.type), run.active)
    return ()


def local_load(run: Evaluator, view: ttg.LocalLoad, buffer: TileValue) -> TileValue:
    """ttg.local_load."""
    assert isinstance(buffer, BufferView)
    values = read_view(run, buffer)
    source = view.buffer.type
    assert isinstance(source, MemDescType)
    if isinstance(source.element, ir.PointerType):
        return AddressTile(values, (), source.element.pointee.bits // 8 or 1)
    return values


def local_store(
    run: Evaluator, view: ttg.LocalStore, value: TileValue, buffer: TileValue
) -> Sequence[TileValue]:
    """ttg.local_store."""
    assert isinstance(buffer, BufferView)
    write_view(run, buffer, buffer_contents(run, value, view.source.type), run.active)
    return ()


# Views


def memdesc_index(
    run: Evaluator, view: ttg.MemDescIndex, buffer: TileValue, index: TileValue
) -> BufferView:
    """ttg.memdesc_index."""
    assert isinstance(buffer, BufferView)
    if not isinstance(index, int):
        chosen = run.dense(index, ir.I32).reshape(-1).to(torch.int64)
        index = int(chosen[0]) if chosen.shape[0] == 1 else chosen
    count = buffer.storage.shape[1]
    index = _legal_index(run, view.op, index, count)
    return _mapped(buffer, lambda v: BufferView(v.storage, index, v.window, v.order, v.chosen))


def _legal_index(run: Evaluator, op: Operation, index: int | Tensor, count: int) -> int | Tensor:
    if isinstance(index, int):
        relevant = [index]
    else:
        whole = index.expand(run.programs)
        relevant = [int(v) for v in (whole if run.active is None else whole[run.active])]
    bad = [place for place in relevant if not 0 <= place < count]
    if bad:
        where = op.location.primary
        raise LaunchError(
            f"{where.file}:{where.line}: {op.name} #{op.id}: got buffer {bad[0]} of {count}; "
            "a pass counts the stages of a pipelined loop wrongly"
        )
    return index if isinstance(index, int) else index.clamp(0, count - 1)


def memdesc_trans(run: Evaluator, view: ttg.MemDescTrans, buffer: TileValue) -> BufferView:
    """ttg.memdesc_trans."""
    assert isinstance(buffer, BufferView)
    return _mapped(
        buffer,
        lambda v: BufferView(
            v.storage,
            v.index,
            v.window,
            tuple(v.order[axis] for axis in view.order),
            v.chosen,
        ),
    )


def memdesc_subslice(run: Evaluator, view: ttg.MemDescSubslice, buffer: TileValue) -> BufferView:
    """ttg.memdesc_subslice."""
    assert isinstance(buffer, BufferView)
    offsets, shape = view.offsets, ir.shape_of(view.result.type)

    def part(v: BufferView) -> BufferView:
        window = list(v.window)
        for axis, offset, size in zip(v.order, offsets, shape, strict=True):
            window[axis] = (window[axis][0] + offset, size)
        return BufferView(v.storage, v.index, tuple(window), v.order, v.chosen)

    return _mapped(buffer, part)


def blend_views(run: Evaluator, test: Tensor, a: BufferView, b: BufferView) -> BufferView:
    """Per program the view `a` where `test` (P,), else `b`."""
    alone = a.other is None and b.other is None
    if alone and a.storage is b.storage and (a.window, a.order) == (b.window, b.order):
        if a.index is not None and b.index is not None:
            x, y = (indices(run, view.index) for view in (a, b))
            return BufferView(a.storage, torch.where(test, x, y), a.window, a.order)
    return _chained(_restricted(a, test), _restricted(b, ~test))


def indices(run: Evaluator, index: int | Tensor | None) -> Tensor:
    """Return the number of a view's buffer for each program."""
    assert index is not None
    return torch.as_tensor(index, device=run.device).expand(run.programs)


# Contents


def read_view(run: Evaluator, view: BufferView) -> Tensor:
    """Copy what a view shows now, (P, *shape)."""
    values = _block(run, view).clone()
    rest = view.other
    while rest is not None:
        chosen = rest.chosen
        assert chosen is not None
        column = chosen.reshape(-1, *(1,) * (values.dim() - 1))
        values = torch.where(column, _block(run, rest), values)
        rest = rest.other
    return values


def write_view(run: Evaluator, view: BufferView, values: Tensor, active: Tensor | None) -> None:
    """Put `values` (P or 1, *shape) into the buffers of the programs `active`."""
    rest: BufferView | None = view
    while rest is not None:
        mask = rest.chosen
        if active is not None:
            mask = active if mask is None else mask & active
        _write(run, rest, values, mask)
        rest = rest.other


def _write(run: Evaluator, view: BufferView, values: Tensor, mask: Tensor | None) -> None:
    if mask is None and not isinstance(view.index, Tensor):
        _block(run, view).copy_(values)
        return
    chosen = torch.arange(run.programs, device=run.device)
    if mask is not None:
        chosen = chosen[mask]
    if values.shape[0] > 1:
        values = values[chosen]
    if not isinstance(view.index, Tensor):
        _block(run, view)[chosen] = values
        return
    index = view.index[chosen]
    buffers = view.storage[chosen, index]
    _window(buffers, view.window, view.order).copy_(values)
    view.storage[chosen, index] = buffers


def _block(run: Evaluator, view: BufferView) -> Tensor:
    """Return a view's elements: a torch view, or a copy if the buffer differs by program."""
    storage, index = view.storage, view.index
    if isinstance(index, Tensor):
        programs = torch.arange(run.programs, device=run.device)
        storage = storage.expand(run.programs, *storage.shape[1:])
        return _window(storage[programs, index], view.window, view.order)
    if index is None:
        order = (0, *(axis + 1 for axis in view.order))
        return _window(storage, ((0, storage.shape[1]), *view.window), order)
    return _window(storage[:, index], view.window, view.order)


# Memory as AllocateShared laid it out


def _arena_window(run: Evaluator, op: Operation, offset: int, type_: MemDescType) -> Tensor:
    """Return the bytes [offset, offset + size) of every program, as the buffer's dtype."""
    return _bytes(run, op, offset, type_.size_bytes).view(run.dtype_of(type_))


def _bytes(run: Evaluator, op: Operation, offset: int, size_bytes: int) -> Tensor:
    if run.arena is None:
        run.arena = torch.full(
            (run.programs, -(-run.shared_bytes // 16) * 16),
            _ALL_ONES_BYTE,
            dtype=torch.uint8,
            device=run.device,
        )
    if offset < 0 or offset + size_bytes > run.shared_bytes:
        where = op.location.primary
        raise LaunchError(
            f"{where.file}:{where.line}: {op.name} #{op.id}: bytes {offset} to "
            f"{offset + size_bytes} are outside the {run.shared_bytes} of shared memory"
        )
    return run.arena[:, offset : offset + size_bytes]


def clobber_scratch(run: Evaluator, op: Operation, offset: int, size_bytes: int) -> None:
    """Overwrite an op's scratch region with poison."""
    region = _bytes(run, op, offset, size_bytes)
    if run.active is None:
        region.fill_(_ALL_ONES_BYTE)
    else:
        region[run.active] = _ALL_ONES_BYTE


def _whole(storage: Tensor, type_: MemDescType) -> BufferView:
    window = tuple((0, extent) for extent in type_.buffer_shape)
    index = None if type_.is_multiple else 0
    return BufferView(storage, index, window, tuple(range(len(window))))


def _window(tensor: Tensor, window: Sequence[tuple[int, int]], order: Sequence[int]) -> Tensor:
    """Return the part of (P, *dims) inside `window`, with permuted dimensions."""
    for axis, (start, size) in enumerate(window):
        if tensor.shape[axis + 1] != size:
            tensor = tensor.narrow(axis + 1, start, size)
    return tensor.permute(0, *(axis + 1 for axis in order))


def _mapped(view: BufferView, change: Callable[[BufferView], BufferView]) -> BufferView:
    """Apply `change` to a view and to the views of other programs."""
    out = change(view)
    if view.other is not None:
        out.other = _mapped(view.other, change)
    return out


def _restricted(view: BufferView, programs: Tensor) -> BufferView:
    """The view for `programs` only."""
    chosen = programs if view.chosen is None else view.chosen & programs
    out = BufferView(view.storage, view.index, view.window, view.order, chosen)
    if view.other is not None:
        out.other = _restricted(view.other, programs)
    return out


def _chained(first: BufferView, then: BufferView) -> BufferView:
    last = first
    while last.other is not None:
        last = last.other
    last.other = then
    return first
