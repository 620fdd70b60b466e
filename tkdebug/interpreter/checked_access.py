"""One access to memory: its elements, those that are illegal, and the fault these are.

Responsible for which elements of an access may be touched and for telling of the others; what is
then loaded or stored is in `memory` and above. Every access is checked against the tensor as
passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.events import FaultKind
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.races import Touched
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.values import AddressTile, AffineTile, Base, PointerTile, TileValue

_MASK_OPERANDS = {
    "tt.load": 1,
    "tt.store": 2,
    "tt.atomic_rmw": 2,
    "ttg.async_copy_global_to_local": 2,
}


class Access:
    """One load, store or atomic of some programs: where, under which mask, for which op."""

    __slots__ = ("buffer", "kind", "mask", "op", "programs", "shape", "tile")

    def __init__(
        self,
        op: Operation,
        kind: FaultKind,
        buffer: Buffer,
        tile: AffineTile,
        mask: TileValue,
        programs: Tensor | None,
    ) -> None:
        self.op = op
        self.kind = kind
        self.buffer = buffer
        self.tile = tile
        self.mask = mask
        self.programs = programs
        self.shape = tile.shape

    @property
    def mask_value(self) -> Value | None:
        """The IR value of the mask, for the hint."""
        return mask_of(self.op)


def mask_of(op: Operation) -> Value | None:
    """The IR value of an access's mask, None without one."""
    place = _MASK_OPERANDS.get(op.name)
    return op.operands[place] if place is not None and len(op.operands) > place else None


def loaded_type(op: Operation) -> ir.Type:
    """Type of what an op reads from memory, wherever it puts it."""
    if not op.results:
        buffer = op.operands[1].type
        return ir.tile(ir.shape_of(buffer), ir.element_of(buffer))
    type_ = op.results[0].type
    if isinstance(type_, ir.TokenType):
        pointer = op.operands[0].type
        element = ir.element_of(pointer)
        assert isinstance(element, ir.PointerType)
        return ir.with_element(pointer, element.pointee)
    return type_


def _is_block(op: Operation) -> bool:
    return "boundary_check" in op.attributes or op.name.startswith("tt.descriptor")


