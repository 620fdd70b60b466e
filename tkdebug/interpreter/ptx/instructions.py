"""What single PTX instructions compute (PTX ISA, "Instructions"), on raw bits in int64 tensors.

`approx` instructions are computed to full precision. Every instruction checks its own modifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tkdebug.interpreter.numerics import integer_bits as bit_ops
from tkdebug.interpreter.numerics import rounding
from tkdebug.interpreter.ptx.conversions import convert
from tkdebug.interpreter.ptx.operands import DIRECTED, NotUnderstoodError, Operand, Reader, half_of

Evaluate = Callable[[Reader, list[Operand], Any], Any]


def _numeric(fn: Callable[..., Tensor], *, floats: bool = True, integers: bool = True) -> Evaluate:
    """An instruction whose operands and result have its one type; pairs half by half."""

    def evaluate(r: Reader, operands: list[Operand], target: Any) -> Tensor:
        r.allow()
        type_ = r.type
        if type_.endswith("x2"):
            half = type_.removesuffix("x2")
            low = _apply(r, [half_of(r, o, 0) for o in operands], half)
            return low | (_apply(r, [half_of(r, o, 1) for o in operands], half) << 16)
        return _apply(r, operands, type_)

    def _apply(r: Reader, operands: Sequence[Operand], type_: str) -> Tensor:
        if not (floats if r.is_float(type_) else integers):
            raise NotUnderstoodError(r.text)
        read = r.float if r.is_float(type_) else r.integer
        values = [read(o, type_) for o in operands]
        return r.raw(fn(*values), type_)

    return evaluate


def _wide(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A float function computed in single precision at least and rounded once."""

    def compute(*values: Tensor) -> Tensor:
        if values[0].dtype in (torch.float16, torch.bfloat16):
            return fn(*(value.float() for value in values)).to(values[0].dtype)
        return fn(*values)

    return compute


def _fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return rounding.fma(torch, "rn", a, b, c) if a.is_floating_point() else a * b + c


