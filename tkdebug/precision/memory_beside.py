"""Memory that a launch writes, in fp64 and in worlds.

What the kernel may read again has a copy of its allocation in fp64 from its first store on, and one
for each world in which it differs. Where it only stores, the stored elements are noted. Memory
that nobody stores to is what it is, on every side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.side_by_side import AsActual
from tkdebug.interpreter.tiles.values import DescriptorTile, PointerTile, TileValue

_Key = tuple[int, int]
# A tile in fp64, and in each world in which it differs.
_Tiles = Mapping["Hashable | None", Tensor]


class Accesses(Observer):
    """The stores and atomics of the op that has just run."""

    follows_accesses = True
    is_passive = True
    # Tiles in fp64 and in worlds, against the kernel's own.
    memory_factor = 16

    def __init__(self) -> None:
        self._found: list[ObservedAccess] = []

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note a store or an atomic."""
        self._found.append(access)

    atomic_done = written

    def take(self) -> Sequence[ObservedAccess]:
        """Return the accesses since the last call, and forget them."""
        found, self._found = self._found, []
        return found


@dataclass(frozen=True, slots=True)
class WrittenElements:
    """Elements of an allocation of floats that were written.

    Attributes:
        buffer: the tensor.
        places: the places of the elements in the allocation.
        actual: what the kernel stored, as fp64.
        worlds: what it would have stored, by world; None is fp64.
    """

    buffer: Buffer
    places: Tensor
    actual: Tensor
    worlds: _Tiles


@dataclass(slots=True)
class _Copies:
    """An allocation that the kernel may read again: its copies, and what was written."""

    buffer: Buffer
    mask: Tensor
    flats: dict[Hashable | None, Tensor]


@dataclass(slots=True)
class _Stored:
    """The stores to an allocation, in order."""

    buffer: Buffer
    entries: list[tuple[Tensor, Tensor, _Tiles]] = field(default_factory=list)


class MemoryBeside:
    """The memory that a launch writes, by world; None is fp64.

    Args:
        accesses: gives the accesses of the op that has just run.
        read: the allocations that the kernel may read; None for any.
    """

    def __init__(self, accesses: Accesses, read: frozenset[int] | None) -> None:
        self._accesses = accesses
        self._read = read
        self._copies: dict[_Key, _Copies] = {}
        self._stored: dict[_Key, _Stored] = {}
        self._buffers: dict[tuple[int, Hashable | None], Buffer] = {}
        self._kept: list[Buffer] = []  # alive, so that no other buffer gets the id of one

    # What the kernel only stores to

    def is_only_stored(self, pointer: TileValue) -> bool:
        """Whether a pointer is into memory of floats that the kernel does not read."""
        buffer = _buffer(pointer)
        if buffer is None or self._read is None or not _is_of_floats(buffer):
            return False
        return buffer.storage_key not in self._read

    def note_store(
        self, run: Evaluator, actual: Callable[[], Tensor], tiles: Callable[[], _Tiles]
    ) -> None:
        """Note the elements that a store has just written.

        Args:
            run: the programs.
            actual: gives what the kernel stored, as fp64.
            tiles: gives what it would have, by world.
        """
        for access in self._accesses.take():
            touched = access.touch()
            if not touched.places.numel():
                continue
            picked = _Picked(run, touched)
            each = {world: picked.of(tile) for world, tile in tiles().items()}
            found = self._stored.setdefault(_key(access.buffer), _Stored(access.buffer))
            found.entries.append((touched.places, picked.of(actual()), each))

    # What it may read again

    def is_beside(self, pointer: TileValue) -> bool:
        """Whether the memory of a pointer has copies."""
        buffer = _buffer(pointer)
        return buffer is not None and _key(buffer) in self._copies

    def begin(self, pointer: TileValue) -> bool:
        """Copy a pointer's memory in fp64, once; return False if it is unknown or has no floats."""
        self._accesses.take()
        buffer = _buffer(pointer)
        if buffer is None or not _is_of_floats(buffer):
            return False
        if _key(buffer) not in self._copies:
            flat = _widened(buffer)
            mask = torch.zeros_like(flat, dtype=torch.bool)
            self._copies[_key(buffer)] = _Copies(buffer, mask, {None: flat})
        return True

    def mark(self) -> None:
        """Note which elements of memory with copies were just written."""
        for access in self._accesses.take():
            copies = self._copies.get((access.buffer.storage_key, access.itemsize))
            if copies is None:
                continue
            slabs = access.hyperslabs()
            if slabs is None:
                copies.mask[access.touch().places] = True
                continue
            for slab in slabs:
                slab.view(copies.mask)[...] = True

    def worlds_at(self, pointer: TileValue, also: Iterable[Hashable] = ()) -> tuple[Hashable, ...]:
        """Return the worlds that have a copy of a pointer's memory, and those of `also`."""
        known = (world for world in self._at(pointer).flats if world is not None)
        return tuple(dict.fromkeys((*known, *also)))

    def pointer(self, pointer: TileValue, world: Hashable | None) -> TileValue:
        """Return a pointer to the same place in a world."""
        buffer = _buffer(pointer)
        assert buffer is not None
        place = id(buffer), world
        if place not in self._buffers:
            self._buffers[place] = _as_buffer(buffer, self._flat(pointer, world))
            self._kept.append(buffer)
        return _at(pointer, self._buffers[place])

    def pointer_to(self, pointer: TileValue, flat: Tensor) -> TileValue:
        """Return a pointer to the same place in a copy of its allocation."""
        buffer = _buffer(pointer)
        assert buffer is not None
        return _at(pointer, _as_buffer(buffer, flat))

    def actual(self, pointer: TileValue) -> Tensor:
        """Return a copy of what an allocation holds, as fp64."""
        buffer = _buffer(pointer)
        assert buffer is not None
        return _widened(buffer)

    def add(self, pointer: TileValue, world: Hashable, part: Tensor) -> None:
        """Add the errors of an op to an allocation of a world."""
        self._flat(pointer, world).add_(part)

    def take_over(self, pointer: TileValue, before: Tensor) -> None:
        """Copy the elements that the kernel has changed since `before` to fp64 and all worlds."""
        now = self.actual(pointer)
        changed = ~((now == before) | (now.isnan() & before.isnan()))
        for flat in self._at(pointer).flats.values():
            flat[changed] = now[changed]

    def _at(self, pointer: TileValue) -> _Copies:
        buffer = _buffer(pointer)
        assert buffer is not None
        return self._copies[_key(buffer)]

    def begin_worlds(
        self, pointer: TileValue, worlds: Iterable[Hashable | None], before: Tensor
    ) -> None:
        """Copy an allocation for those worlds that begin with the kernel's values (`AsActual`).

        Args:
            pointer: into the allocation.
            worlds: those that are wanted, of any kind.
            before: what the allocation held before an op changed it, as fp64.
        """
        flats = self._at(pointer).flats
        for world in worlds:
            if isinstance(world, AsActual) and world not in flats:
                flats[world] = before.clone()

    def _flat(self, pointer: TileValue, world: Hashable | None) -> Tensor:
        """A world's copy of an allocation, first made from fp64's copy or the kernel's memory."""
        flats = self._at(pointer).flats
        if world not in flats:
            is_actual = isinstance(world, AsActual)
            flats[world] = self.actual(pointer) if is_actual else flats[None].clone()
        return flats[world]

    # After the launch

    def written(self) -> Iterator[WrittenElements]:
        """Yield what was written, a tensor each."""
        for stored in self._stored.values():
            yield _gathered(stored)
        for copies in self._copies.values():
            places = copies.mask.nonzero().reshape(-1)
            buffer = copies.buffer
            actual = _as_fp64(buffer.flat(buffer.tensor.dtype)[places])
            worlds = {world: flat[places] for world, flat in copies.flats.items()}
            yield WrittenElements(buffer, places, actual, worlds)


