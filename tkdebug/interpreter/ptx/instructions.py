"""Results of single PTX instructions (PTX ISA, "Instructions"), on raw bits in int64 tensors.

Here are the instructions of floats ("Floating-Point Instructions", "Half Precision Floating-Point
Instructions", mov), comparisons and selections ("Comparison and Selection Instructions", "Half
Precision Comparison Instructions"; a predicate is 0 or 1) and cvt ("Data Movement and Conversion
Instructions: cvt"). `integers` has those of integers. `approx` instructions are computed to full
precision. Every instruction checks its own modifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tkdebug.interpreter.numerics import fp8, rounding
from tkdebug.interpreter.ptx.integers import INTEGERS, Evaluate, multiply, pack
from tkdebug.interpreter.ptx.operands import (
    DIRECTED,
    FLOATS,
    NotUnderstoodError,
    Operand,
    Reader,
    half_of,
    parts_of,
)

_COMPARISONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "eq": torch.eq,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "lo": torch.lt,
    "ls": torch.le,
    "hi": torch.gt,
    "hs": torch.ge,
    "neu": torch.ne,
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~(a.isnan() | b.isnan()),
    "nan": lambda a, b: a.isnan() | b.isnan(),
}
_COMBINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}
_TESTS: dict[str, Callable[[Tensor], Tensor]] = {
    "finite": torch.isfinite,
    "infinite": torch.isinf,
    "number": lambda x: ~x.isnan(),
    "notanumber": torch.isnan,
    "normal": lambda x: x.isfinite() & (x.abs() >= torch.finfo(x.dtype).tiny),
    "subnormal": lambda x: (x != 0) & (x.abs() < torch.finfo(x.dtype).tiny),
}


def _compared(r: Reader, a: Operand, b: Operand, type_: str, name: str) -> Tensor:
    """Return 1 where a comparison of two operands of a type holds, else 0."""
    if type_ in ("u64", "b64"):
        x, y = (r.integer(o, type_) ^ -(2**63) for o in (a, b))
    elif r.is_float(type_):
        x, y = (r.float(o, type_) for o in (a, b))
    elif name in ("num", "nan"):
        raise NotUnderstoodError(r.text)
    else:
        x, y = (r.integer(o, type_) for o in (a, b))
    return _COMPARISONS[name](x, y).to(torch.int64)


def _comparison(r: Reader, operands: list[Operand]) -> tuple[str, Callable[[Tensor], Tensor]]:
    """Return the comparison of an opcode, and a function that combines it with a predicate."""
    # The first of both kinds: `setp.lt.and.s32`.
    names, combined = r.modifiers & _COMPARISONS.keys(), r.modifiers & _COMBINED.keys()
    r.allow(*names, *combined)
    if len(names) != 1 or len(combined) != len(operands) - 2:
        raise NotUnderstoodError(r.text)
    if not combined:
        return names.pop(), lambda holds: holds
    combine, other = _COMBINED[combined.pop()], r.integer(operands[2], "pred")
    return names.pop(), lambda holds: combine(holds, other)


def _set_predicate(r: Reader, operands: list[Operand], target: Any) -> Any:
    name, combine = _comparison(r, operands)
    is_pair = isinstance(target, str) and "|" in target
    if r.type in ("f16x2", "bf16x2"):
        if not is_pair:
            raise NotUnderstoodError(r.text)
        return [combine(each) for each in _halves_compared(r, operands, name)]
    holds = _compared(r, operands[0], operands[1], r.type, name)
    return [combine(holds), combine(1 - holds)] if is_pair else combine(holds)


def _halves_compared(r: Reader, operands: list[Operand], name: str) -> list[Tensor]:
    half = r.type.removesuffix("x2")
    return [
        _compared(r, half_of(r, operands[0], place), half_of(r, operands[1], place), half, name)
        for place in (0, 1)
    ]


def _set(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """set: all ones, or 1.0 for a float type, where the comparison holds; else 0."""
    name, combine = _comparison(r, operands)
    if len(r.types) != 2:
        raise NotUnderstoodError(r.text)
    wanted, given = r.types
    if given.endswith("x2"):
        if wanted != given or given not in ("f16x2", "bf16x2"):
            raise NotUnderstoodError(r.text)
        low, high = (combine(each) for each in _halves_compared(r, operands, name))
        one = 0x3C00 if given == "f16x2" else 0x3F80
        return low * one | (high * one) << 16
    holds = combine(_compared(r, operands[0], operands[1], given, name))
    if wanted not in ("u32", "s32", "f32"):
        raise NotUnderstoodError(r.text)
    return r.raw(holds.float(), "f32") if wanted == "f32" else r.raw(-holds, "b32")


def _bits(r: Reader, operand: Operand, type_: str) -> Tensor:
    if r.is_float(type_):
        return r.raw(r.float(operand, type_), type_)
    return r.raw(r.integer(operand, type_), type_)


def _select(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    a, b = (_bits(r, o, r.type) for o in operands[:2])
    return torch.where(r.integer(operands[2], "pred") != 0, a, b)


def _select_by_sign(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """slct: the first operand if the third is not below zero, else the second."""
    r.allow()
    if len(r.types) != 2 or r.types[1] not in ("s32", "f32"):
        raise NotUnderstoodError(r.text)
    a, b = (_bits(r, o, r.types[0]) for o in operands[:2])
    sign = r.types[1]
    c = r.float(operands[2], sign) if sign == "f32" else r.integer(operands[2], sign)
    return torch.where(c >= 0, a, b)


def _copy_sign(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """copysign: the second operand's magnitude with the first operand's sign."""
    r.allow()
    if r.type not in ("f32", "f64"):
        raise NotUnderstoodError(r.text)
    sign, magnitude = (r.float(o, r.type) for o in operands)
    return r.raw(magnitude.copysign(sign), r.type)


def _test(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    names = r.modifiers & _TESTS.keys()
    r.allow(*names)
    if len(names) != 1 or r.type not in FLOATS:
        raise NotUnderstoodError(r.text)
    return _TESTS[names.pop()](r.float(operands[0], r.type)).to(torch.int64)


# Numbers of source operands, and what is computed from them.
COMPARISONS: dict[str, tuple[tuple[int, ...], Evaluate]] = {
    "setp": ((2, 3), _set_predicate),
    "set": ((2, 3), _set),
    "selp": ((3,), _select),
    "slct": ((3,), _select_by_sign),
    "copysign": ((2,), _copy_sign),
    "testp": ((1,), _test),
}


_FP8 = {"e4m3x2": "f8E4M3FN", "e5m2x2": "f8E5M2"}
_DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}
# The values of e2m1 without their sign (OCP Microscaling Formats, "FP4").
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_Decode = Callable[[Reader, Operand], list[Tensor]]
# Modifiers that round to a whole number, by the names of `rounding`.
_WHOLE = {"rni": "rn", "rzi": "rz", "rmi": "rd", "rpi": "ru"}


def convert(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """The instruction cvt."""
    if "pack" in r.modifiers:
        return pack(r, operands)
    if len(r.types) != 2:
        raise NotUnderstoodError(r.text)
    wanted, given = r.types
    if len(operands) == 3:
        raise NotUnderstoodError(r.text)
    if wanted.endswith("x2") or given.endswith("x2"):
        return _pair(r, operands, wanted, given)
    operand, *others = operands
    if others:
        raise NotUnderstoodError(r.text)
    if r.is_float(given):
        x = r.float(operand, given)
        return _from_float(r, x, wanted, given) if r.is_float(wanted) else _whole(r, x, wanted)
    value = r.integer(operand, given)
    if r.is_float(wanted):
        return _from_integer(r, value, wanted, given)
    r.allow()
    return r.raw(value, wanted)


def _from_integer(r: Reader, value: Tensor, wanted: str, given: str) -> Tensor:
    r.allow(*DIRECTED)
    dtype = FLOATS[wanted][0] if wanted in ("f32", "f64") else torch.float64
    mode = r.rounding(DIRECTED, "rn")
    return r.raw(rounding.from_integer(torch, mode, dtype, given == "u64", value), wanted)


def _from_float(r: Reader, x: Tensor, wanted: str, given: str) -> Tensor:
    r.allow("rna", "sat", "satfinite", "relu", *DIRECTED, *_WHOLE)
    x = _limited_float(r, x, wanted)
    if wanted == "tf32":
        return _tf32(r, x)
    if whole := r.rounding(_WHOLE, ""):
        x = rounding.whole(torch, whole, x)
    if "sat" in r.modifiers:
        x = x.nan_to_num(nan=0.0).clamp(0.0, 1.0)
    mode = r.rounding(DIRECTED, "rn")
    if wanted == "f16" and mode != "rn":
        if mode != "rz" or given == "f64":
            raise NotUnderstoodError(r.text)
        x = fp8.convert(x, given, "f16", _DTYPES, True)
    elif mode != "rn":
        wide = x.double()
        x = rounding.rounded(torch, (wide, torch.zeros_like(wide)), FLOATS[wanted][0], mode)
    return r.raw(x, wanted)


def _whole(r: Reader, x: Tensor, wanted: str) -> Tensor:
    """Convert a float to an integer, toward zero unless the instruction says otherwise."""
    r.allow("sat", *_WHOLE)
    mode = r.rounding(_WHOLE, "rz")
    width, unsigned = r.width(wanted), wanted[0] == "u"
    if width >= 32:
        dtype = torch.int32 if width == 32 else torch.int64
        return r.raw(rounding.to_integer(torch, mode, dtype, unsigned, x), wanted)
    low, high = (0, (1 << width) - 1) if unsigned else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    value = rounding.whole(torch, mode, x.double()).nan_to_num(0.0).clamp(low, high)
    return r.raw(value, wanted)


def _tf32(r: Reader, x: Tensor) -> Tensor:
    """Round fp32 to tf32's ten mantissa bits: .rna ties away, .rz truncates, else ties to even."""
    bits = r.raw(x, "f32")
    special = ~torch.isfinite(x)
    if "rna" in r.modifiers:
        rounded = bits + 0x1000
    elif "rz" in r.modifiers:
        rounded = bits
    else:
        rounded = bits + 0xFFF + ((bits >> 13) & 1)
    return torch.where(special, bits, rounded & 0xFFFFE000)


