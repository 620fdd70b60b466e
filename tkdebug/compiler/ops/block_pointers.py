"""Block pointers: a block of a tensor, named by base, shape, strides and offsets.

They have no op: they are made of scalars, and an access through one is emitted as an access through
a tile of pointers and a mask (`memory`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dtypes import block_type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ops import conversion, operators
from tkdebug.compiler.ops.arguments import (
    axis_argument,
    list_argument,
    permutation_argument,
    scalars_argument,
    shape_argument,
)
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import block_pointer, tensor


def _emit_make_block_ptr(
    emit: Emitter,
    base: object,
    shape: object,
    strides: object,
    offsets: object,
    block_shape: object,
    order: object,
) -> block_pointer:
    """A pointer to a block of the tensor at `base`.

    Args:
        emit: where to emit.
        base: pointer to the tensor's first element.
        shape: extents of the tensor, in elements.
        strides: steps between neighbours along each axis, in elements.
        offsets: where the block starts along each axis.
        block_shape: constexpr extents of the block.
        order: axes from the fastest to the slowest; a hint.
    """
    pointer = operators.require_pointer(base, "make_block_ptr")
    extents = scalars_argument(emit, shape, dt.int64, "make_block_ptr: shape")
    steps = scalars_argument(emit, strides, dt.int64, "make_block_ptr: strides")
    starts = scalars_argument(emit, offsets, dt.int32, "make_block_ptr: offsets")
    block = shape_argument(block_shape, "make_block_ptr")
    if not len(extents) == len(steps) == len(starts) == len(block):
        raise SemanticError(
            "make_block_ptr: shape, strides, offsets and block_shape must have one entry an axis; "
            f"got {len(extents)}, {len(steps)}, {len(starts)} and {len(block)}"
        )
    fastest_first = list_argument(order, "make_block_ptr: order")
    axes = permutation_argument(fastest_first, len(block), "make_block_ptr: order")
    return block_pointer(pointer, extents, steps, starts, block, axes)


def _emit_advance(emit: Emitter, base: object, offsets: object) -> block_pointer:
    """The block pointer moved by `offsets`, one per axis."""
    if not isinstance(base, block_pointer):
        raise SemanticError(f"advance needs a block pointer, got {as_given(base)}")
    steps = scalars_argument(emit, offsets, dt.int32, "advance: offsets")
    if len(steps) != len(base.offsets):
        raise SemanticError(f"advance: {len(steps)} offsets for {len(base.offsets)} axes")
    moved = tuple(
        operators.binary(emit, "add", offset, step)
        for offset, step in zip(base.offsets, steps, strict=True)
    )
    return block_pointer(base.base, base.shape, base.strides, moved, base.block_shape, base.order)


def tile_of_pointers(
    emit: Emitter, block: block_pointer, checked: Sequence[int]
) -> tuple[tensor, tensor | None]:
    """The tile of pointers of a block pointer, and the mask of the checked axes."""
    rank = len(block.block_shape)
    pointers = block.base
    mask: tensor | None = None
    for axis in range(rank):
        extent = block.block_shape[axis]
        lane = emit.op(tt.MakeRange, (), [ir.tile((extent,), ir.I32)], start=0, end=extent)
        lanes = tensor(lane.result, block_type(dt.int32, (extent,)))
        start = conversion.cast(emit, block.offsets[axis], dt.int64)
        index = operators.binary(emit, "add", conversion.cast(emit, lanes, dt.int64), start)
        selector: list[object] = [None] * rank
        selector[axis] = slice(None)
        if axis in checked:
            low = operators.compare(emit, "ge", index, 0)
            high = operators.compare(emit, "lt", index, block.shape[axis])
            inside = operators.binary(emit, "and", low, high)
            inside = operators.subscript(emit, inside, tuple(selector))
            mask = inside if mask is None else operators.binary(emit, "and", mask, inside)
        offset = operators.binary(emit, "mul", index, block.strides[axis])
        offset = operators.subscript(emit, offset, tuple(selector))
        pointers = operators.binary(emit, "add", pointers, offset)
    pointers = conversion.broadcast_to(emit, pointers, block.block_shape)
    if mask is not None:
        mask = conversion.broadcast_to(emit, mask, block.block_shape)
    return pointers, mask


def checked_axes(block: block_pointer, boundary_check: object) -> list[int]:
    """The axes that an access checks against the tensor's shape."""
    axes = () if boundary_check is None else boundary_check
    rank = len(block.block_shape)
    return [
        axis_argument(axis, rank, "boundary_check")
        for axis in list_argument(axes, "boundary_check")
    ]


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("make_block_ptr", _emit_make_block_ptr),
    Builtin("advance", _emit_advance, member=True),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
