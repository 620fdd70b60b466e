"""Lowering of the arith dialect, pointer arithmetic, and conversions of elements.

`per_element` makes a rule for one element a rule for all registers of a tile. Constants are rounded
here, once, to nearest even: LLVM's text takes only exact numbers.

Float sums and products may contract to FMA and round to their own type. `/` of fp32 is div.full
(2 ulp), as upstream's; tt.precise_divf rounds to nearest. bfloat16 has arithmetic of its own from
sm_90 on; LLVM writes it as fma.rn.bf16 with 1.0 or -0.0 before, which gives the same numbers.

Conversions are those between integers and floats, and among floats of 16 bits and more; those to
fp8 and back are in floats8. Floats become integers by cvt.rzi, which saturates; NaN gives 0, or the
highest bit alone where either side has 64 bits. To 8 bits it is cvt to 16 bits, whose low byte is
kept, as upstream's kernels have it.

Source: PTX ISA, "Floating Point Instructions: div", "Logic and Shift Instructions: shl, shr", "Data
Movement and Conversion Instructions: cvt".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.types import PointerType, ScalarType, TensorType, element_of
from tkdebug.compiler.layouts import REGISTER, LinearLayout
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, floating, integer
from tkdebug.compiler.targets.nvptx.lowering import floats8
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.floats8 import FORMATS
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers, llvm_scalar, memory_bits
from tkdebug.compiler.targets.target import BF16_CONVERSIONS

_LARGEST_FLOAT32 = float.fromhex("0x1.fffffefp127")
# The narrowest integers of cvt: the registers that hold bytes have 16 bits.
_NARROWEST_BITS = 16
_PTX_TYPES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_ASM_LETTERS = {
    "half": "h", "bfloat": "h", "float": "f", "double": "d", "i16": "h", "i32": "r", "i64": "l",
}  # fmt: skip


def constant(type_: ScalarType, value: float | int) -> LLVMValue:
    """`value` as a constant of `type_`; the fp8 types saturate."""
    llvm = llvm_scalar(type_)
    if type_.is_integer:
        return integer(llvm, int(value))
    number = float(value)
    if type_.bits == 8:
        return integer(llvm, FORMATS[type_.name].encode(number))
    if llvm == "float" and math.isfinite(number) and abs(number) >= _LARGEST_FLOAT32:
        number = math.copysign(math.inf, number)
    if llvm == "half":
        return LLVMValue(llvm, f"0xH{_half_bits(number):04X}")
    if llvm == "bfloat":
        return LLVMValue(llvm, f"0xR{_bfloat_bits(number):04X}")
    return floating(llvm, number)


def _half_bits(value: float) -> int:
    try:
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    except OverflowError:
        return 0x7C00 | (0x8000 if value < 0 else 0)


def _bfloat_bits(value: float) -> int:
    """Bits of a bfloat16; a double is rounded once, not by way of fp32."""
    if math.isnan(value):
        return 0x7FC0
    if math.isinf(value):
        return 0x7F80 | (0x8000 if value < 0 else 0)
    sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
    if value == 0:
        return sign
    fraction, exponent = math.frexp(abs(value))
    # 8 significant bits from 2**-126 up, fixed steps of 2**-133 below.
    step = max(exponent - 8, -133)
    steps = round(math.ldexp(fraction, exponent - step))
    return sign | min(0x7F80, steps + (step + 133 << 7))


# (kernel, op, one element of each operand) -> the element of the result.
ElementRule = Callable[..., LLVMValue]


def per_element(rule: ElementRule) -> Lower:
    """Return the lowering of an op without side effects that applies `rule` to every element.

    Registers that are known to be equal are computed once: those with equal operands, as of a
    splat, and those that `analysis/axis_info` shows to be equal in the result, as of a mask
    `offsets < n` where n has a known divisor.
    """

    def lower(ctx: Lowering, op: Operation, *operands: Registers) -> Sequence[Registers]:
        known: dict[tuple[LLVMValue, ...], LLVMValue] = {}
        results: list[LLVMValue] = []
        ignored = _ignored_bits(ctx, op.result)
        for index, elements in enumerate(zip(*operands, strict=True)):
            if index & ignored:
                results.append(results[index & ~ignored])
                continue
            result = known.get(elements)
            if result is None:
                result = known[elements] = rule(ctx, op, *elements)
            results.append(result)
        return (results,)

    lower.__doc__ = rule.__doc__
    return lower


def _ignored_bits(ctx: Lowering, value: Value) -> int:
    """Mask of the register-index bits that no integer in `value` depends on; 0 for other types."""
    element = element_of(value.type)
    is_whole = isinstance(element, ScalarType) and element.is_integer
    if not is_whole or not isinstance(value.type, TensorType):
        return 0
    layout = ctx.layout(value)
    info = ctx.axis_info.get(value) if layout.in_size(REGISTER) > 1 else None
    return 0 if info is None else _bits_inside(layout, info.constancy)


@lru_cache(maxsize=1024)
def _bits_inside(layout: LinearLayout, constancy: tuple[int, ...]) -> int:
    """Mask of the register-index bits that stay within an aligned group of `constancy` elements."""
    aligned = [count & -count for count in constancy]
    return sum(
        1 << bit
        for bit, basis in enumerate(layout.bases(REGISTER))
        if all(step < count for step, count in zip(basis, aligned, strict=True))
    )


FLOAT_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_WORD_BITS = 32


def lower_constant(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Lower `arith.constant`: the same constant in every register."""
    value, element = arith.Constant(op).value, element_of(op.result.type)
    assert isinstance(value, int | float)
    if isinstance(element, PointerType):
        assert value == 0, f"a pointer constant {value}"
        return ([ctx.zero(op.result)] * ctx.register_count(op.result),)
    return ([constant(element, value)] * ctx.register_count(op.result),)


