"""The arguments of a launch as plain facts: what a checked one is given, and is reported with.

A script passes tensors, a bare launch their addresses. A checked launch is also given the begin and
the end of each tensor as it was passed, and if the kernel loads pointers, a map of memory
(`live_memory`): the allocations of torch's allocator, the launch's own tensors, and those whose
addresses the script has read.

Invariant: memory that the map says to be gone certainly is. Memory of other libraries is unknown,
and so is all of the device's if torch's allocator has no list of it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.sites.live_memory import (
    MEMORY,
    AddressRange,
    MemoryMap,
    merged,
    overlapping,
    without,
)
from tkdebug.compiler.sites.table import END_BYTES, MOST_ELEMENTS, elements_behind
from tkdebug.compiler.tensor import unwrap
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor
from tkdebug.interpreter.memory.address_registry import ADDRESSES, FreedTensor
from tkdebug.runtime.arguments.specialize import is_tensor_like, language_dtype
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.arguments.tensor_stand_ins import TensorWrapper

if TYPE_CHECKING:
    import torch

    from tkdebug.runtime.device.platform import CheckMemory

# The largest address, as the kernel compares addresses as signed numbers.
_NO_END = (1 << 63) - 1
_ANYWHERE = (0, _NO_END, MOST_ELEMENTS)
_NUMBERS = (bool, int, float)


class PassedArguments:
    """The facts of a launch's arguments, without the tensors.

    Attributes:
        tensors: the tensors by name, as `CheckPlan.bounds` has it: `x`, `pair.0`, `desc`.
        numbers: the numbers by the parameter's name, constants too.
        has_gaps: whether a tensor is a view with gaps between its elements.
        is_plain: whether there is nothing but tensors with elements and numbers.

    Args:
        names: the names of the parameters.
        values: one for each parameter.
    """

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        tensor_class = _tensor_class()
        self.tensors: dict[str, PassedTensor] = {}
        self.numbers: dict[str, object] = {}
        self.has_gaps = False
        self.is_plain = True
        # For each tensor, the addresses of its first byte and of the byte after its last, and the
        # element size that the kernel assumes.
        self._extents: dict[str, tuple[int, int, int]] = {}
        for name, value in zip(names, values, strict=True):
            # The usual ones first, with few calls: the GPU may be waiting for this launch.
            kind = value.__class__
            if kind is tensor_class:
                passed = self.tensors[name] = PassedTensor.of(value)
                address = passed.address
                if address and value.is_contiguous():
                    # As `byte_bounds` has it, which takes as long as all the rest.
                    self._extents[name] = address, address + value.nbytes, passed.dtype.itemsize
                else:
                    self._add(name, passed)
                    self.is_plain = self.is_plain and address != 0
            elif kind in _NUMBERS:
                self.numbers[name] = value
            else:
                self._add_other(name, unwrap(value))

    def _add(self, place: str, passed: PassedTensor, size_bytes: int = 0) -> None:
        """Note a tensor, and the element size that the kernel assumes, if given."""
        self.tensors[place] = passed
        self.has_gaps = self.has_gaps or passed.has_gaps
        _, end = passed.byte_bounds()
        self._extents[place] = passed.address, end, size_bytes or passed.dtype.itemsize

    def _add_other(self, name: str, plain: Any) -> None:
        self.is_plain = False
        if isinstance(plain, _NUMBERS):
            self.numbers[name] = plain
        described = None
        if isinstance(plain, TensorDescriptor):
            described = (tuple(map(int, plain.shape)), tuple(map(int, plain.strides)))
        for place, tensor, size_bytes in _tensors(name, plain):
            passed = PassedTensor.of(tensor, described)
            self._add(place, passed, size_bytes)

    @property
    def aligned_ends(self) -> frozenset[str]:
        """The tensors that end at multiples of END_BYTES, as `CheckOptions` has them."""
        return frozenset(name for name, (_, end, _) in self._extents.items() if not end % END_BYTES)

    def has_aligned_ends(self, names: Collection[str]) -> bool:
        """Whether each name is a tensor that ends at a multiple of END_BYTES."""
        extents = self._extents
        return all(name in extents and not extents[name][1] % END_BYTES for name in names)

    def bounds(self, names: Sequence[str], memory: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
        """Return the bounds that the kernel takes for each name, in the order of PLACES.

        An argument of no known extent, such as an address with a type, has no bounds.

        Args:
            names: names as in `CheckPlan.bounds`.
            memory: the place of the map of memory.
        """
        places: list[int] = []
        for name in names:
            if name in self._extents:
                first, end, size = self._extents[name]
                places += first, end, elements_behind(first, end, size)
            else:
                places += (*memory, 0) if name == MEMORY else _ANYWHERE
        return tuple(places)


@cache
def _tensor_class() -> type[torch.Tensor]:
    """Return `torch.Tensor`, which is imported with the first launch."""
    from torch import Tensor

    return Tensor


def kind_of(grid: tuple[int, int, int], values: Sequence[Any]) -> Hashable:
    """Return a key of all that a launch's addresses depend on, except loaded values.

    Args:
        grid: the grid of the launch.
        values: one for each parameter.
    """
    tensor_class = _tensor_class()
    facts: list[Hashable] = [grid]
    for value in values:
        # The usual ones without a call: this is asked of each launch that is looked at.
        kind = value.__class__
        if kind is tensor_class:
            facts += (value.shape, value.stride())
        elif kind is int:
            facts.append(value)
        elif kind is not float:
            _add_facts(facts, unwrap(value))
    return tuple(facts)


def _add_facts(facts: list[Hashable], value: Any) -> None:
    if value.__class__ is int:
        facts.append(value)
    else:
        for _, tensor, _ in _tensors("", value):
            facts += (tensor.shape, tensor.stride())


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any, int]]:
    """Yield the tensors of an argument by name, with the element size that the kernel takes."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value, value.dtype.itemsize
    elif isinstance(value, TensorWrapper):
        size_bytes = max(1, language_dtype(value.dtype).primitive_bitwidth // 8)
        yield from ((place, tensor, size_bytes) for place, tensor, _ in _tensors(name, value.base))
    elif isinstance(value, TensorDescriptor):
        yield from _tensors(name, value.base)
    elif isinstance(value, tuple) and not is_tensor_like(value):
        for index, item in enumerate(value):
            yield from _tensors(f"{name}.{index}", unwrap(item))


# For a map: 512 KiB.
MOST_INTERVALS = 1 << 15


@dataclass(frozen=True, slots=True)
class LaunchMemory:
    """The state of memory when a launch was made; nothing is kept alive.

    Attributes:
        packed: the map, as the kernel takes it.
        tensors: the tensors whose addresses were read.
        freed: freed tensors, the latest first.
        live: allocations, ascending.
    """

    packed: bytes
    tensors: tuple[PassedTensor, ...]
    freed: tuple[FreedTensor, ...]
    live: Sequence[AddressRange]

    def freed_at(self, address: int) -> str | None:
        """Describe the freed tensor that had an address, and any reuse; None if there is none."""
        for one in self.freed:
            if one.span.first <= address < one.span.end:
                is_reused = any(overlapping(AddressRange(address, address + 1), self.live))
                return f"{one.text}, and whose memory another has" if is_reused else one.text
        return None


def launch_memory(memory: CheckMemory, arguments: PassedArguments) -> LaunchMemory:
    """Return the state of memory just now.

    Args:
        memory: the memory of the device.
        arguments: the launch's arguments.
    """
    known, given = ADDRESSES.known(), memory.allocations()
    tensors = tuple(PassedTensor.of(tensor) for tensor in known.tensors)
    seen = {tensor.storage for tensor in (*arguments.tensors.values(), *tensors)}
    torchs = sorted(given.live)
    # Storages that are none of torch's allocator; those of its own are in its list.
    others = [span for span in seen if not any(overlapping(span, torchs))]
    live = sorted({*torchs, *others})
    stale: list[AddressRange] = []
    if not ADDRESSES.are_stored_by_kernels:
        alive, managed = merged(seen), merged((*given.live, *given.gone))
        for freed in known.freed:
            for part in overlapping(freed.span, managed):
                stale += without(part, alive)
    packed = MemoryMap(live, given.gone, stale).packed(MOST_INTERVALS)
    return LaunchMemory(packed, tensors, tuple(known.freed), live)
