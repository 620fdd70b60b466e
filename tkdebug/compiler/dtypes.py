"""The language's types: what `tl.float32`, `tl.pointer_type`, `x.dtype` and `x.type` are.

They carry signedness, which the signless IR types do not, and follow upstream's names, string
forms and predicates (`str(tl.float32) == "fp32"`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from tkdebug.compiler.ir import types as ir

_IR_NAMES = {
    "int1": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "i8",
    "uint16": "i16",
    "uint32": "i32",
    "uint64": "i64",
    "fp8e4nv": "f8E4M3FN",
    "fp8e5": "f8E5M2",
    "fp8e4b8": "f8E4M3FNUZ",
    "fp8e5b16": "f8E5M2FNUZ",
    "fp8e4b15": "f8E4M3B11FNUZ",
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
}
# Explicit mantissa bits of each format (OCP 8-bit floating point specification; IEEE 754).
_MANTISSA_BITS = {
    "fp8e4nv": 3,
    "fp8e5": 2,
    "fp8e4b8": 3,
    "fp8e5b16": 2,
    "fp8e4b15": 3,
    "fp16": 10,
    "bf16": 7,
    "fp32": 23,
    "fp64": 52,
}
_EXPONENT_BIAS = {
    "fp8e4nv": 7,
    "fp8e5": 15,
    "fp8e4b8": 8,
    "fp8e5b16": 16,
    "fp8e4b15": 15,
    "fp16": 15,
    "bf16": 127,
    "fp32": 127,
    "fp64": 1023,
}


class LanguageType:
    """Base class of the types of kernel values."""

    @property
    def scalar(self) -> LanguageType:
        """The element type of a block; the type itself otherwise."""
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The tile shape; () for scalars."""
        return ()

    def is_ptr(self) -> bool:
        """Whether this is a pointer type."""
        return False

    def is_block(self) -> bool:
        """Whether this is a block (tile) type."""
        return False

    def is_const(self) -> bool:
        """Whether this is a pointer to constant memory."""
        return False

    def to_ir(self) -> ir.Type:
        """The IR type.

        Raises:
            TypeError: it has none.
        """
        raise TypeError(f"{self} has no IR type")


