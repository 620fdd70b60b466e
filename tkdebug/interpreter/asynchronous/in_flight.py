"""Async copies and dots that were started and not yet waited for.

Both come in groups that land in order, at a wait that names how many of the last ones may still
be on their way; programs count their own groups, so divergent ones need not agree. A copy's
target is poison until it lands. A dot's result is poison until its wait hands it on, and stays
poison when an operand's buffer changed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import ttg, ttng
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.checked_access import loaded_type
from tkdebug.interpreter.memory.loads_and_stores import load_pointers
from tkdebug.interpreter.memory.shared_buffers import (
    buffer_contents,
    poison_of,
    read_view,
    write_view,
)
from tkdebug.interpreter.tile_ops.dots import dot
from tkdebug.interpreter.tiles.values import BufferView, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# Makes something happen in some programs, all for None.
Landing = Callable[[Tensor | None], None]


@dataclass
class Copy:
    """A copy on its way to a buffer.

    Attributes:
        op: that started it.
        programs: (P,) bool, those that started it; None for all.
    """

    op: Operation
    view: BufferView
    values: Tensor
    programs: Tensor | None


@dataclass
class Group:
    """Things that land together.

    Attributes:
        waiting: (P,) bool, the programs in which it has not landed; None for all.
        ops: that started them.
        copies: to buffers, where it is a group of such.
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
        """What is on its way, oldest first."""
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
    run.uncommitted.append(Copy(view.op, buffer, values, run.active))
    return 0


def async_commit_group(run: Evaluator, view: ttg.AsyncCommitGroup, *tokens: TileValue) -> int:
    """ttg.async_commit_group."""
    group, left = run.uncommitted, []
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

    run.uncommitted = left
    run.async_copies.push(land, run.active, [copy.op for copy in group], group)
    return 0


def async_wait(run: Evaluator, view: ttg.AsyncWait, *tokens: TileValue) -> int:
    """ttg.async_wait."""
    run.async_copies.land(view.num, run.active)
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
    total = run.pending.get(acc) if isinstance(acc, Tensor) else None
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

    run.async_dots.push(land, run.active, [view.op])
    return _until_settled(run, poison, lambda: settled)


def _operand(run: Evaluator, value: TileValue) -> TileValue:
    return read_view(run, value) if isinstance(value, BufferView) else value


def _changed(run: Evaluator, before: Sequence[TileValue], after: Sequence[TileValue]) -> Tensor:
    """(P, 1, 1) bool: programs in which an operand is no longer what it was."""
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
    """A tile that shows `visible` until a wait forwards what it has `settled` to."""
    shown = visible.clone()
    run.pending[shown] = settled
    return shown


def warp_group_dot_wait(
    run: Evaluator, view: ttng.WarpGroupDotWait, *operands: TileValue
) -> Sequence[TileValue]:
    """ttng.warp_group_dot_wait."""
    pendings = view.pendings
    run.async_dots.land(pendings, run.active)
    results: list[TileValue] = []
    for value in operands:
        settled = run.pending.get(value) if isinstance(value, Tensor) else None
        if settled is None:
            results.append(value)
        elif pendings == 0 and run.active is None:
            results.append(settled().clone())
        else:
            results.append(_until_settled(run, settled(), settled))
    return results


def blend_pending(run: Evaluator, test: Tensor, a: TileValue, b: TileValue, out: Tensor) -> Tensor:
    """`out`, per program `a` where `test` else `b`, is pending where they are."""
    pending = [run.pending.get(v) if isinstance(v, Tensor) else None for v in (a, b)]
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
