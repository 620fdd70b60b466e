"""What single PTX instructions compute (PTX ISA, "Instructions"), on raw bits in int64 tensors.

Here are those of floats, and what integers share with them: "Floating-Point Instructions", "Half
Precision Floating-Point Instructions" and mov. Those of integers are in `integers`, of
comparisons in `comparisons`, cvt in `conversions`. `approx` instructions are computed to
full precision. Every instruction checks its own modifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tkdebug.interpreter.numerics import rounding
from tkdebug.interpreter.ptx.comparisons import COMPARISONS
from tkdebug.interpreter.ptx.conversions import convert
from tkdebug.interpreter.ptx.integers import INTEGERS, Evaluate, multiply
from tkdebug.interpreter.ptx.operands import (
    DIRECTED,
    NotUnderstoodError,
    Operand,
    Reader,
    parts_of,
)

_Function = Callable[..., Tensor]


def _numeric(fn: _Function, *allowed: str, floats: bool = True, integers: bool = True) -> Evaluate:
    """An instruction whose operands and result have its one type; packed ones part by part."""

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
    """A result after .sat or .relu."""
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
    """A float function computed in single precision at least and rounded once."""

    def compute(*values: Tensor) -> Tensor:
        if values[0].dtype in (torch.float16, torch.bfloat16):
            return fn(*(value.float() for value in values)).to(values[0].dtype)
        return fn(*values)

    return compute


def _rounding(nearest: _Function, directed: _Function, *allowed: str) -> Evaluate:
    """An instruction that takes a rounding mode, of types of 32 and 64 bits."""

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
    """What the instruction that `r` reads for gives.

    Args:
        r: knows the opcode.
        operands: the sources.
        target: the text of the destination; a tuple asks for as many parts.

    Raises:
        NotUnderstoodError: it is none of those above, or not in this form.
    """
    counts, compute = _INSTRUCTIONS.get(r.opcode[0], ((), None))
    if compute is None or len(operands) not in counts:
        raise NotUnderstoodError(r.text)
    return compute(r, operands, target)
