"""The arguments of a launch as plain facts: what a checked one is given, and is reported with.

A script passes tensors, a bare launch their addresses. A checked one is also given where each of
them begins and ends, as it was passed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.probes.bounds import END_BYTES, MOST_ELEMENTS, elements_behind
from tkdebug.compiler.probes.live_memory import MEMORY
from tkdebug.compiler.tensor import unwrap
from tkdebug.runtime.arguments.specialize import is_tensor_like, language_dtype
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.arguments.tensor_stand_ins import TensorWrapper

if TYPE_CHECKING:
    import torch

    from tkdebug.interpreter.probes.checked_launch import PassedTensor

# As the kernel compares addresses, as signed numbers.
_NO_END = (1 << 63) - 1
_ANYWHERE = (0, _NO_END, MOST_ELEMENTS)
_NUMBERS = (bool, int, float)


class PassedArguments:
    """What was passed, without the tensors.

    Attributes:
        tensors: by name, as `ProbePlan.bounds` has it: `x`, `pair.0`, `desc`.
        numbers: by the parameter's name, constants too.
        has_gaps: whether a tensor is a view with gaps between its elements.
        is_plain: whether there is nothing but tensors with elements and numbers.

    Args:
        names: of the parameters.
        values: one for each.
    """

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        tensor_class, passed_class = _tensor_classes()
        self.tensors: dict[str, PassedTensor] = {}
        self.numbers: dict[str, object] = {}
        self.has_gaps = False
        self.is_plain = True
        # Of each tensor, the addresses of its first byte and of the one behind its last, and how
        # large the kernel takes its elements to be.
        self._extents: dict[str, tuple[int, int, int]] = {}
        for name, value in zip(names, values, strict=True):
            # The usual ones first, with few calls: the GPU may be waiting for this launch.
            kind = value.__class__
            if kind is tensor_class:
                passed = self.tensors[name] = passed_class.of(value)
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
        """Note a tensor, whose elements the kernel takes to be of a size, if that is given."""
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
            passed = _tensor_classes()[1].of(tensor, described)
            self._add(place, passed, size_bytes)

    @property
    def aligned_ends(self) -> frozenset[str]:
        """The tensors that end at multiples of END_BYTES, as `ProbeOptions` has them."""
        return frozenset(name for name, (_, end, _) in self._extents.items() if not end % END_BYTES)

    def has_aligned_ends(self, names: Collection[str]) -> bool:
        """Whether each of these is a tensor that ends so."""
        extents = self._extents
        return all(name in extents and not extents[name][1] % END_BYTES for name in names)

    def bounds(self, names: Sequence[str], memory: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
        """What the kernel takes of each of these, one after the other, as PLACES has it.

        Of what has no known extent, such as an address with a type, everything is legal.

        Args:
            names: as `ProbePlan.bounds` has them.
            memory: of the map of memory.
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
def _tensor_classes() -> tuple[type[torch.Tensor], type[PassedTensor]]:
    """What the reports of a launch take, they load with torch: not before there is a launch."""
    from torch import Tensor

    from tkdebug.interpreter.probes.checked_launch import PassedTensor

    return Tensor, PassedTensor


def kind_of(grid: tuple[int, int, int], values: Sequence[Any]) -> Hashable:
    """What the addresses of a launch are made of, but for what it loads.

    Args:
        grid: of the launch.
        values: one for each parameter.
    """
    tensor_class, _ = _tensor_classes()
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
    """The tensors of an argument, by name, and of which size the kernel takes their elements."""
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