def _limited_float(r: Reader, x: Tensor, wanted: str) -> Tensor:
    """Apply .relu and .satfinite to a float before it is rounded to a type."""
    if "relu" in r.modifiers:
        x = x.clamp(min=0)
    if "satfinite" in r.modifiers and wanted in ("f16", "bf16"):
        limit = torch.finfo(FLOATS[wanted][0]).max
        x = x.clamp(-limit, limit)
    return x


def _pair(r: Reader, operands: list[Operand], wanted: str, given: str) -> Tensor:
    """Convert two values at once: two f32, the first to the upper half, or two halves of a word."""
    r.allow("satfinite", "relu", "rz")
    if given == "f32" and len(operands) == 2:
        high, low = (r.float(operand, "f32") for operand in operands)
    elif given in ("f16x2", "bf16x2") and wanted in _FP8 and len(operands) == 1:
        half = given.removesuffix("x2")
        low, high = (r.float(part, half) for part in parts_of(r, operands[0], 16))
    elif given in _DECODED and len(operands) == 1 and "rz" not in r.modifiers:
        low, high = _DECODED[given](r, operands[0])
        if given == "ue8m0x2" and wanted != "bf16x2":
            raise NotUnderstoodError(r.text)
    else:
        raise NotUnderstoodError(r.text)
    if wanted in ("f16x2", "bf16x2"):
        half = wanted.removesuffix("x2")
        low, high = (_half_bits(r, x, half) for x in (low, high))
        return low | (high << 16)
    if "satfinite" not in r.modifiers or "rz" in r.modifiers:
        raise NotUnderstoodError(r.text)
    if wanted == "e2m1x2" and given == "f32":
        return _e2m1_bits(_limited_float(r, low, wanted)) | (
            _e2m1_bits(_limited_float(r, high, wanted)) << 4
        )
    if wanted not in _FP8:
        raise NotUnderstoodError(r.text)
    low, high = (_fp8_bits(_limited_float(r, x, wanted), wanted) for x in (low, high))
    return low | (high << 8)


