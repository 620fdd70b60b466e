"""PTX's comparisons and selections, on raw bits in int64 tensors.

Sources: PTX ISA, "Comparison and Selection Instructions" and "Half Precision Comparison
Instructions"; testp and copysign of "Floating-Point Instructions". A predicate is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tkdebug.interpreter.ptx.integers import Evaluate
from tkdebug.interpreter.ptx.operands import FLOATS, NotUnderstoodError, Operand, Reader, half_of

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
    """Whether a comparison of two operands of a type holds, as 0 or 1."""
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
    """The comparison an opcode names, and how its result is combined with a predicate."""
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
    """All ones, or 1.0 of a float type, where the comparison holds."""
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
    """slct: the first where the third is not below zero."""
    r.allow()
    if len(r.types) != 2 or r.types[1] not in ("s32", "f32"):
        raise NotUnderstoodError(r.text)
    a, b = (_bits(r, o, r.types[0]) for o in operands[:2])
    sign = r.types[1]
    c = r.float(operands[2], sign) if sign == "f32" else r.integer(operands[2], sign)
    return torch.where(c >= 0, a, b)


def _copy_sign(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """The sign of the first with the magnitude of the second."""
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