def _gathered(stored: _Stored) -> WrittenElements:
    """The elements that were stored last at each place."""
    places = torch.cat([each for each, _, _ in stored.entries])
    actual = torch.cat([each for _, each, _ in stored.entries])
    names = dict.fromkeys(world for _, _, tiles in stored.entries for world in tiles)
    worlds = {
        world: torch.cat(
            [
                tiles.get(world, wide if isinstance(world, AsActual) else tiles[None])
                for _, wide, tiles in stored.entries
            ]
        )
        for world in names
    }
    if bool((places[1:] > places[:-1]).all()):
        return WrittenElements(stored.buffer, places, actual, worlds)
    unique, inverse = torch.unique(places, return_inverse=True)
    if unique.numel() < places.numel():
        last = torch.zeros_like(unique).scatter_reduce_(
            0, inverse, torch.arange(places.numel(), device=places.device), "amax"
        )
        places, actual = unique, actual[last]
        worlds = {world: each[last] for world, each in worlds.items()}
    return WrittenElements(stored.buffer, places, actual, worlds)


class _Picked:
    """The elements of tiles that an access touches."""

    def __init__(self, run: Evaluator, touched: Touched) -> None:
        self._touched = touched
        size = math.prod(touched.shape)
        # Touched elements are in order: if all are touched, they are the tile as it is.
        self._is_whole = touched.places.numel() == run.programs * size
        self._places = (touched.programs - run.first).mul_(size).add_(touched.lanes)

    def of(self, tile: Tensor) -> Tensor:
        """Return the touched elements of a tile, in memory of their own."""
        touched = self._touched
        flat = tile.expand(tile.shape[0], *touched.shape).reshape(-1)
        if tile.shape[0] == 1:
            return flat[touched.lanes]
        return flat.clone() if self._is_whole else flat[self._places]


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


def _as_fp64(tensor: Tensor) -> Tensor:
    # torch has no way from fp8 to fp64 for some of the types.
    return (tensor.float() if tensor.element_size() == 1 else tensor).to(torch.float64)


def _widened(buffer: Buffer) -> Tensor:
    flat = buffer.flat(buffer.tensor.dtype)
    return (flat.float() if flat.element_size() == 1 else flat).to(torch.float64, copy=True)


def _as_buffer(buffer: Buffer, flat: Tensor) -> Buffer:
    tensor = torch.empty(0, dtype=torch.float64, device=flat.device)
    tensor.set_(
        flat.untyped_storage(), buffer.storage_offset, buffer.tensor.shape, buffer.tensor.stride()
    )
    return Buffer(tensor, buffer.name)
