"""Pointer arithmetic: a buffer and an offset in elements, or bare byte addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import AddressTile, AffineTile, PointerTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

from typing import TYPE_CHECKING

from tkdebug.interpreter.tiles.values import (
    BoxTile,
    IntTile,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def add_pointer(
    run: Evaluator, view: tt.AddPtr, pointer: TileValue, offset: TileValue
) -> TileValue:
    """A pointer moved by `offset` elements; offsets never wrap."""
    shape = ir.shape_of(view.pointer.type)
    if isinstance(offset, BoxTile):
        offset = run.unbox(offset)
    if isinstance(pointer, PointerTile):
        return PointerTile(pointer.buffer, sum_of(run, pointer.offset, offset, shape))
    assert isinstance(pointer, AddressTile)
    step = run.index.affine(offset, shape)
    assert step is not None
    scaled = AffineTile(
        step.const * pointer.itemsize,
        None if step.base is None else Base(step.base.tensor * pointer.itemsize),
        tuple(coef * pointer.itemsize for coef in step.coefs),
        shape,
    )
    address = sum_of(run, pointer.address, scaled, shape)
    return AddressTile(address, pointer.buffers, pointer.itemsize)


def sum_of(run: Evaluator, a: IntTile, b: TileValue, shape: tuple[int, ...]) -> IntTile:
    """The sum of two integer tiles, an int where it is one number."""
    total = run.index.affine_add(a, b, shape)
    if total.base is None and total.is_scalar_like:
        return total.const
    return total


def affine_of(run: Evaluator, value: IntTile, shape: tuple[int, ...]) -> AffineTile:
    """An integer tile as an affine tile."""
    tile = run.index.affine(value, shape)
    assert tile is not None
    return tile


def byte_addresses(pointer: PointerTile | AddressTile) -> TileValue:
    """Byte addresses of pointers, as an integer tile."""
    if isinstance(pointer, AddressTile):
        return pointer.address
    size, start = pointer.buffer.itemsize, pointer.buffer.address
    offset = pointer.offset
    if isinstance(offset, int):
        return start + offset * size
    if not isinstance(offset, AffineTile):
        return offset * size + start
    base = None if offset.base is None else Base(offset.base.tensor * size)
    return AffineTile(
        start + offset.const * size, base, tuple(c * size for c in offset.coefs), offset.shape
    )


def itemsize_of(pointer: PointerTile | AddressTile) -> int:
    """The size of an element that is pointed to, in bytes."""
    return pointer.buffer.itemsize if isinstance(pointer, PointerTile) else pointer.itemsize


def buffers_of(pointer: PointerTile | AddressTile) -> tuple[Buffer, ...]:
    """The buffers that are known to be pointed into."""
    return (pointer.buffer,) if isinstance(pointer, PointerTile) else pointer.buffers