def _half_bits(r: Reader, x: Tensor, half: str) -> Tensor:
    x = _limited_float(r, x, half)
    if "rz" in r.modifiers:
        x = fp8.convert(x, "f32", half, _DTYPES, True)
    return r.raw(x, half)


def _fp8_bits(value: Tensor, wanted: str) -> Tensor:
    stored = fp8.convert(value.float(), "f32", _FP8[wanted], _DTYPES, False)
    return stored.view(torch.uint8).to(torch.int64)


def _e2m1_bits(x: Tensor) -> Tensor:
    """Return fp32 as four bits, rounded to nearest even; NaN becomes the largest number."""
    magnitude = x.abs()
    code = torch.zeros_like(x, dtype=torch.int64)
    for place, (below, above) in enumerate(pairwise(_E2M1)):
        middle = (below + above) / 2
        # A tie goes to the code with an even last bit.
        code += magnitude >= middle if place % 2 else magnitude > middle
    return torch.where(x.isnan(), 7, code | (x.signbit().to(torch.int64) << 3))


def _from_fp8(dtype: torch.dtype) -> _Decode:
    def decode(r: Reader, operand: Operand) -> list[Tensor]:
        raw = r.integer(operand, "b16")
        return [
            ((raw >> (8 * place)) & 255).to(torch.uint8).view(dtype).to(torch.float32)
            for place in (0, 1)
        ]

    return decode


