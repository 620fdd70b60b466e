"""What was started and not waited for: async copies to buffers, async dots.

Both come in groups that land in order, at a wait that names how many of the last ones may still
be on their way; programs count their own groups, so divergent ones need not agree. A copy's
target is poison until it lands. A dot's result is poison until its wait hands it on, and stays
poison when an operand's buffer changed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.checked_access import loaded_type
from tkdebug.interpreter.dots import DotOps
from tkdebug.interpreter.shared_buffers import SharedBufferOps
from tkdebug.interpreter.state import Batch
from tkdebug.interpreter.values import BufferView, TileValue

# Makes something happen in some programs, all for None.
Landing = Callable[[Tensor | None], None]


@dataclass
class _Group:
    """Things that land together.

    Attributes:
        waiting: (P,) bool, the programs in which it has not landed; None for all.
    """

    land: Landing
    waiting: Tensor | None


class LandingQueue:
    """Groups on their way, oldest first."""

    def __init__(self) -> None:
        self._groups: list[_Group] = []

    def push(self, land: Landing, active: Tensor | None) -> None:
        """Start a group in the programs `active`."""
        self._groups.append(_Group(land, active))

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
class _Copy:
    view: BufferView
    values: Tensor
    programs: Tensor | None


class AsyncOps(SharedBufferOps, DotOps):
    """Async copies and tensor-core dots."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._copies = LandingQueue()
        self._uncommitted: list[_Copy] = []
        self._dots = LandingQueue()
        # What a poison tile stands for until it is waited for. Keyed by the tensor object.
        self._pending: Any = WeakTensorKeyDictionary()

    # Copies

    def async_copy(
        self,
        op: Operation,
        pointer: TileValue,
        view: TileValue,
        mask: TileValue = 1,
        other: TileValue | None = None,
    ) -> int:
        """ttg.async_copy_global_to_local; memory is read now, the buffer written at the wait."""
        assert isinstance(view, BufferView)
        values = self.contents(self.load(op, pointer, mask, other), loaded_type(op))
        self.write_view(view, self.poison(op.operands[1].type), self.active)
        self._uncommitted.append(_Copy(view, values, self.active))
        return 0

    def async_commit_group(self, op: Operation, *tokens: TileValue) -> int:
        """ttg.async_commit_group."""
        group, left = self._uncommitted, []
        if self.active is not None:
            for copy in group:
                outside = ~self.active if copy.programs is None else copy.programs & ~self.active
                if bool(outside.any()):
                    left.append(_Copy(copy.view, copy.values, outside))

        def land(programs: Tensor | None) -> None:
            for copy in group:
                mask = copy.programs
                if programs is not None:
                    mask = programs if mask is None else mask & programs
                self.write_view(copy.view, copy.values, mask)

        self._uncommitted = left
        self._copies.push(land, self.active)
        return 0

    def async_wait(self, op: Operation, *tokens: TileValue) -> int:
        """ttg.async_wait."""
        self._copies.land(_count(op, "num"), self.active)
        return 0

    # Dots

    def local_dot(self, op: Operation, a: TileValue, b: TileValue, acc: TileValue) -> TileValue:
        """ttg.local_dot."""
        return self.dot(op, self._operand(a), self._operand(b), acc)

    def warp_group_dot(
        self, op: Operation, a: TileValue, b: TileValue, acc: TileValue
    ) -> TileValue:
        """ttng.warp_group_dot: at once, or with `async` at its wait."""
        if not op.attributes.get("async"):
            return self.dot(op, self._operand(a), self._operand(b), acc)
        started = [self._operand(a), self._operand(b)]
        total = self._pending.get(acc) if isinstance(acc, Tensor) else None
        poison = self.poison(op.result.type)
        settled = poison.repeat(self.programs, *ir.shape_of(op.result.type))

        def land(programs: Tensor | None) -> None:
            ended = [self._operand(a), self._operand(b)]
            value = self.dense(
                self.dot(op, ended[0], ended[1], acc if total is None else total()), op.result.type
            )
            value = torch.where(self._changed(started, ended), poison, value)
            if programs is None:
                settled.copy_(value)
            else:
                settled[programs] = value.expand(settled.shape)[programs]

        self._dots.push(land, self.active)
        return self._promise(poison, lambda: settled)

    def _operand(self, value: TileValue) -> TileValue:
        return self.read_view(value) if isinstance(value, BufferView) else value

    def _changed(self, before: Sequence[TileValue], after: Sequence[TileValue]) -> Tensor:
        """(P, 1, 1) bool: programs in which an operand is no longer what it was."""
        changed = torch.zeros(self.programs, dtype=torch.bool, device=self.device)
        for old, new in zip(before, after, strict=True):
            if old is new:
                continue
            assert isinstance(old, Tensor)
            assert isinstance(new, Tensor)
            differ = bits_of(old) != bits_of(new)
            changed |= differ.reshape(differ.shape[0], -1).any(1)
        return changed.reshape(-1, 1, 1)

    def _promise(self, visible: Tensor, settled: Callable[[], Tensor]) -> Tensor:
        """A tile that shows `visible` until a wait hands on what it has `settled` to."""
        shown = visible.clone()
        self._pending[shown] = settled
        return shown

    def warp_group_dot_wait(self, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        """ttng.warp_group_dot_wait."""
        pendings = _count(op, "pendings")
        self._dots.land(pendings, self.active)
        results: list[TileValue] = []
        for value in operands:
            settled = self._pending.get(value) if isinstance(value, Tensor) else None
            if settled is None:
                results.append(value)
            elif pendings == 0 and self.active is None:
                results.append(settled().clone())
            else:
                results.append(self._promise(settled(), settled))
        return results

    def blend_pending(self, test: Tensor, a: TileValue, b: TileValue, out: Tensor) -> Tensor:
        """`out`, per program `a` where `test` else `b`, is pending where they are."""
        promised = [self._pending.get(v) if isinstance(v, Tensor) else None for v in (a, b)]
        if promised == [None, None]:
            return out
        first, second = (
            (lambda value=value: value) if found is None else found
            for found, value in zip(promised, (a, b), strict=True)
        )
        column = test.reshape(-1, *(1,) * (out.dim() - 1))
        return self._promise(out, lambda: torch.where(column, first(), second()))


def _count(op: Operation, name: str) -> int:
    count = op.attributes[name]
    assert isinstance(count, int)
    return count


_BIT_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(tensor: Tensor) -> Tensor:
    """The elements as integers, so that NaN equals itself."""
    return tensor.contiguous().view(_BIT_DTYPES[tensor.element_size()])
