"""Rewrites of dots in Tile IR: their form, and the types in which they multiply.

`LowerScaledDot`: products of microscaled formats become conversions, scalings and a dot. Elements
are widened to bf16, or fp16 where an operand is fp16, multiplied there by the scales of their
groups, and given to `tt.dot`, as tensor cores without microscaled formats need it. Widening is
exact. Formats: OCP Microscaling Formats (MX) Specification 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.dot_use import BroadcastProduct
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.location import fuse
from tkdebug.compiler.ir.types import ScalarType, element_of, shape_of, tile, with_element
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import FP8_MMA, Target

_ELEMENTS = (ir.F32, ir.F64)
_SMALLEST = 16
_RULE = "lower-dot-scaled"
_E8M0_NAN = 255


@dataclass(frozen=True, slots=True)
class RaiseToDot:
    """Raises `tl.sum(x[:, :, None] * y[None, :, :], 1)` to the matrix product that it is.

    In that form all M x N x K products exist at once; a dot needs only the operands and the sums.
    The dot is one of "ieee" precision: products and sums are those of the elements' own type, in
    the order of dots.

    Only for tiles that `tl.dot` would take: smaller ones gain nothing.
    """

    name: ClassVar[str] = "raise-to-dot"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every reduction."""
        for op in list(module.walk()):
            if tt.Reduce.matches(op) and rewriter.begins(op, "form-dot"):
                _raise(op, rewriter)
        rewriter.commit()


def _raise(reduce: Operation, rewriter: Rewriter) -> None:
    found = BroadcastProduct.of(reduce)
    if found is None or list(found.product.result.uses.values()) != [1]:
        return
    product, element = found.product, element_of(found.product.result.type)
    if element not in _ELEMENTS or min(found.sizes) < _SMALLEST:
        return
    location = fuse(product.location, *(inner.location for inner in reduce.walk()))
    build = OpBuilder(rewriter, reduce, "form-dot", location)
    a, b = found.rows, found.columns
    if found.sum_axis < found.row_axis:
        a = build.trans(a, (1, 0))
    if found.column_axis < found.sum_axis:
        b = build.trans(b, (1, 0))
    rows, columns, _ = found.sizes
    # A sum that starts at -0.0 is -0.0 if all its terms are.
    start = build.constant(tile((rows, columns), element), -0.0)
    dot = build.op(tt.Dot, (a, b, start), input_precision="ieee")
    maker = dot.defining_op
    assert maker is not None
    for user in list(reduce.result.uses):
        user.replace_operand(reduce.result, dot)
        rewriter.record_change(user, "form-dot")
    rewriter.note_replaced(reduce.result, dot)
    rewriter.replace_with_ops(reduce, "form-dot", [maker])
    rewriter.replace_with_ops(product, "form-dot", [maker])


_ADDITIONS = (arith.AddF.name, arith.AddI.name)
_SUMS = (ir.F32, ir.F64, ir.I32)


@dataclass(frozen=True, slots=True)
class FoldAddIntoAccumulator:
    """Folds `acc += tl.dot(a, b)` into `acc = tl.dot(a, b, acc)`.

    A dot adds its third operand at no cost. As a separate op, the product takes as many registers
    as the accumulator, and an addition for each: this makes kernels with two accumulators spill.

    Only where that adds the same numbers at the same precision: sums of fp32, fp64 and integers.
    Sums of fp8 products are left as written, since tensor cores add these with fewer bits than an
    addition of fp32, which is why kernels write it apart.
    """

    name: ClassVar[str] = "fold-add-into-accumulator"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every addition."""
        for op in list(module.walk()):
            if op.name in _ADDITIONS and rewriter.begins(op, "accumulate"):
                _accumulate(op, rewriter)
        rewriter.commit()


def _accumulate(addition: Operation, rewriter: Rewriter) -> None:
    for product, other in arith.Binary(addition).both_orders:
        dot = product.owner
        if isinstance(dot, Operation) and other is not product and _is_part_of(dot, addition):
            break
    else:
        return
    a, b, _ = dot.operands
    new = rewriter.build_before(
        addition,
        tt.Dot,
        (a, b, other),
        (addition.result.type,),
        dot.attributes,
        location=fuse(dot.location, addition.location),
    )
    rewriter.replace_with_values(addition, "accumulate", new.results, (new,))
    rewriter.replace_with_ops(dot, "accumulate", (new,))


def _is_part_of(dot: Operation, addition: Operation) -> bool:
    """Whether `dot` can be folded into `addition`, the only user of its result.

    It must be in the same block and start at zero, and its sums must be the same either way (see
    `FoldAddIntoAccumulator`).
    """
    if not tt.Dot.matches(dot) or dot.block is not addition.block or len(dot.result.uses) != 1:
        return False
    if element_of(dot.result.type) not in _SUMS or any(
        map(_is_float8, (tt.Dot(dot).a, tt.Dot(dot).b))
    ):
        return False
    return constant_value(tt.Dot(dot).accumulator) == 0


def _is_float8(value: Value) -> bool:
    element = element_of(value.type)
    return element.bits == 8 and element != ir.I8


# Precision -> number of parts of each operand, and the pairs that are multiplied before the
# leading parts.
_PRODUCTS: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "bf16x3": (2, ((1, 0), (0, 1))),
    "bf16x6": (3, ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1))),
}


@dataclass(frozen=True, slots=True)
class SplitDotPrecision:
    """Splits fp32 dots of precision bf16x3 or bf16x6 into dots of bf16 parts.

    A number is a sum of bf16 parts; each part is the rest after the parts before. "bf16x3" keeps
    two parts and three products, "bf16x6" three parts and six. Small products are summed first.
    Where these sums are NaN (an infinity less itself), only the product of the leading parts
    counts.

    Source: Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype for
    Higher-Precision Computations" (arXiv:1904.06376).
    """

    name: ClassVar[str] = "split-dot-precision"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Split the dots one by one."""
        for op in list(module.walk()):
            if tt.Dot.matches(op) and element_of(tt.Dot(op).a.type) == ir.F32:
                products = _PRODUCTS.get(str(tt.Dot(op).input_precision))
                if products is not None and rewriter.begins(op, self.name):
                    _split(op, OpBuilder(rewriter, op, self.name), *products)
        rewriter.commit()


