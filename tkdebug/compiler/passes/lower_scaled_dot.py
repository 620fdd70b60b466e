"""`LowerScaledDot`: products of microscaled formats become conversions, scalings and a dot.

Elements are widened to bf16, or fp16 where an operand is fp16, multiplied there by the scales of
their groups, and given to `tt.dot`, as tensor cores without microscaled formats need it. Widening
is exact. Formats: OCP Microscaling Formats (MX) Specification 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.types import ScalarType, element_of, shape_of, with_element
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

_RULE = "lower-dot-scaled"
_E8M0_NAN = 255


@dataclass(frozen=True, slots=True)
class _Wide:
    """A 16-bit float format that elements are widened to.

    Attributes:
        e2m1_shift: the shift that moves the exponent and fraction bits of an e2m1 to their places
            in the format.
        e2m1_factor: the missing factor of e2m1 bits read as the format: 2 to the difference of the
            exponents' biases.
    """

    element: ScalarType
    e2m1_shift: int
    e2m1_factor: float


_BF16 = _Wide(ir.BF16, 7 - 1, 2.0 ** (127 - 1))
_F16 = _Wide(ir.F16, 10 - 1, 2.0 ** (15 - 1))


@dataclass(frozen=True, slots=True)
class LowerScaledDot:
    """Replaces every `tt.dot_scaled`."""

    name: ClassVar[str] = "lower-scaled-dot"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Lower the products one by one."""
        for op in list(module.walk()):
            if tt.DotScaled.matches(op) and rewriter.begins(op, _RULE):
                _lower(op, OpBuilder(rewriter, op, _RULE))
        rewriter.commit()


def _lower(op: Operation, build: OpBuilder) -> None:
    dot = tt.DotScaled(op)
    a, b, acc = dot.a, dot.b, dot.accumulator
    formats = (dot.lhs_format, dot.rhs_format)
    wide = _F16 if "fp16" in formats else _BF16
    fast_math = dot.fast_math
    rank = len(shape_of(a.type))
    x = _widened(build, a, formats[0], rank - 1 if dot.lhs_k_pack else rank - 2, wide)
    if dot.lhs_scale is not None:
        x = _scaled(build, x, dot.lhs_scale, wide, False, fast_math)
    y = _widened(build, b, formats[1], rank - 2 if dot.rhs_k_pack else rank - 1, wide)
    if dot.rhs_scale is not None:
        y = _scaled(build, y, dot.rhs_scale, wide, True, fast_math)
    build.replace(tt.Dot, (x, y, acc), {"input_precision": "ieee"})


def _widened(
    build: OpBuilder, value: Value, format_: object, packed_axis: int, wide: _Wide
) -> Value:
    """The elements of an operand in the wide format; e2m1 unpacked along `packed_axis`."""
    if format_ == "e2m1":
        return _unpacked(build, value, packed_axis, wide)
    element = element_of(value.type)
    if element == ir.BF16 and wide is _F16:
        value = build.cast(arith.ExtF, value, ir.F32)
        return build.cast(arith.TruncF, value, ir.F16)
    return build.cast(tt.FpToFp, value, wide.element, rounding="rtne")


def _unpacked(build: OpBuilder, codes: Value, axis: int, wide: _Wide) -> Value:
    """Two e2m1 a byte, the first in the low bits, side by side along `axis`."""
    bits = build.cast(arith.ExtUI, codes, ir.I16)
    halves = (bits, build.binary(arith.ShRUI, bits, 4))
    low, high = (_from_e2m1(build, half, wide) for half in halves)
    pair = build.op(tt.Join, (low, high))
    shape = shape_of(codes.type)
    rank = len(shape)
    if axis != rank - 1:
        order = (*range(axis + 1), rank, *range(axis + 1, rank))
        pair = build.trans(pair, order)
    doubled = tuple(2 * extent if place == axis else extent for place, extent in enumerate(shape))
    return build.reshape(pair, doubled)


def _from_e2m1(build: OpBuilder, bits: Value, wide: _Wide) -> Value:
    """The number in the low 4 bits of an i16: s ee m.

    Put where the wide format has its exponent and fraction, the bits are the number times a power
    of 2, subnormal ones included.
    """
    magnitude = build.binary(arith.ShLI, build.binary(arith.AndI, bits, 7), wide.e2m1_shift)
    sign = build.binary(arith.ShLI, build.binary(arith.AndI, bits, 8), 12)
    both = build.binary(arith.OrI, magnitude, sign)
    small = build.cast(tt.Bitcast, both, wide.element)
    return build.binary(arith.MulF, small, wide.e2m1_factor)


def _scaled(
    build: OpBuilder,
    elements: Value,
    scale: Value,
    wide: _Wide,
    transposed: bool,
    fast_math: bool,
) -> Value:
    """Elements times the scales of their groups along K.

    Args:
        build: where to build.
        elements: tile (…, M, K), or (…, K, N) where `transposed`.
        scale: tile (…, M or N, K // group).
        wide: format of the elements.
        transposed: whether K is the second to last axis of the elements.
        fast_math: whether a scale of 255 may be taken for a number.
    """
    is_coded = element_of(scale.type) == ir.I8
    factor = (
        _powers(build, scale, wide)
        if is_coded
        else build.cast(tt.FpToFp, scale, wide.element, rounding="rtne")
    )
    shape = shape_of(elements.type)
    product = build.op(arith.MulF, (elements, _spread(build, factor, shape, transposed)))
    if fast_math or not is_coded:
        return product
    nan_code = build.constant(scale.type, _E8M0_NAN - 256)
    missing = _spread(build, build.compare("eq", scale, nan_code), shape, transposed)
    nan = build.constant(product.type, float("nan"))
    return build.op(arith.Select, (missing, nan, product))


def _powers(build: OpBuilder, codes: Value, wide: _Wide) -> Value:
    """2 to the power of e8m0 codes less 127; 0 or infinite beyond the format's range."""
    # bf16 has fp32's exponent bits at the top, as fp32 has.
    carrier, fraction_bits = (ir.I32, 23) if wide is _F16 else (ir.I16, 7)
    wide_codes = build.cast(arith.ExtUI, codes, carrier)
    bits = build.binary(arith.ShLI, wide_codes, fraction_bits)
    # 2 ** -127 is subnormal.
    is_least = build.compare("eq", wide_codes, build.constant(wide_codes.type, 0))
    least = build.constant(bits.type, 1 << fraction_bits - 1)
    bits = build.op(arith.Select, (is_least, least, bits))
    if wide is _BF16:
        return build.op(tt.Bitcast, (bits,), with_element(bits.type, ir.BF16))
    number = build.op(tt.Bitcast, (bits,), with_element(bits.type, ir.F32))
    return build.cast(arith.TruncF, number, ir.F16)


def _spread(build: OpBuilder, value: Value, shape: tuple[int, ...], transposed: bool) -> Value:
    """A tile with one element a group as a tile of `shape`, where groups run along K."""
    if transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
    groups = shape_of(value.type)[-1]
    split = (*shape[:-1], groups, shape[-1] // groups)
    value = build.broadcast(build.expand_dims(value, len(shape)), split)
    value = build.reshape(value, shape)
    if not transposed:
        return value
    rank = len(shape)
    return build.trans(value, (*range(rank - 2), rank - 1, rank - 2))
