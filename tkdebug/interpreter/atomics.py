"""Atomics of the whole batch, as if the programs had come one after the other.

Elements that share an address are taken in rounds: the k-th visitor of every address in round k.
Additions whose old values nobody reads are one index_add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.addresses import AddressOps
from tkdebug.interpreter.checked_access import Access
from tkdebug.interpreter.values import AddressTile, PointerTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.buffers import Buffer

Update = Callable[["Tensor", "Tensor"], "Tensor"]
# Gets memory, the places in it, and operands; gives what memory held.
Apply = Callable[["Tensor", "Tensor", "tuple[Tensor, ...]"], "Tensor"]


class AtomicOps(AddressOps):
    """tt.atomic_rmw and tt.atomic_cas."""

    def atomic_rmw(
        self, op: Operation, pointer: TileValue, value: TileValue, mask: TileValue = 1
    ) -> TileValue:
        """tt.atomic_rmw: combine `value` into memory, give the old value."""
        kind = str(op.attributes["kind"])
        stored = self.dense(value, op.operands[1].type)
        if kind in ("add", "fadd") and not op.result.uses:
            return self._atomic(op, op.result.type, pointer, mask, (stored,), self._plain_add)
        return self._atomic(op, op.result.type, pointer, mask, (stored,), self._in_rounds(kind))

    def atomic_cas(
        self, op: Operation, pointer: TileValue, compare: TileValue, value: TileValue
    ) -> TileValue:
        """tt.atomic_cas: store `value` where memory equals `compare`, give the old value."""
        operands = (
            self.dense(compare, op.operands[1].type),
            self.dense(value, op.operands[2].type),
        )

        def in_rounds(flat: Tensor, offsets: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
            def swap(old: Tensor, expected: Tensor, new: Tensor) -> Tensor:
                return torch.where(_same_bits(old, expected), new, old)

            return self._rounds(flat, offsets, parts, swap)

        return self._atomic(op, op.result.type, pointer, 1, operands, in_rounds)

    def _in_rounds(self, kind: str) -> Apply:
        update = self._update(kind)

        def apply(flat: Tensor, offsets: Tensor, operands: tuple[Tensor, ...]) -> Tensor:
            return self._rounds(flat, offsets, operands, update)

        return apply

    def _update(self, kind: str) -> Update:
        table: dict[str, Update] = {
            "add": torch.add,
            "fadd": torch.add,
            "max": torch.maximum,
            "min": torch.minimum,
            "fmax": torch.fmax,
            "fmin": torch.fmin,
            "umax": lambda a, b: _flipped(torch.maximum, a, b),
            "umin": lambda a, b: _flipped(torch.minimum, a, b),
            "and": torch.bitwise_and,
            "or": torch.bitwise_or,
            "xor": torch.bitwise_xor,
            "xchg": lambda a, b: b,
        }
        return table[kind]

    def _plain_add(self, flat: Tensor, offsets: Tensor, operands: tuple[Tensor, ...]) -> Tensor:
        flat.index_add_(0, offsets, operands[0])
        if self.turns is not None:
            self.turns.changes += 1
        return operands[0]

    def _rounds(
        self,
        flat: Tensor,
        offsets: Tensor,
        operands: tuple[Tensor, ...],
        update: Callable[..., Tensor],
    ) -> Tensor:
        if offsets.shape[0] == 1:
            # A lock, mostly, which programs run one by one take time and again.
            before = flat[offsets]
            after = update(before, *operands)
            flat[offsets] = after
            if self.turns is not None and not torch.equal(before, after):
                self.turns.changes += 1
            return before
        if self.turns is not None:
            self.turns.changes += 1
        old = torch.empty_like(operands[0])
        order = torch.argsort(offsets, stable=True)
        sorted_offsets = offsets[order]
        starts = torch.ones_like(sorted_offsets, dtype=torch.bool)
        starts[1:] = sorted_offsets[1:] != sorted_offsets[:-1]
        place = torch.arange(order.shape[0], device=order.device)
        rank = place - torch.where(starts, place, 0).cummax(0).values
        for visit in range(int(rank.max()) + 1 if rank.numel() else 0):
            chosen = order[rank == visit]
            where = offsets[chosen]
            before = flat[where]
            old[chosen] = before
            flat[where] = update(before, *(operand[chosen] for operand in operands))
        return old

    def _atomic(
        self,
        op: Operation,
        type_: ir.Type,
        pointer: TileValue,
        mask: TileValue,
        operands: tuple[Tensor, ...],
        apply: Apply,
    ) -> TileValue:
        """Resolve the addresses, run `apply` on the legal elements, give the old values.

        Args:
            op: the atomic.
            type_: of the tile in memory.
            pointer: one pointer for each element.
            mask: where the access is on.
            operands: what `apply` takes beside memory and places, each of that type.
            apply: changes memory, gives what it held.
        """
        shape = ir.shape_of(type_)
        kind = self.dtype_of(type_)
        whole = (self.programs, *shape)
        targets = self._atomic_targets(op, pointer, self._plain_mask(mask, op), shape)
        if len(targets) == 1 and targets[0][2] is None:
            buffer, offsets, _ = targets[0]
            places = (offsets + buffer.storage_offset).expand(whole).reshape(-1)
            parts = tuple([operand.expand(whole).reshape(-1) for operand in operands])
            return apply(buffer.flat(kind), places, parts).reshape(whole)
        out = torch.zeros(whole, dtype=kind, device=self.device)
        for buffer, offsets, allowed in targets:
            assert allowed is not None, "one of several buffers has only some of the elements"
            keep = allowed.expand(whole).reshape(-1).nonzero().reshape(-1)
            if keep.numel() == 0:
                continue
            if self.followers:
                self.tell_atomic(op, buffer, self.touched(buffer, offsets, allowed, shape))
            places = (offsets + buffer.storage_offset).expand(whole).reshape(-1)[keep]
            parts = tuple([operand.expand(whole).reshape(-1)[keep] for operand in operands])
            out.reshape(-1)[keep] = apply(buffer.flat(kind), places, parts)
        return out

    def _atomic_targets(
        self, op: Operation, pointer: TileValue, mask: TileValue, shape: tuple[int, ...]
    ) -> Sequence[tuple[Buffer, Tensor, Tensor | None]]:
        """For each buffer: element offsets, and where the access is on and legal.

        None for the latter means everywhere, in what is then the only buffer.
        """
        if isinstance(pointer, AddressTile):
            return self._resolved(op, pointer, mask, "oob-atomic", shape)
        assert isinstance(pointer, PointerTile)
        tile = self.affine_of(pointer.offset, shape)
        limited: Any = mask
        if self.active is not None:
            active = self.active.reshape(-1, *(1,) * len(shape))
            if isinstance(mask, int):
                limited = active if mask else 0
            else:
                limited = self.dense(mask, ir.tile(shape, ir.I1)) & active
        if isinstance(limited, int) and not limited:
            return []
        access = Access(op, "oob-atomic", pointer.buffer, tile, limited, None)
        offsets, allowed = self._checked(access)
        if allowed is None and self.followers:
            allowed = torch.ones((1,) * (len(shape) + 1), dtype=torch.bool, device=self.device)
        return [(pointer.buffer, offsets, allowed)]


def _flipped(fn: Update, a: Tensor, b: Tensor) -> Tensor:
    flip = -(1 << (8 * a.element_size() - 1))
    return fn(a ^ flip, b ^ flip) ^ flip


def _same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Compare-and-swap compares bits, so a NaN equals itself and -0.0 differs from 0.0."""
    if not a.is_floating_point():
        return a == b
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.view(integer) == b.view(integer)