def _split(op: Operation, build: OpBuilder, count: int, small: tuple[tuple[int, int], ...]) -> None:
    a, b, acc = op.operands
    lhs, rhs = _parts(build, a, count), _parts(build, b, count)
    zero = build.constant(acc.type, 0.0)
    total = zero
    for i, j in small:
        total = build.op(tt.Dot, (lhs[i], rhs[j], total), input_precision="ieee")
    is_number = build.op(arith.CmpF, (total, total), predicate="oeq")
    total = build.op(arith.Select, (is_number, total, zero), total.type)
    total = build.op(tt.Dot, (lhs[0], rhs[0], total), input_precision="ieee")
    build.replace(arith.AddF, (total, acc), {})


def _parts(build: OpBuilder, value: Value, count: int) -> list[Value]:
    """Split fp32 `value` into `count` bf16 terms: each rounds what the terms before left."""
    parts = []
    for index in range(count):
        part = build.cast(arith.TruncF, value, ir.BF16)
        parts.append(part)
        if index + 1 < count:
            value = build.binary(arith.SubF, value, build.cast(arith.ExtF, part, ir.F32))
    return parts


# Types of `mma` and `wgmma` (PTX ISA, "Matrix Data-types"); both may be mixed.
_MULTIPLIED = ("f8E4M3FN", "f8E5M2")


@dataclass(frozen=True, slots=True)
class WidenDotOperands:
    """Widens fp8 products that the target's tensor cores do not have to fp16 products.

    Every value of an 8-bit float format is one of fp16, so nothing is lost; FMA units, the
    alternative, are more than ten times slower.

    Attributes:
        target: the target that is compiled for.
    """

    target: Target
    name: ClassVar[str] = "widen-dot-operands"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every dot."""
        for op in list(module.walk()):
            if tt.Dot.matches(op) and self._lacks(op) and rewriter.begins(op, "widen-fp8"):
                _widen(op, OpBuilder(rewriter, op, "widen-fp8"))
        rewriter.commit()

    def _lacks(self, op: Operation) -> bool:
        """Whether `op` is an fp8 dot that no tensor core of the target computes."""
        elements = [element_of(value.type) for value in (tt.Dot(op).a, tt.Dot(op).b)]
        if not all(element.bits == 8 and str(element) != "i8" for element in elements):
            return False
        if not self.target.has(FP8_MMA) or any(str(e) not in _MULTIPLIED for e in elements):
            return True
        return element_of(op.result.type) != ir.F32


def _widen(op: Operation, build: OpBuilder) -> None:
    a, b, acc = op.operands
    wide = [build.cast(tt.FpToFp, value, ir.F16, rounding="rtne") for value in (a, b)]
    build.replace(tt.Dot, (*wide, acc), op.attributes)


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
    """`value` with its elements in the wide format; e2m1 is unpacked along `packed_axis`."""
    if format_ == "e2m1":
        return _unpacked(build, value, packed_axis, wide)
    element = element_of(value.type)
    if element == ir.BF16 and wide is _F16:
        value = build.cast(arith.ExtF, value, ir.F32)
        return build.cast(arith.TruncF, value, ir.F16)
    return build.cast(tt.FpToFp, value, wide.element, rounding="rtne")


def _unpacked(build: OpBuilder, codes: Value, axis: int, wide: _Wide) -> Value:
    """The e2m1 numbers packed in bytes, the low bits first, side by side along `axis`."""
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
    """The e2m1 number (s ee m) in the low 4 bits of each i16, in the wide format.

    Shifted to where the wide format has its exponent and fraction, the bits are the number times a
    power of 2, also for subnormal numbers; a product corrects that.
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
    """The elements times the scales of their groups along K.

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
    """The powers of two of e8m0 codes, 2 ** (code - 127); 0 or infinite outside the range."""
    # bf16 and fp32 have the same 8 exponent bits, right below the sign.
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
    """`value`, which has one element per group, repeated along K to a tile of `shape`."""
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
