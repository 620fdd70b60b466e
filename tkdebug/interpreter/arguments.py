"""The arguments of a launch as the evaluator's values, and the kind of launch that they make.

Launches of one kind access the same addresses, where no contents of memory decide on them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import DescriptorType, Module, PointerType, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.host_views import host_view, memory_of
from tkdebug.interpreter.tiles.values import AddressTile, DescriptorTile, PointerTile, TileValue

_FLOAT_DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}


class Arguments:
    """Block arguments as tile values, the buffers that they point into, and what may be written.

    Args:
        module: the module that is run.
        values: one per block argument, as `run_module` takes them.
        names: the names of the arguments.
        written: positions of the arguments that the kernel may write, None for any.
    """

    def __init__(
        self,
        module: Module,
        values: Sequence[Any],
        names: Sequence[str],
        written: frozenset[int] | None,
    ) -> None:
        self.device = device_of(values)
        block = module.function.regions[0].block
        self.buffers: list[Buffer] = []
        self._owners: list[int] = []
        self.values: list[TileValue] = []
        given = zip(block.arguments, values, names, strict=True)
        for place, (argument, value, name) in enumerate(given):
            self.values.append(self._tile(argument.type, value, name, place, values))
        self.written = self._written_storages(written)

    def buffers_of(self, places: frozenset[int] | None) -> list[Buffer]:
        """Return the buffers of the arguments at some positions, or all buffers for None."""
        owned = zip(self.buffers, self._owners, strict=True)
        return [buffer for buffer, owner in owned if places is None or owner in places]

    def _tile(
        self, type_: Type, value: Any, name: str, place: int, values: Sequence[Any]
    ) -> TileValue:
        if isinstance(type_, PointerType):
            return self._pointer(type_, value, name, place)
        if isinstance(type_, DescriptorType):
            return self._descriptor(type_, value, name, place, values)
        element = ir.element_of(type_)
        assert isinstance(element, ir.ScalarType)
        if element.is_integer:
            return arith.wrap(int(value), element.bits)
        return torch.full((1,), float(value), dtype=_FLOAT_DTYPES[str(element)], device=self.device)

    def _pointer(self, type_: PointerType, value: Any, name: str, place: int) -> TileValue:
        if value is None:
            return AddressTile(0, (), max(1, type_.pointee.bits // 8))
        if not isinstance(value, torch.Tensor):
            return AddressTile(int(value.data_ptr()), (), max(1, type_.pointee.bits // 8))
        buffer = Buffer(host_view(value).detach(), name)
        self.buffers.append(buffer)
        self._owners.append(place)
        return PointerTile(buffer, 0)

    def _descriptor(
        self, type_: DescriptorType, value: Any, name: str, place: int, values: Sequence[Any]
    ) -> TileValue:
        rank = len(type_.block.shape)
        element = type_.block.element
        assert isinstance(element, ir.ScalarType)
        base = self._pointer(PointerType(element), value.base, name, place)
        assert isinstance(base, PointerTile | AddressTile)
        shape = [int(v) for v in values[place + 1 : place + 1 + rank]]
        strides = [int(v) for v in values[place + 1 + rank : place + 1 + 2 * rank]]
        padding = str(getattr(value, "padding", "zero"))
        return DescriptorTile(base, shape, strides, padding)

    def _written_storages(self, written: frozenset[int] | None) -> frozenset[int] | None:
        if written is None:
            return None
        keys = {
            buffer.storage_key
            for buffer, owner in zip(self.buffers, self._owners, strict=True)
            if owner in written
        }
        stored_to = [buffer for buffer in self.buffers if buffer.storage_key in keys]
        for buffer in self.buffers:
            # Storages made from foreign memory (numpy, dlpack) may overlap.
            if buffer.storage_key not in keys and any(map(buffer.overlaps, stored_to)):
                keys.add(buffer.storage_key)
        return frozenset(keys)


def device_of(values: Sequence[Any]) -> torch.device:
    """Return the device of the first tensor's memory; the CPU when there is none."""
    for value in values:
        tensor = getattr(value, "base", value)
        if isinstance(tensor, torch.Tensor):
            with torch._C.DisableTorchFunction():  # noqa: SLF001
                return memory_of(tensor.untyped_storage()).device
    return torch.device("cpu")


class LaunchKind:
    """The grid, numbers and tensor placement that decide a launch's addresses, as a lazy key."""

    __slots__ = ("_arguments", "_grid", "_key")

    def __init__(self, grid: tuple[int, int, int], arguments: Arguments) -> None:
        self._grid = grid
        self._arguments: Arguments | None = arguments
        self._key: Hashable | None = None

    def key(self) -> Hashable | None:
        """Return a key, equal for launches that differ in memory contents alone; None if unknown.

        The key keeps no tensor alive.
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
