"""Checks of the language's arguments: constants, axes, shapes, dtypes, tiles.

Each check takes the argument in the kernel and returns a value for an `emit` function, or names the
mistake; `what` is the argument's name in the message.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dtypes import LanguageType, dtype
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.emitter import MAX_TILE_ELEMS, Emitter
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor


def int_argument(value: object, what: str, least: int = 0, most: int | None = None) -> int:
    """Return `value`, a constant int of at least `least` and, if given, at most `most`."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value >= least and (most is None or value <= most):
            return value
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise SemanticError(f"{what} must be a constant int {limits}, got {as_given(value)}")


def list_argument(value: object, what: str) -> list[Any]:
    """Return one value, or a sequence of values, as a list."""
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, tensor | int):
        return [value]
    raise SemanticError(f"{what} must be one value or a tuple of values, got {as_given(value)}")


def scalars_argument(
    emit: Emitter, values: object, element: dtype, what: str
) -> tuple[tensor, ...]:
    """Return an integer scalar, or a sequence of them, as run-time values of dtype `element`."""
    out = []
    for value in list_argument(values, what):
        item = conversion.to_tensor(emit, value)
        if item.type.is_block() or not scalar_dtype(item).is_int():
            raise SemanticError(f"{what} must be integer scalars, got {as_given(item)}")
        out.append(conversion.cast(emit, item, element))
    return tuple(out)


def axis_argument(axis: object, rank: int, what: str) -> int:
    """A constant axis as a number from 0 to `rank` - 1; negative ones count from the end."""
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise SemanticError(f"{what}: axis must be a constant int, got {as_given(axis)}")
    if not -rank <= axis < rank:
        raise SemanticError(f"{what}: axis {axis} is outside a tile of {rank} axes")
    return axis % rank


def shape_argument(shape: Any, what: str) -> tuple[int, ...]:
    """Return a tile's shape, given as one constant power of 2 or a sequence of them."""
    if isinstance(shape, int):
        shape = (shape,)
    if not isinstance(shape, tuple | list):
        raise SemanticError(f"{what}: shape must be constants, got {as_given(shape)}")
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = shape[0]
    dims: list[int] = []
    for dim in shape:
        if not isinstance(dim, int) or isinstance(dim, bool):
            raise SemanticError(
                f"{what}: shape element {len(dims)} must be a constexpr int, got {as_given(dim)}"
            )
        if dim <= 0 or dim & (dim - 1):
            raise SemanticError(
                f"{what}: shape element {len(dims)} must be a power of 2, got {dim}; "
                f"round up with triton.next_power_of_2 and mask the rest"
            )
        dims.append(dim)
    if math.prod(dims) > MAX_TILE_ELEMS:
        raise SemanticError(
            f"{what}: {math.prod(dims)} elements exceed the limit of {MAX_TILE_ELEMS} a tile"
        )
    return tuple(dims)


def dtype_argument(value: object, what: str) -> dtype:
    """Return `value`, which must be a scalar dtype of numbers."""
    if not isinstance(value, dtype):
        raise SemanticError(
            f"{what}: dtype must be a tl dtype such as tl.float32, got {as_given(value)}"
        )
    return value


def type_argument(value: object, what: str) -> LanguageType:
    """Return `value`, which must be a type of numbers, of pointers, or of tiles of either."""
    if not isinstance(value, LanguageType):
        raise SemanticError(f"{what}: expected a dtype such as tl.float32, got {as_given(value)}")
    return value


def tile_argument(value: object, what: str) -> tensor:
    """Return `value`, which must be a tile: neither a scalar nor a constant."""
    if not isinstance(value, tensor) or not value.type.is_block():
        raise SemanticError(f"{what} needs a tile, got {as_given(value)}")
    return value


def permutation_argument(order: Sequence[object], rank: int, what: str) -> tuple[int, ...]:
    """Return `order`, a permutation of `rank` axes, with negative axes counted from the end."""
    valid = [axis for axis in order if isinstance(axis, int) and -rank <= axis < rank]
    normal = tuple(axis % rank for axis in valid)
    if len(order) != rank or sorted(normal) != list(range(rank)):
        shown = ", ".join(map(as_given, order))
        raise SemanticError(f"{what}: [{shown}] is not a permutation of {rank} axes")
    return normal
