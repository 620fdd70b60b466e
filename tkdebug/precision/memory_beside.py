"""Memory that a launch writes, in fp64 and in worlds: copies of its allocations, made when needed.

An allocation has an fp64 copy from its first store on, and one for each world in which it differs.
Memory that nobody stores to is what it is, on every side.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import torch
from torch import Tensor

from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.tiles.values import DescriptorTile, PointerTile, TileValue

_Key = tuple[int, int]


class MemoryBeside:
    """Copies of allocations by world; None is fp64."""

    def __init__(self) -> None:
        self._flats: dict[_Key, dict[Hashable | None, Tensor]] = {}
        self._buffers: dict[tuple[int, Hashable | None], Buffer] = {}
        self._kept: list[Buffer] = []  # so that their ids stay theirs

    def is_beside(self, pointer: TileValue) -> bool:
        """Whether the memory of a pointer has copies."""
        buffer = _buffer(pointer)
        return buffer is not None and _key(buffer) in self._flats

    def begin(self, run: Evaluator, pointer: TileValue) -> bool:
        """Copy the memory of a pointer in fp64, once; False if it is not known or no floats."""
        buffer = _buffer(pointer)
        if buffer is None or not _is_of_floats(buffer):
            return False
        if _key(buffer) not in self._flats:
            self._flats[_key(buffer)] = {None: _widened(buffer)}
        return True

    def worlds_at(self, pointer: TileValue, also: Iterable[Hashable] = ()) -> tuple[Hashable, ...]:
        """Return the worlds in which memory differs from fp64, and those of what is stored."""
        buffer = _buffer(pointer)
        assert buffer is not None
        known = (world for world in self._flats[_key(buffer)] if world is not None)
        return tuple(dict.fromkeys((*known, *also)))

    def flat(self, buffer: Buffer, world: Hashable | None) -> Tensor:
        """Return an allocation in a world, which is fp64's until something makes it differ."""
        flats = self._flats[_key(buffer)]
        if world not in flats:
            flats[world] = flats[None].clone()
        return flats[world]

    def has(self, buffer: Buffer) -> bool:
        """Whether an allocation has copies."""
        return _key(buffer) in self._flats

    def flats(self, buffer: Buffer) -> Mapping[Hashable | None, Tensor]:
        """Return the copies of an allocation."""
        return self._flats[_key(buffer)]

    def pointer(self, pointer: TileValue, world: Hashable | None) -> TileValue:
        """Return a pointer to the same place in a world."""
        buffer = _buffer(pointer)
        assert buffer is not None
        place = id(buffer), world
        if place not in self._buffers:
            self._buffers[place] = _as_buffer(buffer, self.flat(buffer, world))
            self._kept.append(buffer)
        return _at(pointer, self._buffers[place])

    def pointer_to(self, pointer: TileValue, flat: Tensor) -> TileValue:
        """Return a pointer to the same place in a copy of its allocation."""
        buffer = _buffer(pointer)
        assert buffer is not None
        return _at(pointer, _as_buffer(buffer, flat))

    def actual(self, run: Evaluator, pointer: TileValue) -> Tensor:
        """Return a copy of what an allocation holds, as fp64."""
        buffer = _buffer(pointer)
        assert buffer is not None
        return _widened(buffer)

    def add(self, pointer: TileValue, world: Hashable, part: Tensor) -> None:
        """Add the errors of an op to an allocation of a world."""
        buffer = _buffer(pointer)
        assert buffer is not None
        self.flat(buffer, world).add_(part)

    def take_over(self, run: Evaluator, pointer: TileValue, before: Tensor) -> None:
        """Let memory be the kernel's in all worlds where that has changed."""
        buffer = _buffer(pointer)
        assert buffer is not None
        now = _widened(buffer)
        changed = ~((now == before) | (now.isnan() & before.isnan()))
        for flat in self._flats[_key(buffer)].values():
            flat[changed] = now[changed]


def _buffer(pointer: TileValue) -> Buffer | None:
    if isinstance(pointer, DescriptorTile):
        pointer = pointer.base
    return pointer.buffer if isinstance(pointer, PointerTile) else None


def _at(pointer: TileValue, buffer: Buffer) -> TileValue:
    if isinstance(pointer, DescriptorTile):
        base = _at(pointer.base, buffer)
        assert isinstance(base, PointerTile)
        return DescriptorTile(base, pointer.shape, pointer.strides, pointer.padding)
    assert isinstance(pointer, PointerTile)
    return PointerTile(buffer, pointer.offset)


def _key(buffer: Buffer) -> _Key:
    return buffer.storage_key, buffer.itemsize


def _is_of_floats(buffer: Buffer) -> bool:
    dtype = buffer.tensor.dtype
    return dtype.is_floating_point and buffer.itemsize == buffer.tensor.element_size()


def _widened(buffer: Buffer) -> Tensor:
    return buffer.flat(buffer.tensor.dtype).to(torch.float64, copy=True)


def _as_buffer(buffer: Buffer, flat: Tensor) -> Buffer:
    tensor = torch.empty(0, dtype=torch.float64, device=flat.device)
    tensor.set_(
        flat.untyped_storage(), buffer.storage_offset, buffer.tensor.shape, buffer.tensor.stride()
    )
    return Buffer(tensor, buffer.name)
