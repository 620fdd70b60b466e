"""IR types. Integers are signless as in MLIR: signedness lives in the ops that need it.

Element type names and tensor syntax follow MLIR and Triton's dialect
(`tensor<128x64xf32>`, `!tt.ptr<f16>`), so that whoever reads Triton IR reads this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class ScalarType:
    """An integer `iN` or a floating-point type by its MLIR name."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def bits(self) -> int:
        """Width in bits."""
        return _BITS[self.name]

    @property
    def is_integer(self) -> bool:
        """Whether this is `iN`."""
        return self.name[0] == "i"

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type, fp8 included."""
        return self.name[0] != "i"


_BITS = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "f8E4M3FN": 8,
    "f8E5M2": 8,
    "f8E4M3FNUZ": 8,
    "f8E5M2FNUZ": 8,
    "f8E4M3B11FNUZ": 8,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
}
SCALARS = {name: ScalarType(name) for name in _BITS}


@dataclass(frozen=True, slots=True)
class PointerType:
    """A pointer to `pointee` in global memory."""

    pointee: ScalarType | PointerType

    def __str__(self) -> str:
        return f"!tt.ptr<{self.pointee}>"

    @property
    def bits(self) -> int:
        """Width in bits."""
        return 64


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tile of `element`s. `shape` may be () only inside region arguments of reductions."""

    shape: tuple[int, ...]
    element: ScalarType | PointerType
    encoding: object | None = None

    def __str__(self) -> str:
        dims = "".join(f"{extent}x" for extent in self.shape)
        suffix = "" if self.encoding is None else f", {self.encoding}"
        return f"tensor<{dims}{self.element}{suffix}>"

    @property
    def size_elems(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class DescriptorType:
    """A tensor descriptor whose blocks are `block`."""

    block: TensorType

    def __str__(self) -> str:
        return f"!tt.tensordesc<{self.block}>"


Type = ScalarType | PointerType | TensorType | DescriptorType

I1, I8, I16, I32, I64 = (SCALARS[n] for n in ("i1", "i8", "i16", "i32", "i64"))
F16, BF16, F32, F64 = (SCALARS[n] for n in ("f16", "bf16", "f32", "f64"))


def element_of(type_: Type) -> ScalarType | PointerType:
    """The element of a tensor type, or the scalar or pointer type itself."""
    if isinstance(type_, TensorType):
        return type_.element
    if isinstance(type_, DescriptorType):
        return type_.block.element
    return type_


def shape_of(type_: Type) -> tuple[int, ...]:
    """The tile shape; () for scalars and pointers."""
    return type_.shape if isinstance(type_, TensorType) else ()


@lru_cache(maxsize=4096)
def with_element(type_: Type, element: ScalarType | PointerType) -> Type:
    """`type_` with its element replaced, shape and encoding kept."""
    if isinstance(type_, TensorType):
        return TensorType(type_.shape, element, type_.encoding)
    return element


@lru_cache(maxsize=4096)
def tile(shape: tuple[int, ...], element: ScalarType | PointerType) -> Type:
    """A tensor type, or the bare element when `shape` is ()."""
    return TensorType(shape, element) if shape else element
