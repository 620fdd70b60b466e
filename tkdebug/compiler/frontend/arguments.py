"""The specification of a kernel's arguments: a type, a constant or a tuple for each parameter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Union

from tkdebug.compiler.dtypes import LanguageType, int32, int64, tensor_descriptor_type
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.ir import Block
from tkdebug.compiler.tensor import tensor, tensor_descriptor, unwrap


@dataclass(frozen=True, slots=True)
class Constant:
    """An argument that is known when the kernel is compiled."""

    value: Any


ArgSpec = Union[LanguageType, Constant, "tuple[ArgSpec, ...]"]


class Parameter(Protocol):
    """One parameter of a jit function."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def num(self) -> int:
        """The position."""

    @property
    def is_constexpr(self) -> bool:
        """Whether it is annotated `tl.constexpr`."""

    @property
    def is_variadic(self) -> bool:
        """Whether it takes the positional arguments that are left, as a tuple."""

    @property
    def is_keyword_only(self) -> bool:
        """Whether it is given by its name alone."""

    @property
    def default(self) -> Any:
        """The default value."""

    @property
    def has_default(self) -> bool:
        """Whether the parameter has a default."""


class JitCallable(Protocol):
    """The part of a jit function that the front end uses."""

    @property
    def fn(self) -> Any:
        """The Python function, a `FunctionType`."""

    @property
    def params(self) -> Sequence[Parameter]:
        """The parameters in order."""

    @property
    def kernel_source(self) -> KernelSource:
        """The source."""


def flatten_types(spec: ArgSpec) -> list[LanguageType]:
    """The types of the run-time parameters that an argument becomes, in order.

    A tensor descriptor is followed by its shape (int32 each) and strides (int64 each).
    """
    return [type_ for _, type_ in _leaves("", spec)]


def flatten_names(name: str, spec: ArgSpec) -> list[str]:
    """A name for each of `flatten_types(spec)`, such as `x`, `pair.0`, `desc.shape.1`."""
    return [leaf for leaf, _ in _leaves(name, spec)]


def nan_padded_names(name: str, spec: ArgSpec) -> list[str]:
    """The names of the tensor descriptors in an argument that pad with NaN."""
    return [
        leaf
        for leaf, type_ in _leaves(name, spec)
        if isinstance(type_, tensor_descriptor_type) and type_.padding == "nan"
    ]


def _leaves(name: str, spec: ArgSpec) -> Iterator[tuple[str, LanguageType]]:
    if isinstance(spec, Constant):
        return
    if isinstance(spec, tuple):
        for index, item in enumerate(spec):
            yield from _leaves(f"{name}.{index}", item)
        return
    yield name, spec
    if isinstance(spec, tensor_descriptor_type):
        for index in range(spec.rank):
            yield f"{name}.shape.{index}", int32
        for index in range(spec.rank):
            yield f"{name}.stride.{index}", int64


def bind_argument(name: str, spec: ArgSpec, block: Block) -> Any:
    """The value a parameter has in the kernel; adds its block arguments to `block`."""
    if isinstance(spec, Constant):
        return unwrap_deep(spec.value)
    if isinstance(spec, tuple):
        items = [bind_argument(f"{name}.{i}", item, block) for i, item in enumerate(spec)]
        return remake(spec, items)
    leaves = []
    for leaf, type_ in _leaves(name, spec):
        value = block.add_argument(type_.to_ir())
        value.name = leaf
        leaves.append(tensor(value, type_))
    if isinstance(spec, tensor_descriptor_type):
        rank = spec.rank
        shape, strides = tuple(leaves[1 : 1 + rank]), tuple(leaves[1 + rank :])
        return tensor_descriptor(leaves[0].value, spec, shape, strides)
    return leaves[0]


def remake(like: tuple[Any, ...], items: Sequence[Any]) -> tuple[Any, ...]:
    """A tuple of `items` of the class of `like`, which may be a named tuple."""
    make = getattr(type(like), "_make", tuple)
    made: tuple[Any, ...] = make(items)
    return made


def unwrap_deep(value: Any) -> Any:
    """`value` without constexpr wrappers; lists become tuples, as in the language."""
    value = unwrap(value)
    if isinstance(value, list):
        return tuple(unwrap_deep(item) for item in value)
    if isinstance(value, tuple):
        return remake(value, [unwrap_deep(item) for item in value])
    return value
