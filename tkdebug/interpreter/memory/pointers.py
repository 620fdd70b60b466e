"""Pointer arithmetic: a buffer and an offset in elements, or bare byte addresses.

Addresses are numbers of 64 bits, as on a GPU: addresses that differ by a multiple of 2**64 bytes
are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.arith import wrap
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    AffineTile,
    BoxTile,
    IntTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from torch import Tensor

    from tkdebug.interpreter.state import EvaluatorState

# Offsets whose parts are below this are far from wrapping, whatever the size of an element.
_NEAR = 1 << 60


def add_pointer(
    run: EvaluatorState, view: tt.AddPtr, pointer: TileValue, offset: TileValue
) -> TileValue:
    """A pointer moved by `offset` elements."""
    shape = ir.shape_of(view.pointer.type)
    if isinstance(offset, BoxTile):
        offset = run.unbox(offset)
    if isinstance(pointer, PointerTile):
        total = sum_of(run, pointer.offset, offset, shape)
        return PointerTile(pointer.buffer, wrapped(run, total, pointer.buffer.itemsize))
    assert isinstance(pointer, AddressTile)
    step = run.index.affine(offset, shape)
    assert step is not None
    scaled = AffineTile(
        step.const * pointer.itemsize,
        None if step.base is None else step.base.times_modulo(pointer.itemsize),
        tuple(coef * pointer.itemsize for coef in step.coefs),
        shape,
    )
    address = sum_of(run, pointer.address, scaled, shape)
    return AddressTile(wrapped(run, address), pointer.buffers, pointer.itemsize)


def wrapped(run: EvaluatorState, offset: IntTile, itemsize: int = 1) -> IntTile:
    """Return an offset in elements of `itemsize` bytes, wrapped to the value nearest to 0."""
    if isinstance(offset, AffineTile):
        parts: tuple[int, ...] = offset.coefs
        const = offset.const
    elif isinstance(offset, int):
        parts, const = (), offset
    else:
        return offset
    if -_NEAR < const < _NEAR:
        for part in parts:
            if not -_NEAR < part < _NEAR:
                break
        else:
            return offset
    shift = itemsize.bit_length() - 1
    if isinstance(offset, int):
        return wrap(offset, 64 - shift)
    return _wrapped_tile(run, offset, shift)


def offsets_of(run: EvaluatorState, tile: AffineTile, itemsize: int) -> Tensor:
    """Return a tile's offsets in elements of `itemsize` bytes, int64, wrapped nearest to 0."""
    values = run.materialize(tile)
    low, high = tile.bounds()
    if -_NEAR < low and high < _NEAR:
        return values
    shift = itemsize.bit_length() - 1
    return (values << shift) >> shift


def _wrapped_tile(run: EvaluatorState, tile: AffineTile, shift: int) -> AffineTile:
    """Return `tile` modulo 2**(64 - shift), with values nearest to 0."""
    coefs = tuple(wrap(coef, 64 - shift) for coef in tile.coefs)
    near = AffineTile(wrap(tile.const, 64 - shift), tile.base, coefs, tile.shape)
    low, high = near.bounds(exact=True)
    if -_NEAR < low and high < _NEAR:
        return near
    values = (run.materialize(near) << shift) >> shift
    return AffineTile(0, Base(values), (0,) * len(tile.shape), tile.shape)


def sum_of(run: EvaluatorState, a: IntTile, b: TileValue, shape: tuple[int, ...]) -> IntTile:
    """The sum of two integer tiles, an int if it is one number."""
    total = run.index.affine_add(a, b, shape)
    if total.base is None and total.is_scalar_like:
        return total.const
    return total


def affine_of(run: EvaluatorState, value: IntTile, shape: tuple[int, ...]) -> AffineTile:
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
        return wrap(start + offset * size, 64)
    if not isinstance(offset, AffineTile):
        return offset * size + start
    base = None if offset.base is None else offset.base.times_modulo(size)
    const = wrap(start + offset.const * size, 64)
    return AffineTile(const, base, tuple(c * size for c in offset.coefs), offset.shape)


def itemsize_of(pointer: PointerTile | AddressTile) -> int:
    """Return the size of the element that is pointed to, in bytes."""
    return pointer.buffer.itemsize if isinstance(pointer, PointerTile) else pointer.itemsize


def buffers_of(pointer: PointerTile | AddressTile) -> tuple[Buffer, ...]:
    """Return the buffers that pointers are known to point into."""
    return (pointer.buffer,) if isinstance(pointer, PointerTile) else pointer.buffers
