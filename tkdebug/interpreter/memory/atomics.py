"""Atomics of the whole batch, as if the programs had come one after the other.

Elements that share an address are updated in rounds: round k has each address's k-th element.
Additions whose old values are unused are one index_add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.buffer_access import plain_mask
from tkdebug.interpreter.memory.checked_access import Access, checked
from tkdebug.interpreter.memory.loads_and_stores import resolved
from tkdebug.interpreter.memory.observed_access import ObservedAccess, elements_touched, tell_atomic
from tkdebug.interpreter.memory.pointers import affine_of
from tkdebug.interpreter.tiles.values import AddressTile, PointerTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.memory.buffers import Buffer

Update = Callable[["Tensor", "Tensor"], "Tensor"]
# Gets memory, the places in it, and operands; gives what memory held.
Apply = Callable[["Tensor", "Tensor", "tuple[Tensor, ...]"], "Tensor"]


def atomic_load(
    run: Evaluator, view: tt.AtomicLoad, pointer: TileValue, mask: TileValue = 1
) -> TileValue:
    """tt.atomic_load: the contents of memory, zero where the mask is off."""

    def read(flat: Tensor, offsets: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
        return flat[offsets]

    return run_atomic(run, view.op, view.result.type, pointer, mask, (), read)


def atomic_rmw(
    run: Evaluator, view: tt.AtomicRmw, pointer: TileValue, value: TileValue, mask: TileValue = 1
) -> TileValue:
    """tt.atomic_rmw: combine `value` into memory, return the old value."""
    kind, result = view.kind, view.result
    stored = run.dense(value, view.value.type)
    adds = kind in ("add", "fadd") and not result.uses
    apply = partial(plain_add, run) if adds else in_rounds(run, kind)
    return run_atomic(run, view.op, result.type, pointer, mask, (stored,), apply)


def atomic_cas(
    run: Evaluator, view: tt.AtomicCas, pointer: TileValue, compare: TileValue, value: TileValue
) -> TileValue:
    """tt.atomic_cas: store `value` where memory equals `compare`, return the old value."""
    operands = (
        run.dense(compare, view.compare.type),
        run.dense(value, view.value.type),
    )

    def in_rounds(flat: Tensor, offsets: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
        def swap(old: Tensor, expected: Tensor, new: Tensor) -> Tensor:
            return torch.where(_same_bits(old, expected), new, old)

        return _rounds(run, flat, offsets, parts, swap)

    return run_atomic(run, view.op, view.result.type, pointer, 1, operands, in_rounds)


def in_rounds(run: Evaluator, kind: str) -> Apply:
    """Return the update `kind` for `run_atomic`; elements with one address take turns."""
    update = _update(kind)

    def apply(flat: Tensor, offsets: Tensor, operands: tuple[Tensor, ...]) -> Tensor:
        return _rounds(run, flat, offsets, operands, update)

    return apply


def _update(kind: str) -> Update:
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
        "store": lambda a, b: b,
    }
    return table[kind]


def plain_add(
    run: Evaluator, flat: Tensor, offsets: Tensor, operands: tuple[Tensor, ...]
) -> Tensor:
    """Add operands to memory by one index_add; return the operands, since old values are unused."""
    flat.index_add_(0, offsets, operands[0])
    if run.scheduler is not None:
        run.scheduler.changes += 1
    return operands[0]


def _rounds(
    run: Evaluator,
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
        if run.scheduler is not None and not torch.equal(before, after):
            run.scheduler.changes += 1
        return before
    if run.scheduler is not None:
        run.scheduler.changes += 1
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


def run_atomic(
    run: Evaluator,
    op: Operation,
    type_: ir.Type,
    pointer: TileValue,
    mask: TileValue,
    operands: tuple[Tensor, ...],
    apply: Apply,
) -> TileValue:
    """Resolve the addresses, run `apply` on the legal elements, return the old values.

    Args:
        run: the batch.
        op: the atomic.
        type_: the type of the tile in memory.
        pointer: one pointer for each element.
        mask: the mask of the access.
        operands: operands of `apply` beside memory and places, each of that type.
        apply: changes memory, returns its old contents.
    """
    shape = ir.shape_of(type_)
    kind = run.dtype_of(type_)
    whole = (run.programs, *shape)
    targets = _atomic_targets(run, op, type_, pointer, plain_mask(run, mask))
    if len(targets) == 1 and targets[0][2] is None:
        buffer, offsets, _ = targets[0]
        places = (offsets + buffer.storage_offset).expand(whole).reshape(-1)
        parts = tuple([operand.expand(whole).reshape(-1) for operand in operands])
        return apply(buffer.flat(kind), places, parts).reshape(whole)
    out = torch.zeros(whole, dtype=kind, device=run.device)
    for buffer, offsets, allowed in targets:
        assert allowed is not None, "one of several buffers has only some of the elements"
        keep = allowed.expand(whole).reshape(-1).nonzero().reshape(-1)
        if keep.numel() == 0:
            continue
        places = (offsets + buffer.storage_offset).expand(whole).reshape(-1)[keep]
        parts = tuple([operand.expand(whole).reshape(-1)[keep] for operand in operands])
        change = partial(apply, buffer.flat(kind), places, parts)
        if any(one.sees_atomics for one in run.followers):
            elements = partial(elements_touched, run, buffer, offsets, allowed, shape)
            observed = ObservedAccess(run, op, buffer, shape, elements)
            out.reshape(-1)[keep] = tell_atomic(run, observed, change)
        else:
            out.reshape(-1)[keep] = change()
    return out


def _atomic_targets(
    run: Evaluator, op: Operation, type_: ir.Type, pointer: TileValue, mask: TileValue
) -> Sequence[tuple[Buffer, Tensor, Tensor | None]]:
    """Return each buffer with element offsets, and a mask of the elements that are on and legal.

    A mask of None means all elements; then there is only one buffer.
    """
    shape = ir.shape_of(type_)
    if isinstance(pointer, AddressTile):
        return resolved(run, op, pointer, mask, "oob-atomic", shape)
    assert isinstance(pointer, PointerTile)
    tile = affine_of(run, pointer.offset, shape)
    limited: Any = mask
    if run.active is not None:
        active = run.active.reshape(-1, *(1,) * len(shape))
        if isinstance(mask, int):
            limited = active if mask else 0
        else:
            limited = run.dense(mask, ir.tile(shape, ir.I1)) & active
    if isinstance(limited, int) and not limited:
        return []
    access = Access(op, "oob-atomic", type_, pointer.buffer, tile, limited)
    offsets, allowed = checked(run, access)
    if allowed is None and any(one.sees_atomics for one in run.followers):
        allowed = torch.ones((1,) * (len(shape) + 1), dtype=torch.bool, device=run.device)
    return [(pointer.buffer, offsets, allowed)]


def _flipped(fn: Update, a: Tensor, b: Tensor) -> Tensor:
    flip = -(1 << (8 * a.element_size() - 1))
    return fn(a ^ flip, b ^ flip) ^ flip


def _same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Return where two tensors have equal bits: a NaN equals itself, -0.0 differs from 0.0."""
    if not a.is_floating_point():
        return a == b
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.view(integer) == b.view(integer)