class AccessChecks(EvaluatorState):
    """What accesses touch, and what they may not."""

    # Who follows accesses

    def tell_read(
        self,
        op: Operation,
        buffer: Buffer,
        values: Tensor | None,
        touch: Callable[[], Touched],
    ) -> None:
        """After a load: what it gave (None when that is no plain tensor), and from where."""
        for observer in self.followers:
            observer.read(self, op, buffer, values, touch)

    def tell_store(
        self,
        op: Operation,
        buffer: Buffer,
        touched: Touched,
        values: Tensor,
        store: Callable[[], None],
    ) -> None:
        """Around a store of `values`, one for each element of `touched`."""
        for observer in self.followers:
            observer.writing(self, op, buffer, touched, values)
        store()
        for observer in self.followers:
            observer.written(self, op, buffer, touched, values)

    def tell_atomic(self, op: Operation, buffer: Buffer, touched: Touched) -> None:
        """Before an atomic."""
        for observer in self.followers:
            observer.atomic(self, op, buffer, touched)

    # Some of the programs

    def _narrowed(self, access: Access, chosen: Any) -> Access:
        """The access of some programs only."""
        tile = access.tile
        if tile.base is not None and tile.base.tensor.shape[0] > 1:
            base = Base(tile.base.tensor[chosen])
            tile = AffineTile(tile.const, base, tile.coefs, tile.shape)
        mask = self.masks.select_programs(access.mask, chosen)
        programs = access.programs
        if programs is None:
            programs = torch.arange(self.programs, device=self.device)
        return Access(access.op, access.kind, access.buffer, tile, mask, programs[chosen])

    def _narrow_value(self, value: TileValue | None, op: Operation, chosen: Any) -> Any:
        if value is None or isinstance(value, int):
            return value
        tensor = self.dense(value, loaded_type(op))
        return tensor if tensor.shape[0] == 1 else tensor[chosen]

    def _widened(self, op: Operation, value: TileValue, chosen: Tensor) -> TileValue:
        """Results of some programs put in their places among all."""
        if isinstance(value, PointerTile | AddressTile):
            return value
        tensor = self.dense(value, loaded_type(op))
        if tensor.shape[0] == 1:
            return tensor
        out = torch.zeros(
            (self.programs, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device
        )
        out[chosen] = tensor
        return out

    def _leading(self, full: Tensor) -> int:
        """How many programs from the first on are true."""
        breaks = (~full).nonzero()
        return full.shape[0] if breaks.shape[0] == 0 else int(breaks[0, 0])

    def _batch(self, access: Access) -> int:
        return self.programs if access.programs is None else access.programs.shape[0]

    # Elements

    def _touched(self, access: Access) -> Touched:
        """The legal elements of an access that are not masked off."""
        offsets = self.materialize(access.tile)
        allowed = ~access.buffer.outside(offsets)
        if not isinstance(access.mask, int):
            allowed = allowed & self.dense(access.mask, ir.tile(access.shape, ir.I1))
        elif not access.mask:
            allowed = torch.zeros_like(allowed)
        return self.touched(access.buffer, offsets, allowed, access.shape, access.programs)

    def touched(
        self,
        buffer: Buffer,
        offsets: Tensor,
        allowed: Tensor,
        shape: tuple[int, ...],
        programs: Tensor | None = None,
    ) -> Touched:
        """The elements of `buffer` at `offsets` where `allowed`, by programs' batch positions."""
        if programs is None:
            programs = torch.arange(self.programs, device=self.device)
            # What is the same in the whole batch has one row for all active programs.
            if self.active is not None and max(offsets.shape[0], allowed.shape[0]) == 1:
                programs = programs[self.active]
        whole = (programs.shape[0], *shape)
        keep = allowed.expand(whole).reshape(-1).nonzero().reshape(-1)
        size = math.prod(shape)
        return Touched(
            (offsets + buffer.storage_offset).expand(whole).reshape(-1)[keep],
            self.first + programs[keep // size],
            keep % size,
            shape,
            buffer.itemsize,
        )

    def _checked(self, access: Access) -> tuple[Tensor, Tensor | None]:
        """Offsets, and where the access is masked on and legal (None: everywhere)."""
        offsets = self.materialize(access.tile)
        allowed: Tensor | None = None
        if not isinstance(access.mask, int):
            allowed = self.dense(access.mask, ir.tile(access.shape, ir.I1))
        if access.buffer.proves_legal(access.tile):
            return offsets, allowed
        outside = access.buffer.outside(offsets)
        if not access.buffer.is_dense:
            # Memory of the same allocation: told as a warning, and done as the GPU would.
            between = access.buffer.between(offsets)
            self._report(access, "between-elements", between, offsets, allowed)
        self._report(access, access.kind, outside, offsets, allowed)
        legal = ~outside
        return offsets, legal if allowed is None else torch.logical_and(allowed, legal)

    def _report(
        self,
        access: Access,
        kind: FaultKind,
        bad: Tensor,
        offsets: Tensor,
        allowed: Tensor | None,
    ) -> None:
        if allowed is not None:
            bad = bad & allowed
        if not bool(bad.any()):
            return
        # A batch of extent 1 stands for every active program.
        programs = access.programs
        count = self._batch(access)
        if bad.shape[0] != count and programs is None and self.active is not None:
            programs = self.active.nonzero().reshape(-1)
            count = programs.shape[0]
        whole = bad.expand(count, *access.shape)
        # What a block leaves out is not its program's to access; what a mask leaves out may be.
        inside = allowed if _is_block(access.op) else None
        offender = self.offender(whole, offsets.expand(whole.shape), programs, inside)
        row = int(whole.reshape(count, -1).any(1).to(torch.uint8).argmax())
        if allowed is None or bool(allowed.expand(whole.shape)[row].all()):
            offender = replace(offender, is_unmasked=True)
        self.faults.bad_access(
            access.op,
            kind,
            access.buffer,
            offender,
            int(whole.sum()),
            access.mask_value,
        )