def _from_e2m1(r: Reader, operand: Operand) -> list[Tensor]:
    raw = r.integer(operand, "b8")
    values = torch.tensor([*_E2M1, *(-value for value in _E2M1)], device=raw.device)
    return [values[(raw >> (4 * place)) & 15] for place in (0, 1)]


def _from_ue8m0(r: Reader, operand: Operand) -> list[Tensor]:
    """Powers of two: an exponent with a bias of 127, all ones for NaN."""
    raw = r.integer(operand, "b16")
    codes = [(raw >> (8 * place)) & 255 for place in (0, 1)]
    return [
        torch.where(code == 255, torch.nan, (code - 127).double().exp2()).float() for code in codes
    ]


_DECODED: dict[str, _Decode] = {
    "e4m3x2": _from_fp8(torch.float8_e4m3fn),
    "e5m2x2": _from_fp8(torch.float8_e5m2),
    "e2m1x2": _from_e2m1,
    "ue8m0x2": _from_ue8m0,
}


_Function = Callable[..., Tensor]


def _numeric(fn: _Function, *allowed: str, floats: bool = True, integers: bool = True) -> Evaluate:
    """Return an instruction whose operands and result have one type; packed parts one by one."""

    def evaluate(r: Reader, operands: list[Operand], target: Any) -> Tensor:
        r.allow(*allowed)
        part, width = r.part()
        if not width:
            return _apply(r, operands, part)
        low, high = (
            _apply(r, [parts_of(r, operand, width)[place] for operand in operands], part)
            for place in (0, 1)
        )
        return low | (high << width)

    def _apply(r: Reader, operands: Sequence[Operand], type_: str) -> Tensor:
        if not (floats if r.is_float(type_) else integers):
            raise NotUnderstoodError(r.text)
        read = r.float if r.is_float(type_) else r.integer
        return r.raw(_limited(r, fn(*(read(o, type_) for o in operands)), type_), type_)

    return evaluate