class dtype(LanguageType):
    """A scalar type by upstream's name, e.g. `dtype("fp32")`; equal by name."""

    name: str
    __slots__ = ("name",)

    # Upstream's lists of names, by family.
    SINT_TYPES: ClassVar[list[str]] = ["int8", "int16", "int32", "int64"]
    UINT_TYPES: ClassVar[list[str]] = ["int1", "uint8", "uint16", "uint32", "uint64"]
    STANDARD_FP_TYPES: ClassVar[list[str]] = ["fp16", "bf16", "fp32", "fp64"]
    FP_TYPES: ClassVar[list[str]] = [
        *("fp8e4b15", "fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16"),
        *STANDARD_FP_TYPES,
    ]
    OTHER_TYPES: ClassVar[list[str]] = ["void"]

    def __init__(self, name: str) -> None:
        if name != "void" and name not in _IR_NAMES:
            known = ", ".join(["void", *_IR_NAMES])
            raise ValueError(f"unknown dtype {name!r}; expected one of {known}")
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dtype) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"triton.language.{_MEMBER_NAMES.get(self.name, self.name)}"

    def to_ir(self) -> ir.ScalarType:
        """The signless IR type."""
        return ir.SCALARS[_IR_NAMES[self.name]]

    @property
    def primitive_bitwidth(self) -> int:
        """Width in bits; 0 for void."""
        return self.to_ir().bits if self.name != "void" else 0

    @property
    def itemsize(self) -> int:
        """Size in memory in bytes (int1 takes one)."""
        return max(1, self.primitive_bitwidth // 8)

    @property
    def int_bitwidth(self) -> int:
        """Width in bits of an integer type."""
        return self.primitive_bitwidth

    @property
    def fp_mantissa_width(self) -> int:
        """Explicit mantissa bits of a floating-point type."""
        return _MANTISSA_BITS[self.name]

    @property
    def exponent_bias(self) -> int:
        """Exponent bias of a floating-point type."""
        return _EXPONENT_BIAS[self.name]

    @property
    def int_signedness(self) -> str | None:
        """Either `signed` (int1 too) or `unsigned`; None for a type that is no integer."""
        if not self.is_int():
            return None
        return "unsigned" if self.name[0] == "u" else "signed"

    def is_floating(self) -> bool:
        """Whether this is a floating-point type, fp8 included."""
        return self.name.startswith(("fp", "bf"))

    def is_standard_floating(self) -> bool:
        """Whether this is fp16, bf16, fp32 or fp64."""
        return self.name in ("fp16", "bf16", "fp32", "fp64")

    def is_fp8(self) -> bool:
        """Whether this is one of the 8-bit floating-point types."""
        return self.name.startswith("fp8")

    def is_int(self) -> bool:
        """Whether this is an integer type, int1 included."""
        return self.name.startswith(("int", "uint"))

    def is_int_signed(self) -> bool:
        """Whether this is a signed integer type."""
        return self.int_signedness == "signed"

    def is_int_unsigned(self) -> bool:
        """Whether this is an unsigned integer type."""
        return self.int_signedness == "unsigned"

    def is_bool(self) -> bool:
        """Whether this is int1."""
        return self.name == "int1"

    def is_void(self) -> bool:
        """Whether this is void."""
        return self.name == "void"

    def get_int_max_value(self) -> int:
        """Largest value of an integer type."""
        if self.is_int_unsigned() or self.is_bool():
            return (1 << self.primitive_bitwidth) - 1
        return (1 << (self.primitive_bitwidth - 1)) - 1

    def get_int_min_value(self) -> int:
        """Smallest value of an integer type."""
        if self.is_int_unsigned() or self.is_bool():
            return 0
        return -(1 << (self.primitive_bitwidth - 1))

    def with_element_ty(self, element_ty: dtype) -> dtype:
        """`element_ty`: a scalar type is its own element."""
        return element_ty

    def __getattr__(self, name: str) -> object:
        # is_fp16, is_bf16, is_int32, is_uint8, is_fp8e5 …: one predicate per type name.
        if name.startswith("is_") and name[3:] in _IR_NAMES:
            wanted = name[3:]
            return lambda: self.name == wanted
        raise AttributeError(f"dtype {self.name} has no attribute {name!r}")


@dataclass(frozen=True)
class pointer_type(LanguageType):
    """A pointer to `element_ty`; `const` memory may only be read."""

    element_ty: LanguageType
    address_space: int = 1
    const: bool = False

    def __str__(self) -> str:
        return f"{'const_' if self.const else ''}pointer<{self.element_ty}>"

    def is_ptr(self) -> bool:
        """Whether this is a pointer type."""
        return True

    def is_const(self) -> bool:
        """Whether the memory may only be read."""
        return self.const

    @property
    def name(self) -> str:
        """String form."""
        return str(self)

    def __getattr__(self, name: str) -> object:
        if name.startswith("is_") and not name.startswith("is__"):
            return lambda: False
        if name == "primitive_bitwidth":
            return 64
        raise AttributeError(f"{self} has no attribute {name!r}")

    def to_ir(self) -> ir.PointerType:
        """The IR pointer type; int1 memory is bytes, as upstream loads it."""
        if isinstance(self.element_ty, pointer_type):
            return ir.PointerType(self.element_ty.to_ir())
        assert isinstance(self.element_ty, dtype)
        return ir.PointerType(self.element_ty.to_ir())


@dataclass(frozen=True)
class block_type(LanguageType):
    """A tile of `element_ty` with `shape`."""

    element_ty: LanguageType
    block_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The tile shape."""
        return self.block_shape

    @property
    def scalar(self) -> LanguageType:
        """The element type."""
        return self.element_ty

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.block_shape)

    def is_block(self) -> bool:
        """Whether this is a block type."""
        return True

    def get_block_shapes(self) -> tuple[int, ...]:
        """The tile shape."""
        return self.block_shape

    def __str__(self) -> str:
        return f"<{list(self.block_shape)}, {self.element_ty}>"

    def to_ir(self) -> ir.Type:
        """The IR tensor type."""
        element = self.element_ty.to_ir()
        assert isinstance(element, ir.ScalarType | ir.PointerType)
        return ir.tile(self.block_shape, element)


@dataclass(frozen=True)
class tensor_descriptor_type(LanguageType):
    """A tensor descriptor that loads and stores blocks of `block`.

    Attributes:
        padding: the value of reads outside the tensor, if it is made on the host: "zero" or "nan".
            Blocks are the same with both, so types that differ in it are equal.
        rounds_to_tf32: whether its loads round fp32 to the nearest tf32.
        rank: dimensions of the described tensor, as many as the block's.
    """

    block: block_type
    padding: str = field(default="zero", compare=False)
    rounds_to_tf32: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.block.shape)

    def __str__(self) -> str:
        return f"tensor_descriptor<{self.block}>"

    def to_ir(self) -> ir.DescriptorType:
        """The IR descriptor type."""
        block = self.block.to_ir()
        assert isinstance(block, ir.TensorType)
        return ir.DescriptorType(block)


void = dtype("void")
int1, int8, int16, int32, int64 = (dtype(f"int{bits}") for bits in (1, 8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
float8e4nv, float8e5, float8e4b8 = dtype("fp8e4nv"), dtype("fp8e5"), dtype("fp8e4b8")
float8e5b16, float8e4b15 = dtype("fp8e5b16"), dtype("fp8e4b15")
float16, bfloat16, float32, float64 = dtype("fp16"), dtype("bf16"), dtype("fp32"), dtype("fp64")
pi32_t = pointer_type(int32)

MEMBERS: dict[str, LanguageType] = {
    "void": void,
    "int1": int1,
    "int8": int8,
    "int16": int16,
    "int32": int32,
    "int64": int64,
    "uint8": uint8,
    "uint16": uint16,
    "uint32": uint32,
    "uint64": uint64,
    "float8e4nv": float8e4nv,
    "float8e5": float8e5,
    "float8e4b8": float8e4b8,
    "float8e5b16": float8e5b16,
    "float8e4b15": float8e4b15,
    "float16": float16,
    "bfloat16": bfloat16,
    "float32": float32,
    "float64": float64,
    "pi32_t": pi32_t,
}
_MEMBER_NAMES = {t.name: name for name, t in MEMBERS.items() if isinstance(t, dtype)}


def describe_type(type_: LanguageType) -> str:
    """A type as error messages show it: `fp32`, `fp32[64, 32]`, `pointer<fp16>`."""
    if isinstance(type_, block_type):
        return f"{describe_type(type_.element_ty)}{list(type_.shape)}"
    return str(type_)