def _instruction(name: str) -> ElementRule:
    # An i1 is 0 or 1 in the IR; LLVM's signed instructions read 1 as -1.
    of_i1 = {"sdiv": "udiv", "srem": "urem"}.get(name, name)

    def rule(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        return ctx.emit.binary(of_i1 if a.type == "i1" else name, a, b)

    return rule


def _shift(direction: str, is_signed: bool) -> ElementRule:
    """Return the rule of a shift, whose count is clamped to the width as in the language.

    Unknown counts are shifted by PTX, which clamps them; LLVM leaves such shifts undefined.
    """
    llvm_name = "shl" if direction == "shl" else "ashr" if is_signed else "lshr"

    def rule(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        emit, bits = ctx.emit, TYPE_BITS[a.type]
        if bits == 1:
            # Nothing is left of an i1 that is shifted, but of one shifted right with its sign.
            return a if is_signed else emit.bit_and(a, emit.xor(b, 1))
        amount = b.constant
        if amount is not None:
            amount &= (1 << bits) - 1
            if amount >= bits and not is_signed:
                return integer(a.type, 0)
            return emit.binary(llvm_name, a, integer(b.type, min(amount, bits - 1)))
        width = max(bits, _WORD_BITS)
        wide = emit.cast("sext" if is_signed else "zext", a, f"i{width}")
        by = emit.cast("zext", b, f"i{width}")
        if width > _WORD_BITS:
            by = emit.intrinsic("llvm.umin.i64", by, integer("i64", width))
            by = emit.cast("trunc", by, "i32")
        kind = "b" if direction == "shl" else "s" if is_signed else "u"
        letter = "r" if width == _WORD_BITS else "l"
        shifted = emit.asm(
            f"{direction}.{kind}{width} $0, $1, $2;",
            f"={letter},{letter},r",
            f"i{width}",
            (wide, by),
            side_effects=False,
        )
        return emit.cast("trunc", shifted, a.type)

    return rule


def _integer_extremum(name: str) -> ElementRule:
    logical = "and" if name.endswith("min") else "or"

    def rule(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        if a.type == "i1":
            return ctx.emit.binary(logical, a, b)
        return ctx.emit.intrinsic(f"llvm.{name}.{a.type}", a, b)

    return rule


def _high_product(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    suffix = {"i32": "ui", "i64": "ull"}.get(a.type)
    if suffix is not None:
        return ctx.emit.intrinsic(f"llvm.nvvm.mulhi.{suffix}", a, b)
    bits = TYPE_BITS[a.type]
    wide = [ctx.emit.cast("zext", x, f"i{2 * bits}") for x in (a, b)]
    product = ctx.emit.binary("mul", *wide)
    return ctx.emit.cast("trunc", ctx.emit.lshr(product, bits), a.type)


def _float_extremum(name: str) -> ElementRule:
    def rule(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        return ctx.emit.intrinsic(f"llvm.{name}.{FLOAT_SUFFIX[a.type]}", a, b)

    return rule


def _quotient(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """Return the quotient: fp32 by div.full, or div.approx if asked for; half precision in fp32."""
    match a.type:
        case "float":
            kind = "approx.f" if arith.DivF(op).approx else "full"
            return ctx.emit.intrinsic(f"llvm.nvvm.div.{kind}", a, b)
        case "double":
            return ctx.emit.binary("fdiv", a, b)
        case _:
            wide = [ctx.emit.cast("fpext", x, "float") for x in (a, b)]
            quotient = ctx.emit.intrinsic("llvm.nvvm.div.full", *wide)
            return ctx.emit.cast("fptrunc", quotient, a.type)


def _precise_quotient(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    # LLVM's fdiv is div.rn here: no fast-math flag but `contract` is set anywhere.
    return ctx.emit.binary("fdiv", a, b)


def _float_remainder(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """Return the remainder by libdevice's fmod, which is exact.

    LLVM's `a - trunc(a / b) * b` is not exact for large quotients.
    """
    if a.type == "double":
        return ctx.emit.function("double", "__nv_fmod", (a, b))
    wide = [ctx.emit.cast("fpext", x, "float") for x in (a, b)]
    rest = ctx.emit.function("float", "__nv_fmodf", wide)
    return ctx.emit.cast("fptrunc", rest, a.type)


def _negation(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
    return ctx.emit.fneg(x)


def _integer_comparison(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    predicate = arith.CmpI(op).predicate
    if a.type == "i1":
        predicate = predicate.replace("s", "u", 1) if predicate[0] == "s" else predicate
    return ctx.emit.icmp(predicate, a, b)


def _float_comparison(ctx: Lowering, op: Operation, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    return ctx.emit.fcmp(arith.CmpF(op).predicate, a, b)


def lower_select(
    ctx: Lowering, op: Operation, condition: Registers, a: Registers, b: Registers
) -> Sequence[Registers]:
    """Lower `arith.select` element by element; a scalar condition holds for all elements."""
    conditions = condition * len(a) if len(condition) == 1 else condition
    return ([ctx.emit.select(*each) for each in zip(conditions, a, b, strict=True)],)


def _moved_pointer(ctx: Lowering, op: Operation, pointer: LLVMValue, by: LLVMValue) -> LLVMValue:
    """Return a pointer moved by a signed offset, which counts elements."""
    pointee = element_of(op.result.type)
    assert isinstance(pointee, PointerType)
    return ctx.emit.gep(pointer, f"i{memory_bits(pointee.pointee)}", by)


def _pointer_to_integer(ctx: Lowering, op: Operation, pointer: LLVMValue) -> LLVMValue:
    return ctx.emit.cast("ptrtoint", pointer, "i64")


def _integer_to_pointer(ctx: Lowering, op: Operation, value: LLVMValue) -> LLVMValue:
    return ctx.emit.cast("inttoptr", value, llvm_scalar(element_of(op.result.type)))


def _bitcast(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
    """Reinterpret the operand's bits; an i1 is converted by value, as it has no byte of its own."""
    target = llvm_scalar(element_of(op.result.type))
    if x.type == target:
        return x
    if x.type == "i1":
        return ctx.from_bits(ctx.emit.cast("zext", x, f"i{TYPE_BITS[target]}"), target)
    bits = ctx.to_bits(x)
    if target == "i1":
        return ctx.emit.icmp("ne", bits, 0)
    return ctx.from_bits(bits, target)


_RULES: dict[str, ElementRule] = {
    arith.AddI.name: _instruction("add"),
    arith.SubI.name: _instruction("sub"),
    arith.MulI.name: _instruction("mul"),
    arith.DivSI.name: _instruction("sdiv"),
    arith.DivUI.name: _instruction("udiv"),
    arith.RemSI.name: _instruction("srem"),
    arith.RemUI.name: _instruction("urem"),
    arith.AndI.name: _instruction("and"),
    arith.OrI.name: _instruction("or"),
    arith.XOrI.name: _instruction("xor"),
    arith.AddF.name: _instruction("fadd"),
    arith.SubF.name: _instruction("fsub"),
    arith.MulF.name: _instruction("fmul"),
    arith.ShLI.name: _shift("shl", is_signed=False),
    arith.ShRSI.name: _shift("shr", is_signed=True),
    arith.ShRUI.name: _shift("shr", is_signed=False),
    arith.MinSI.name: _integer_extremum("smin"),
    arith.MaxSI.name: _integer_extremum("smax"),
    arith.MinUI.name: _integer_extremum("umin"),
    arith.MaxUI.name: _integer_extremum("umax"),
    arith.MulHiUI.name: _high_product,
    arith.MaxNumF.name: _float_extremum("maxnum"),
    arith.MinNumF.name: _float_extremum("minnum"),
    arith.MaximumF.name: _float_extremum("maximum"),
    arith.MinimumF.name: _float_extremum("minimum"),
    arith.DivF.name: _quotient,
    tt.PreciseDivF.name: _precise_quotient,
    arith.RemF.name: _float_remainder,
    arith.NegF.name: _negation,
    arith.CmpI.name: _integer_comparison,
    arith.CmpF.name: _float_comparison,
    tt.AddPtr.name: _moved_pointer,
    tt.PtrToInt.name: _pointer_to_integer,
    tt.IntToPtr.name: _integer_to_pointer,
    tt.Bitcast.name: _bitcast,
}


def in_float32(lower: Lower) -> Lower:
    """Return `lower` on fp8 operands widened to fp32, which is exact; results are rounded back."""

    def lower_wide(ctx: Lowering, op: Operation, *operands: Registers) -> Sequence[Registers]:
        element, result = element_of(op.operands[0].type), element_of(op.result.type)
        if str(element) not in FORMATS:
            return lower(ctx, op, *operands)
        wide = [floats8.as_float32(ctx, str(element), registers) for registers in operands]
        (values,) = lower(ctx, op, *wide)
        if str(result) not in FORMATS:
            return (values,)
        return (floats8.narrowed(ctx, values, str(result), toward_zero=False),)

    lower_wide.__doc__ = lower.__doc__
    return lower_wide


def _result_type(op: Operation) -> str:
    return llvm_scalar(element_of(op.result.type))


def _integer_cast(name: str) -> ElementRule:
    def rule(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
        return ctx.emit.cast(name, x, _result_type(op))

    return rule


def _from_integer(name: str) -> ElementRule:
    def rule(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
        # An i1 is 0 or 1, of whatever sign.
        return ctx.emit.cast("uitofp" if x.type == "i1" else name, x, _result_type(op))

    return rule


def _to_integer(is_signed: bool) -> ElementRule:
    def rule(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
        emit, target = ctx.emit, _result_type(op)
        if x.type in ("half", "bfloat"):
            x = emit.cast("fpext", x, "float")
        bits = max(TYPE_BITS[target], _NARROWEST_BITS)
        # LLVM's fptosi is poison out of range, and no intrinsic gives 16 bits.
        whole = emit.asm(
            f"cvt.rzi.{'s' if is_signed else 'u'}{bits}.{_PTX_TYPES[x.type]} $0, $1;",
            f"={_ASM_LETTERS[f'i{bits}']},{_ASM_LETTERS[x.type]}",
            f"i{bits}",
            (x,),
            side_effects=False,
        )
        return emit.cast("trunc", whole, target)

    return rule


def _between_floats(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
    """Convert between float types; narrower targets round to nearest, ties to even."""
    target = _result_type(op)
    if x.type == target:
        return x
    have, want = TYPE_BITS[x.type], TYPE_BITS[target]
    if have == want:
        x = ctx.emit.cast("fpext", x, "float")
    return ctx.emit.cast("fpext" if have < want else "fptrunc", x, target)


def _toward_zero(ctx: Lowering, op: Operation, x: LLVMValue) -> LLVMValue:
    """Convert between float types, rounding toward zero (cvt.rz).

    Numbers beyond the target's largest finite one become that; infinity stays infinity.
    """
    target = _result_type(op)
    if x.type == "double" and target == "bfloat":
        # Two truncations are one; cvt.bf16.f64 only exists from sm_90 on.
        x = _truncated(ctx, x, "float")
    if TYPE_BITS[x.type] == TYPE_BITS[target] and x.type != target:
        x = ctx.emit.cast("fpext", x, "float")
    if TYPE_BITS[x.type] <= TYPE_BITS[target]:
        return ctx.emit.cast("fpext", x, target)
    return _truncated(ctx, x, target)


def _truncated(ctx: Lowering, x: LLVMValue, target: str) -> LLVMValue:
    if target == "bfloat" and not ctx.target.has(BF16_CONVERSIONS):
        return _upper_half(ctx, x)
    register = target if target in ("float", "double") else "i16"
    result = ctx.emit.asm(
        f"cvt.rz.{_PTX_TYPES[target]}.{_PTX_TYPES[x.type]} $0, $1;",
        f"={_ASM_LETTERS[target]},{_ASM_LETTERS[x.type]}",
        register,
        (x,),
        side_effects=False,
    )
    return ctx.from_bits(result, target)


def _upper_half(ctx: Lowering, x: LLVMValue) -> LLVMValue:
    """Return the upper 16 bits of a float as bf16; a NaN stays a NaN, whatever its payload."""
    emit = ctx.emit
    half = emit.cast("trunc", emit.lshr(ctx.to_bits(x), 16), "i16")
    kept = emit.select(emit.fcmp("uno", x, x), integer("i16", 0x7FFF), half)
    return ctx.from_bits(kept, "bfloat")


_lower_toward_zero = per_element(_toward_zero)
_lower_between_floats = per_element(_between_floats)


def lower_float_to_float(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `tt.fp_to_fp`, `arith.extf` and `arith.truncf`."""
    if floats8.involves_float8(op):
        return (floats8.convert(ctx, op, x),)
    if floats8.rounds_toward_zero(op):
        return _lower_toward_zero(ctx, op, x)
    return _lower_between_floats(ctx, op, x)


_CASTS: dict[str, ElementRule] = {
    arith.ExtSI.name: _integer_cast("sext"),
    arith.ExtUI.name: _integer_cast("zext"),
    arith.TruncI.name: _integer_cast("trunc"),
    arith.SIToFP.name: _from_integer("sitofp"),
    arith.UIToFP.name: _from_integer("uitofp"),
    arith.FPToSI.name: _to_integer(is_signed=True),
    arith.FPToUI.name: _to_integer(is_signed=False),
}

LOWERINGS: dict[str, Lower] = {
    arith.Constant.name: lower_constant,
    arith.Select.name: lower_select,
    **{
        name: in_float32(per_element(rule)) if name.endswith("f") else per_element(rule)
        for name, rule in _RULES.items()
    },
    **{name: per_element(rule) for name, rule in _CASTS.items()},
    arith.ExtF.name: lower_float_to_float,
    arith.TruncF.name: lower_float_to_float,
    tt.FpToFp.name: lower_float_to_float,
}