def _limited(r: Reader, value: Tensor, type_: str) -> Tensor:
    """Return a result limited by .sat or .relu, if the instruction has them."""
    if "sat" in r.modifiers:
        if r.is_float(type_):
            return value.nan_to_num(nan=0.0).clamp(0.0, 1.0)
        if type_ != "s32":
            raise NotUnderstoodError(r.text)
        return value.clamp(-(2**31), 2**31 - 1)
    if "relu" in r.modifiers:
        return value.clamp(min=0)
    return value


def _wide(fn: _Function) -> _Function:
    """Return a float function that computes in fp32 at least and rounds once."""

    def compute(*values: Tensor) -> Tensor:
        if values[0].dtype in (torch.float16, torch.bfloat16):
            return fn(*(value.float() for value in values)).to(values[0].dtype)
        return fn(*values)

    return compute


def _rounding(nearest: _Function, directed: _Function, *allowed: str) -> Evaluate:
    """Return an instruction with a rounding mode, for types of 32 and 64 bits."""

    def evaluate(r: Reader, operands: list[Operand], target: Any) -> Any:
        mode = r.rounding(DIRECTED, "")
        if not mode:
            return _numeric(nearest, "sat", *allowed)(r, operands, target)
        if r.part()[0] not in ("f32", "f64"):
            raise NotUnderstoodError(r.text)
        compute = _numeric(lambda *values: directed(torch, mode, *values), "sat", *DIRECTED)
        return compute(r, operands, target)

    return evaluate


def _multiply(r: Reader, operands: list[Operand], target: Any) -> Any:
    if r.is_float(r.part()[0]):
        return _rounding(torch.mul, rounding.mul)(r, operands, target)
    return multiply(r, operands, target)


def _multiply_add(r: Reader, operands: list[Operand], target: Any) -> Any:
    return (_fused if r.is_float(r.part()[0]) else multiply)(r, operands, target)


