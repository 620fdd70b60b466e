"""Loads and stores through tiles of pointers.

The mask is looked at here first. An access through one buffer goes on in `buffer_access`, one
through bare byte addresses in `addresses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.addresses import load_addresses, store_addresses
from tkdebug.interpreter.memory.buffer_access import (
    fill_of,
    load_active,
    plain_mask,
    store_active,
)
from tkdebug.interpreter.memory.checked_access import (
    Access,
    loaded_type,
)
from tkdebug.interpreter.memory.pointers import affine_of, byte_addresses
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def load(
    run: Evaluator,
    view: tt.Load,
    pointer: TileValue,
    mask: TileValue = 1,
    other: TileValue | None = None,
) -> TileValue:
    """tt.load."""
    return load_pointers(run, view.op, pointer, mask, other)


def load_pointers(
    run: Evaluator, op: Operation, pointer: TileValue, mask: TileValue, other: TileValue | None
) -> TileValue:
    """What the access `op` reads at a tile of pointers."""
    mask = plain_mask(run, mask)
    if isinstance(mask, int) and not mask:
        return fill_of(run, op, other)
    if isinstance(pointer, AddressTile):
        return load_addresses(run, op, pointer, mask, other)
    assert isinstance(pointer, PointerTile)
    type_ = loaded_type(op)
    tile = affine_of(run, pointer.offset, ir.shape_of(type_))
    return load_active(run, Access(op, "oob-load", type_, pointer.buffer, tile, mask), other)


def store(
    run: Evaluator, view: tt.Store, pointer: TileValue, value: TileValue, mask: TileValue = 1
) -> Sequence[TileValue]:
    """tt.store."""
    mask = plain_mask(run, mask)
    if isinstance(mask, int) and not mask:
        return ()
    if isinstance(value, PointerTile | AddressTile):
        value = byte_addresses(value)
    op, type_ = view.op, view.value.type
    if isinstance(pointer, AddressTile):
        store_addresses(run, op, type_, pointer, value, mask)
        return ()
    assert isinstance(pointer, PointerTile)
    tile = affine_of(run, pointer.offset, ir.shape_of(type_))
    store_active(run, Access(op, "oob-store", type_, pointer.buffer, tile, mask), value)
    return ()
