"""What tells the addresses of one launch from those of another, where no memory decides on them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from torch import Tensor

from tkdebug.interpreter.arguments import Arguments
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.tiles.values import AddressTile, DescriptorTile, PointerTile, TileValue


class LaunchKind:
    """Grid, numbers, and how tensors lie in their allocations; worked out when asked for."""

    __slots__ = ("_arguments", "_grid", "_key")

    def __init__(self, grid: tuple[int, int, int], arguments: Arguments) -> None:
        self._grid = grid
        self._arguments: Arguments | None = arguments
        self._key: Hashable | None = None

    def key(self) -> Hashable | None:
        """Equal for launches that differ in contents of memory alone; None where that is unknown.

        It keeps no tensor alive.
        """
        if self._arguments is not None:
            self._key = _key(self._grid, self._arguments)
            self._arguments = None
        return self._key


def _key(grid: tuple[int, int, int], arguments: Arguments) -> Hashable | None:
    if arguments.written is None:
        return None
    places: dict[int, int] = {}
    for buffer in arguments.buffers:
        places.setdefault(buffer.storage_key, len(places))
    parts: list[Hashable] = [grid]
    for value in arguments.values:
        part = _part(value, places)
        if part is None:
            return None
        parts.append(part)
    parts.append(tuple(key in arguments.written for key in places))
    return tuple(parts)


def _part(value: TileValue, places: Mapping[int, int]) -> Hashable | None:
    if isinstance(value, int):
        return value
    if isinstance(value, PointerTile):
        return _lie(value.buffer, places)
    if isinstance(value, Tensor):
        return float(value)
    if isinstance(value, DescriptorTile):
        base = _part(value.base, places)
        is_known = all(isinstance(part, int) for part in (*value.shape, *value.strides))
        if base is None or not is_known:
            return None
        return base, value.shape, value.strides, value.padding
    if isinstance(value, AddressTile) and value.address == 0:
        return ()
    return None  # memory that nobody passed as a tensor


def _lie(buffer: Buffer, places: Mapping[int, int]) -> Hashable:
    return (
        places[buffer.storage_key],
        buffer.storage_offset,
        buffer.itemsize,
        buffer.hull_elems,
        buffer.shape,
        tuple(buffer.dims),
        buffer.tensor.dtype,
    )