def _fused(r: Reader, operands: list[Operand], target: Any) -> Any:
    if not r.is_float(r.part()[0]):
        raise NotUnderstoodError(r.text)

    def nearest(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return rounding.fma(torch, "rn", a, b, c)  # type: ignore[no-any-return]

    return _rounding(nearest, rounding.fma, "relu")(r, operands, target)


def _move(r: Reader, operands: list[Operand], target: Any) -> Any:
    r.allow()
    (source,) = operands
    type_ = r.type
    if r.is_float(type_) and not isinstance(source, tuple):
        return r.raw(r.float(source, type_), type_)
    width = r.width(type_)
    if isinstance(source, tuple):
        part = width // len(source)
        out = r.integer(source[0], f"b{part}")
        for place, piece in enumerate(source[1:], 1):
            out = out | (r.integer(piece, f"b{part}") << (part * place))
        return out
    value = r.integer(source, "pred" if type_ == "pred" else f"b{width}")
    if isinstance(target, tuple):
        part = width // len(target)
        return [(value >> (part * place)) & ((1 << part) - 1) for place in range(len(target))]
    return value


def _divide(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow(*DIRECTED)
    if r.is_float(r.type):
        mode = r.rounding(DIRECTED, "rn")
        a, b = (r.float(o, r.type) for o in operands)
        return r.raw(rounding.div(torch, mode, a, b), r.type)
    if r.type == "u64":
        raise NotUnderstoodError(r.text)
    a, b = (r.integer(o, r.type) for o in operands)
    safe = torch.where(b == 0, 1, b)
    if r.opcode[0] == "rem":
        return r.raw(torch.where(b == 0, a, torch.fmod(a, safe)), r.type)
    return r.raw(torch.where(b == 0, -1, torch.div(a, safe, rounding_mode="trunc")), r.type)


def _extremum(which: str) -> Evaluate:
    ignoring = torch.fmax if which == "max" else torch.fmin
    propagating = torch.maximum if which == "max" else torch.minimum

    def evaluate(r: Reader, operands: list[Operand], target: Any) -> Any:
        if r.type in ("u64", "b64"):
            raise NotUnderstoodError(r.text)
        keeps_nan, by_magnitude = "NaN" in r.modifiers, "xorsign" in r.modifiers
        if by_magnitude != ("abs" in r.modifiers) or (by_magnitude and len(operands) != 2):
            raise NotUnderstoodError(r.text)

        def fn(first: Tensor, *others: Tensor) -> Tensor:
            result = first.abs() if by_magnitude else first
            choose = ignoring if first.is_floating_point() and not keeps_nan else propagating
            for other in others:
                other = other.abs() if by_magnitude else other
                chosen = choose(result, other)
                # +0.0 counts as larger than -0.0.
                zero = result + other if which == "max" else -(-result - other)
                result = torch.where((result == 0) & (other == 0), zero, chosen)
            if not by_magnitude:
                return result
            sign = torch.where(first.signbit() ^ others[0].signbit(), -1.0, 1.0)
            return torch.where(result.isnan(), result, result.copysign(sign))

        return _numeric(fn, "NaN", "xorsign", "abs", "relu")(r, operands, target)

    return evaluate


# Numbers of source operands, and what is computed from them.
_INSTRUCTIONS: dict[str, tuple[tuple[int, ...], Evaluate]] = {
    "mov": ((1,), _move),
    "add": ((2,), _rounding(torch.add, rounding.add)),
    "sub": ((2,), _rounding(torch.sub, rounding.sub)),
    "mul": ((2,), _multiply),
    "mad": ((3,), _multiply_add),
    "fma": ((3,), _fused),
    "div": ((2,), _divide),
    "rem": ((2,), _divide),
    "min": ((2, 3), _extremum("min")),
    "max": ((2, 3), _extremum("max")),
    "neg": ((1,), _numeric(torch.neg)),
    "abs": ((1,), _numeric(torch.abs)),
    "and": ((2,), _numeric(torch.bitwise_and, floats=False)),
    "or": ((2,), _numeric(torch.bitwise_or, floats=False)),
    "xor": ((2,), _numeric(torch.bitwise_xor, floats=False)),
    "not": ((1,), _numeric(torch.bitwise_not, floats=False)),
    "cvt": ((1, 2, 3), convert),
    "ex2": ((1,), _numeric(_wide(torch.exp2), integers=False)),
    "lg2": ((1,), _numeric(_wide(torch.log2), integers=False)),
    "sin": ((1,), _numeric(_wide(torch.sin), integers=False)),
    "cos": ((1,), _numeric(_wide(torch.cos), integers=False)),
    "tanh": ((1,), _numeric(_wide(torch.tanh), integers=False)),
    "sqrt": ((1,), _numeric(torch.sqrt, integers=False)),
    "rsqrt": ((1,), _numeric(torch.rsqrt, integers=False)),
    "rcp": ((1,), _numeric(torch.reciprocal, integers=False)),
    **INTEGERS,
    **COMPARISONS,
}


def evaluate(r: Reader, operands: list[Operand], target: Any) -> Any:
    """Compute the instruction that `r` reads for.

    Args:
        r: knows the opcode.
        operands: the sources.
        target: the text of the destination; a tuple asks for as many parts.

    Raises:
        NotUnderstoodError: the instruction is none of those above, or not in this form.
    """
    counts, compute = _INSTRUCTIONS.get(r.opcode[0], ((), None))
    if compute is None or len(operands) not in counts:
        raise NotUnderstoodError(r.text)
    return compute(r, operands, target)
