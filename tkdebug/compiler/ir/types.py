"""IR types and their text. Integers are signless as in MLIR: ops carry signedness if they need it.

Element type names and tensor syntax follow MLIR and Triton's dialect (`tensor<128x64xf32>`,
`!tt.ptr<f16>`), so that readers of Triton IR can read it. Layouts in types are written in full,
`#ttg.linear<{…}>` in Triton's form with `outs` added where sizes and names do not follow from the
bases, or by an alias from the top of a module, `#layout0`. `attribute_parser` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tkdebug.compiler.layouts.linear import OFFSET, LinearLayout


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
    """A tile of `element`s. `shape` may be () only inside region arguments of reductions.

    Attributes:
        encoding: the layout of its elements in threads and registers; None in Tile IR.
    """

    shape: tuple[int, ...]
    element: ScalarType | PointerType
    encoding: LinearLayout | None = None

    def __str__(self) -> str:
        return self.text(layout_text)

    def text(self, layout: LayoutText) -> str:
        """The type with its layout as `layout` writes it."""
        suffix = "" if self.encoding is None else f", {layout(self.encoding)}"
        return f"tensor<{_dims(self.shape)}{self.element}{suffix}>"

    @property
    def size_elems(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class DescriptorType:
    """A tensor descriptor whose blocks are `block`."""

    block: TensorType

    def __str__(self) -> str:
        return self.text(layout_text)

    def text(self, layout: LayoutText) -> str:
        """The type with its layout as `layout` writes it."""
        return f"!tt.tensordesc<{self.block.text(layout)}>"


@dataclass(frozen=True, slots=True)
class MemDescType:
    """A buffer in shared memory, or several of one kind one after the other.

    Attributes:
        shape: the shape of its contents; with one dimension more than `layout`, the first one is
            the number of buffers.
        layout: offset in elements -> coordinates of one buffer. A part of a buffer keeps the
            layout of the whole, which is then larger than `shape`.
        mutable: whether it may be stored to.
    """

    shape: tuple[int, ...]
    element: ScalarType | PointerType
    layout: LinearLayout
    mutable: bool = False

    def __str__(self) -> str:
        return self.text(layout_text)

    def text(self, layout: LayoutText) -> str:
        """The type with its layout as `layout` writes it."""
        suffix = ", mutable" if self.mutable else ""
        dims = _dims(self.shape)
        return f"!ttg.memdesc<{dims}{self.element}, {layout(self.layout)}{suffix}>"

    @property
    def is_multiple(self) -> bool:
        """Whether the first dimension counts buffers."""
        return len(self.shape) > len(self.layout.outs)

    @property
    def buffers(self) -> int:
        """Number of buffers."""
        return self.shape[0] if self.is_multiple else 1

    @property
    def buffer_shape(self) -> tuple[int, ...]:
        """Shape of one buffer's contents."""
        return self.shape[1:] if self.is_multiple else self.shape

    @property
    def element_bytes(self) -> int:
        """Bytes of an element; i1 takes one."""
        return max(1, self.element.bits // 8)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of one whole buffer."""
        return self.layout.in_size(OFFSET) * self.element_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of all buffers."""
        return self.buffers * self.buffer_bytes


@dataclass(frozen=True, slots=True)
class TokenType:
    """The result of async copies and the operand of waits: it orders them and holds nothing."""

    def __str__(self) -> str:
        return "!ttg.async.token"


Type = ScalarType | PointerType | TensorType | DescriptorType | MemDescType | TokenType
TOKEN = TokenType()

I1, I8, I16, I32, I64 = (SCALARS[n] for n in ("i1", "i8", "i16", "i32", "i64"))
F16, BF16, F32, F64 = (SCALARS[n] for n in ("f16", "bf16", "f32", "f64"))


def type_text(type_: Type, layout: LayoutText) -> str:
    """A type with its layout as `layout` writes it."""
    if isinstance(type_, TensorType | MemDescType | DescriptorType):
        return type_.text(layout)
    return str(type_)


def element_of(type_: Type) -> ScalarType | PointerType:
    """The element of a tensor, descriptor or buffer, or the scalar or pointer type itself.

    For a token, which holds nothing, it is i32.
    """
    if isinstance(type_, TensorType | MemDescType):
        return type_.element
    if isinstance(type_, DescriptorType):
        return type_.block.element
    return I32 if isinstance(type_, TokenType) else type_


def shape_of(type_: Type) -> tuple[int, ...]:
    """The shape of a tile or buffer; () for scalars and pointers."""
    return type_.shape if isinstance(type_, TensorType | MemDescType) else ()


def encoding_of(type_: Type) -> LinearLayout | None:
    """The layout of a tile; None for other types."""
    return type_.encoding if isinstance(type_, TensorType) else None


@lru_cache(maxsize=4096)
def with_element(type_: Type, element: ScalarType | PointerType) -> Type:
    """`type_` with its element replaced, shape and encoding kept."""
    if isinstance(type_, TensorType):
        return TensorType(type_.shape, element, type_.encoding)
    return element


def with_encoding(type_: Type, encoding: LinearLayout | None) -> Type:
    """A tile type under another layout; other types have none and stay."""
    if isinstance(type_, TensorType):
        return TensorType(type_.shape, type_.element, encoding)
    return type_


def without_encoding(type_: Type) -> Type:
    """The type without a layout, as in Tile IR."""
    if isinstance(type_, TensorType) and type_.encoding is not None:
        return TensorType(type_.shape, type_.element)
    return type_


@lru_cache(maxsize=4096)
def tile(
    shape: tuple[int, ...],
    element: ScalarType | PointerType,
    encoding: LinearLayout | None = None,
) -> Type:
    """A tensor type, or the bare element when `shape` is ()."""
    return TensorType(shape, element, encoding) if shape else element


def _dims(shape: tuple[int, ...]) -> str:
    return "".join(f"{extent}x" for extent in shape)


# Writes a layout inside a type: in full, or by the alias it has in a text.
LayoutText = Callable[[LinearLayout], str]


def layout_text(layout: LinearLayout) -> str:
    """A layout in full: `#ttg.linear<{register = [[0, 1], …], lane = […], …}>`."""
    bases = {name: layout.bases(name) for name in layout.in_dims}
    items = [f"{name} = {_vectors(vectors)}" for name, vectors in bases.items()]
    if implied_outs(bases) != layout.outs:
        outs = ", ".join(f"{name} = {size}" for name, size in layout.outs)
        items.append(f"outs = {{{outs}}}")
    kind = "shared_linear" if OFFSET in layout.in_dims else "linear"
    return f"#ttg.{kind}<{{{', '.join(items)}}}>"


def implied_outs(
    bases: Mapping[str, Sequence[Sequence[int]]],
) -> tuple[tuple[str, int], ...]:
    """The output dimensions that a layout with these bases has if it reaches all of them."""
    vectors = [vector for vectors in bases.values() for vector in vectors]
    sizes = [1 << max(coordinates).bit_length() for coordinates in zip(*vectors, strict=True)]
    return tuple((f"dim{axis}", size) for axis, size in enumerate(sizes))


def _vectors(vectors: Sequence[Sequence[int]]) -> str:
    return "[" + ", ".join(f"[{', '.join(map(str, vector))}]" for vector in vectors) + "]"


class LayoutAliases:
    """The names of layouts in one text, numbered in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._names: dict[LinearLayout, str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, layout: LinearLayout) -> str:
        """The alias of `layout`."""
        name = self._names.get(layout)
        if name is None:
            kind = "shared" if OFFSET in layout.in_dims else "layout"
            number = self._counts.get(kind, 0)
            self._counts[kind] = number + 1
            name = self._names[layout] = f"#{kind}{number}"
        return name

    def definition(self, layout: LinearLayout) -> str:
        """The line that gives `layout` its alias."""
        return f"{self(layout)} = {layout_text(layout)}"