def _multiply(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    type_ = r.type
    if r.is_float(type_) or type_.endswith("x2"):
        return _numeric(torch.mul)(r, operands, target)  # type: ignore[no-any-return]
    r.allow("hi", "wide")
    a, b = (r.integer(o, type_) for o in operands)
    width = r.width(type_)
    if "wide" in r.modifiers:
        return r.raw(a * b, f"b{2 * width}")
    if "hi" not in r.modifiers:
        return r.raw(a * b, type_)
    if width == 64:
        return bit_ops.mulhi(torch, type_[0] == "u", a, b)  # type: ignore[no-any-return]
    return r.raw((a * b) >> width, type_)


def _multiply_add(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    if r.is_float(r.type):
        return _numeric(_fused)(r, operands, target)  # type: ignore[no-any-return]
    r.allow()
    a, b, c = (r.integer(o, r.type) for o in operands)
    return r.raw(a * b + c, r.type)


def _shift(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    value, amount = r.integer(operands[0], r.type), r.integer(operands[1], "u32")
    width = r.width(r.type)
    inside = amount.clamp(max=width - 1)
    if r.opcode[0] == "shl":
        return torch.where(amount < width, r.raw(value << inside, r.type), 0)
    if r.type[0] == "s":
        return r.raw(value >> inside, r.type)
    if width == 64:
        mask = torch.where(inside > 0, (1 << (64 - inside.clamp(min=1))) - 1, -1)
        shifted = (value >> inside) & mask
    else:
        shifted = value >> inside
    return torch.where(amount < width, shifted, 0)


def _funnel(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow("l", "r", "clamp")
    low, high, amount = (r.integer(o, "u32") for o in operands)
    amount = amount.clamp(max=32) if "clamp" in r.modifiers else amount & 31
    if "l" in r.modifiers:
        return ((high << amount) | (low >> (32 - amount))) & 0xFFFFFFFF
    return ((low >> amount) | (high << (32 - amount))) & 0xFFFFFFFF


def _lop3(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    a, b, c = (r.integer(o, "b32") for o in operands[:3])
    table = operands[3]
    if not isinstance(table, int):
        raise NotUnderstoodError(r.text)
    out = torch.zeros_like(a | b | c)
    for index in range(8):
        if (table >> index) & 1:
            x = a if index & 4 else ~a
            y = b if index & 2 else ~b
            z = c if index & 1 else ~c
            out = out | (x & y & z)
    return out & 0xFFFFFFFF


def _permute(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    a, b, selector = (r.integer(o, "b32") for o in operands)
    both = a | (b << 32)
    out = torch.zeros_like(both | selector)
    for place in range(4):
        nibble = (selector >> (4 * place)) & 15
        byte = (both >> ((nibble & 7) * 8)) & 255
        # The nibble's top bit asks for the byte's sign in all eight bits.
        byte = torch.where((nibble & 8) != 0, (byte >> 7) * 255, byte)
        out = out | (byte << (8 * place))
    return out


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
}


def _set_predicate(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    names = r.modifiers & set(_COMPARISONS)
    r.allow(*names)
    if len(names) != 1 or len(operands) != 2 or r.type.endswith("x2"):
        raise NotUnderstoodError(r.text)
    if r.type in ("u64", "b64"):
        a, b = (r.integer(o, r.type) ^ -(2**63) for o in operands)
    elif r.is_float(r.type):
        a, b = (r.float(o, r.type) for o in operands)
    else:
        a, b = (r.integer(o, r.type) for o in operands)
    return _COMPARISONS[names.pop()](a, b).to(torch.int64)


def _select(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    if r.is_float(r.type):
        a, b = (r.raw(r.float(o, r.type), r.type) for o in operands[:2])
    else:
        a, b = (r.raw(r.integer(o, r.type), r.type) for o in operands[:2])
    return torch.where(r.integer(operands[2], "pred") != 0, a, b)


def _counted(fn: Callable[..., Any]) -> Evaluate:
    def evaluate(r: Reader, operands: list[Operand], target: Any) -> Tensor:
        r.allow()
        width = r.width(r.type)
        if width not in (32, 64):
            raise NotUnderstoodError(r.text)
        value = r.integer(operands[0], r.type)
        if width == 32:
            value = value.to(torch.int32)
        out = fn(torch, value).to(torch.int64)
        return out & 0xFFFFFFFF if width == 32 else out  # type: ignore[no-any-return]

    return evaluate


def _extract(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    if r.type not in ("u32", "s32"):
        raise NotUnderstoodError(r.text)
    value = r.integer(operands[0], "u32")
    start, length = (r.integer(o, "u32") & 255 for o in operands[1:])
    start, length = start.clamp(max=32), length.clamp(max=32)
    field = (value >> start) & ((1 << length) - 1)
    if r.type == "s32":
        top = (value >> (start + length - 1).clamp(0, 31)) & 1
        field = torch.where((length > 0) & (top != 0), field - (1 << length), field)
    return r.raw(field, "b32")


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

    def evaluate(r: Reader, operands: list[Operand], target: Any) -> Tensor:
        nan = "NaN" in r.modifiers
        r.modifiers.discard("NaN")
        if r.type in ("u64", "b64"):
            raise NotUnderstoodError(r.text)

        def fn(a: Tensor, b: Tensor) -> Tensor:
            return ignoring(a, b) if a.is_floating_point() and not nan else propagating(a, b)

        return _numeric(fn)(r, operands, target)  # type: ignore[no-any-return]

    return evaluate


# Numbers of source operands, and what is computed from them.
_INSTRUCTIONS: dict[str, tuple[tuple[int, ...], Evaluate]] = {
    "mov": ((1,), _move),
    "add": ((2,), _numeric(torch.add)),
    "sub": ((2,), _numeric(torch.sub)),
    "mul": ((2,), _multiply),
    "mad": ((3,), _multiply_add),
    "fma": ((3,), _numeric(_wide(_fused), integers=False)),
    "div": ((2,), _divide),
    "rem": ((2,), _divide),
    "min": ((2,), _extremum("min")),
    "max": ((2,), _extremum("max")),
    "neg": ((1,), _numeric(torch.neg)),
    "abs": ((1,), _numeric(torch.abs)),
    "and": ((2,), _numeric(torch.bitwise_and, floats=False)),
    "or": ((2,), _numeric(torch.bitwise_or, floats=False)),
    "xor": ((2,), _numeric(torch.bitwise_xor, floats=False)),
    "not": ((1,), _numeric(torch.bitwise_not, floats=False)),
    "shl": ((2,), _shift),
    "shr": ((2,), _shift),
    "shf": ((3,), _funnel),
    "lop3": ((4,), _lop3),
    "prmt": ((3,), _permute),
    "bfe": ((3,), _extract),
    "popc": ((1,), _counted(bit_ops.popc)),
    "clz": ((1,), _counted(bit_ops.clz)),
    "brev": ((1,), _counted(bit_ops.brev)),
    "setp": ((2,), _set_predicate),
    "selp": ((3,), _select),
    "cvt": ((1, 2), convert),
    "ex2": ((1,), _numeric(_wide(torch.exp2), integers=False)),
    "lg2": ((1,), _numeric(_wide(torch.log2), integers=False)),
    "sin": ((1,), _numeric(_wide(torch.sin), integers=False)),
    "cos": ((1,), _numeric(_wide(torch.cos), integers=False)),
    "tanh": ((1,), _numeric(_wide(torch.tanh), integers=False)),
    "sqrt": ((1,), _numeric(torch.sqrt, integers=False)),
    "rsqrt": ((1,), _numeric(torch.rsqrt, integers=False)),
    "rcp": ((1,), _numeric(torch.reciprocal, integers=False)),
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
