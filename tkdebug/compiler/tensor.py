"""A kernel's run-time values while its Python is being compiled.

`tensor` wraps an IR value with its language type; a plain Python object in the same place is a
compile-time constant. `constexpr` only marks annotations, and constants made outside kernels. The
front end unwraps it everywhere, so that `emit` functions never see one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tkdebug.compiler.dtypes import (
    LanguageType,
    block_type,
    describe_type,
    dtype,
    pointer_type,
    tensor_descriptor_type,
)
from tkdebug.compiler.ir import Value
from tkdebug.compiler.ops.spec import SemanticError


class constexpr:
    """A compile-time constant: `N: tl.constexpr` as an annotation, `tl.constexpr(3)` as a value."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        while isinstance(value, constexpr):
            value = value.value
        self.value: Any = value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __index__(self) -> int:
        return int(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == unwrap(other))

    def __call__(self, *arguments: object, **keywords: object) -> object:
        """Call the value."""
        return self.value(*arguments, **keywords)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __getitem__(self, key: object) -> Any:
        return self.value[unwrap(key)]


def unwrap(value: object) -> Any:
    """The Python object inside a constexpr, or `value` itself."""
    return value.value if isinstance(value, constexpr) else value


# Operators with which host code computes on constexprs; the results are constexprs, too.
_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *("lshift", "rshift", "and", "or", "xor"),
)


def _give_operators() -> None:
    def result_of(compute: Callable[..., Any]) -> Callable[..., constexpr]:
        return lambda *operands: constexpr(compute(*map(unwrap, operands)))

    for name in (*_BINARY, "lt", "le", "gt", "ge", "neg", "pos", "invert"):
        setattr(constexpr, f"__{name}__", result_of(getattr(operator, f"__{name}__")))
    for name in _BINARY:
        compute = getattr(operator, f"__{name}__")
        setattr(constexpr, f"__r{name}__", result_of(lambda a, b, of=compute: of(b, a)))


_give_operators()


class constexpr_type:
    """The type of a compile-time constant."""

    def __init__(self, value: object) -> None:
        self.value = unwrap(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, constexpr_type) and self.value == other.value

    def __hash__(self) -> int:
        return hash(("constexpr_type", self.value))

    def __repr__(self) -> str:
        return f"constexpr_type[{self.value}]"


@dataclass(frozen=True, eq=False)
class tensor:
    """A run-time value: an IR value and its language type (a scalar, pointer or block type)."""

    value: Value
    type: LanguageType

    @property
    def dtype(self) -> LanguageType:
        """Element type: a dtype, or a pointer type."""
        return self.type.scalar

    @property
    def shape(self) -> tuple[int, ...]:
        """Tile shape; () for scalars."""
        return self.type.shape

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.type.numel if isinstance(self.type, block_type) else 1

    def __bool__(self) -> bool:
        raise SemanticError(
            f"a run-time {describe_type(self.type)} has no truth value at compile time; "
            "expected a constant here"
        )


@dataclass(frozen=True, eq=False)
class tensor_descriptor:
    """A tensor descriptor: its IR value, the block type, and the run-time shape and strides."""

    value: Value
    type: tensor_descriptor_type
    shape: tuple[tensor, ...]
    strides: tuple[tensor, ...]

    @property
    def block_type(self) -> block_type:
        """Type of the blocks it loads and stores."""
        return self.type.block

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Shape of the blocks."""
        return self.type.block.shape

    @property
    def dtype(self) -> LanguageType:
        """Element type."""
        return self.type.block.element_ty


@dataclass(frozen=True, eq=False)
class block_pointer:
    """A `tl.make_block_ptr`: base pointer with run-time shape, strides and offsets.

    Attributes:
        order: the axes from fastest to slowest, a hint only.
    """

    base: tensor
    shape: tuple[tensor, ...]
    strides: tuple[tensor, ...]
    offsets: tuple[tensor, ...]
    block_shape: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def element_ty(self) -> LanguageType:
        """The type of the element that it points to."""
        pointer = self.base.type
        return pointer.element_ty  # type: ignore[attr-defined, no-any-return]

    @property
    def type(self) -> pointer_type:
        """A pointer to a block: kernels read `.type.element_ty`, and cast to it."""
        return pointer_type(block_type(self.element_ty, self.block_shape))

    @property
    def dtype(self) -> pointer_type:
        """The pointer's type: a block pointer counts as one pointer."""
        return self.type


def is_runtime(value: object) -> bool:
    """Whether `value` is only known when the kernel runs."""
    return isinstance(value, tensor | tensor_descriptor | block_pointer)


def is_jit_function(value: object) -> bool:
    """Whether `value` is a jit function, by its attributes."""
    # The class is tested: reading the attribute of the object would look for the source.
    return hasattr(type(value), "kernel_source")


def scalar_dtype(value: tensor) -> dtype:
    """The element dtype of a value of numbers.

    Raises:
        SemanticError: the value is a pointer.
    """
    element = value.type.scalar
    if not isinstance(element, dtype):
        raise SemanticError(
            f"expected numbers, got {describe_type(value.type)}; tl.load reads from a pointer"
        )
    return element
