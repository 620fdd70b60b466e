"""The shared memory of a program at a stop: its buffers, and what is on its way to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import ttg
from tkdebug.compiler.ir import MemDescType, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.asynchronous import mbarrier_text
from tkdebug.interpreter.memory.shared_buffers import indices, poison_of
from tkdebug.interpreter.tiles.values import BufferView

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

_UNCOMMITTED = "in no group yet"


@dataclass(frozen=True, slots=True)
class InFlight:
    """Something that was started and not waited for.

    Attributes:
        op: that started it.
        group: "group 1 of 2", the oldest first; "" for what has none.
    """

    op: Operation
    group: str


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """One buffer of a ring, or the only one.

    Attributes:
        copies: on their way to it.
        data: what it holds, of the buffer's shape.
        is_poison: whether nothing was written to it, or a copy has begun to overwrite it.
        mbarrier: what it says, where it is one; "".
    """

    copies: tuple[InFlight, ...]
    data: Tensor
    is_poison: bool
    mbarrier: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SharedBuffer:
    """What a `ttg.local_alloc` has made.

    Attributes:
        offset_bytes: in the program's shared memory; None before allocate-shared.
    """

    value: Value
    op: Operation
    offset_bytes: int | None
    size_bytes: int
    slots: tuple[Slot, ...]


def buffers(run: Evaluator, position: int) -> list[SharedBuffer]:
    """The buffers that are in use, in the order of their ops.

    Args:
        run: the batch.
        position: of the program in it.
    """
    found = []
    for value, held in run.values.items():
        op, type_ = value.defining_op, value.type
        if op is None or not ttg.LocalAlloc.matches(op) or not isinstance(held, BufferView):
            continue
        assert isinstance(type_, MemDescType)
        slots = tuple(
            _slot(run, held, type_, index, position) for index in range(held.storage.shape[1])
        )
        offset = ttg.LocalAlloc(op).offset
        found.append(SharedBuffer(value, op, offset, type_.size_bytes, slots))
    return sorted(found, key=lambda one: one.op.id)


def is_being_filled(run: Evaluator, view: BufferView, position: int) -> bool:
    """Whether a copy is on its way to what a view of one buffer shows, for a program."""
    index = 0 if view.index is None else int(indices(run, view.index)[position])
    return any(_copies(run, view, index, position))


def running(run: Evaluator, position: int) -> list[InFlight]:
    """Dots and copies to memory that were started and not waited for."""
    found = []
    for what, queue in (("dots", run.in_flight.dots), ("stores", run.in_flight.bulk_stores)):
        groups = [one for one in queue.groups if one.waiting is None or bool(one.waiting[position])]
        for place, group in enumerate(groups, 1):
            text = f"group {place} of {len(groups)} of {what}"
            found += [InFlight(op, text) for op in group.ops]
    return found


def _slot(run: Evaluator, held: BufferView, type_: MemDescType, index: int, position: int) -> Slot:
    storage = held.storage
    data = storage[min(position, storage.shape[0] - 1), index].clone()
    copies = tuple(_copies(run, held, index, position))
    poison = poison_of(run, type_).reshape(-1)[0]
    is_poison = bool((_bits_equal(data, poison)).all())
    mbarrier = "" if ir.element_of(type_) != ir.I64 or is_poison else mbarrier_text(data)
    return Slot(copies, data, is_poison, mbarrier)


def _bits_equal(data: Tensor, poison: Tensor) -> Tensor:
    return data.isnan() if data.dtype.is_floating_point else data == poison


def _copies(run: Evaluator, held: BufferView, index: int, position: int) -> Iterator[InFlight]:
    groups = [
        group
        for group in run.in_flight.copies.groups
        if group.waiting is None or bool(group.waiting[position])
    ]
    for place, group in enumerate(groups, 1):
        for copy in group.copies:
            if _is_at(run, copy.view, copy.programs, held, index, position):
                yield InFlight(copy.op, f"group {place} of {len(groups)}")
    for copy in run.in_flight.uncommitted:
        if _is_at(run, copy.view, copy.programs, held, index, position):
            yield InFlight(copy.op, _UNCOMMITTED)
    for load in run.in_flight.bulk_loads:
        if _is_at(run, load.view, load.programs, held, index, position):
            yield InFlight(load.op, "")


def _is_at(
    run: Evaluator,
    view: BufferView,
    programs: Tensor | None,
    held: BufferView,
    index: int,
    position: int,
) -> bool:
    """Whether a copy fills a slot of a buffer, for a program."""
    if programs is not None and not bool(programs[position]):
        return False
    at: BufferView | None = view
    while at is not None:
        is_chosen = at.chosen is None or bool(at.chosen[position])
        if is_chosen and at.storage.data_ptr() == held.storage.data_ptr():
            place = torch.as_tensor(0) if at.index is None else indices(run, at.index)[position]
            if int(place) == index:
                return True
        at = at.other
    return False
