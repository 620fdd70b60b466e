"""PTX's instructions of integers and bits, on raw bits in int64 tensors.

Sources: PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions" and, of prmt and
cvt.pack, "Data Movement and Conversion Instructions". What floats have, too, is in
`instructions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tkdebug.interpreter.numerics import integer_bits as bit_ops
from tkdebug.interpreter.ptx.operands import NotUnderstoodError, Operand, Reader

Evaluate = Callable[[Reader, list[Operand], Any], Any]
_WORD = 0xFFFFFFFF
# Bytes of the result, lowest first, by the two low bits of the selector (prmt's modes).
_PERMUTED = {
    "f4e": ("0123", "1234", "2345", "3456"),
    "b4e": ("0765", "1076", "2107", "3210"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("0123", "1123", "2223", "3333"),
    "ecr": ("0000", "0111", "0122", "0123"),
    "rc16": ("0101", "2323", "0101", "2323"),
}


def multiply(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """Mul and mad: a * b, its low half, high half or all of it, plus an addend."""
    r.allow("hi", "wide")
    type_ = r.type
    width = r.width(type_)
    a, b = (r.integer(o, type_) for o in operands[:2])
    result = f"b{2 * width}" if "wide" in r.modifiers else type_
    if "hi" not in r.modifiers:
        product = a * b
    elif width == 64:
        product = bit_ops.mulhi(torch, type_[0] == "u", a, b)
    else:
        product = (a * b) >> width
    for added in operands[2:]:
        product = product + r.integer(added, result)
    return r.raw(product, result)


def _multiply_24(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow("hi")
    if r.type not in ("u32", "s32"):
        raise NotUnderstoodError(r.text)
    a, b = (_field(r.integer(o, "b32"), 0, 24, r.type[0] == "s") for o in operands[:2])
    product = (a * b) >> (16 if "hi" in r.modifiers else 0)
    for added in operands[2:]:
        product = product + r.integer(added, r.type)
    return r.raw(product, r.type)


def _field(value: Tensor, start: int, bits: int, is_signed: bool) -> Tensor:
    """Return `bits` bits of a word, from bit `start` on, as a number."""
    field = (value >> start) & ((1 << bits) - 1)
    return field - ((field >> (bits - 1)) << bits) if is_signed else field


def _differences(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    a, b, c = (r.integer(o, r.type) for o in operands)
    return r.raw((a - b).abs() + c, r.type)


def _dot(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """dp4a: four bytes each; dp2a: two halves by the two low or high bytes."""
    r.allow("hi") if r.opcode[0] == "dp2a" else r.allow()
    if len(r.types) != 2 or not {"u32", "s32"}.issuperset(r.types):
        raise NotUnderstoodError(r.text)
    a, b = (r.integer(o, "b32") for o in operands[:2])
    signs = [type_ == "s32" for type_ in r.types]
    total = r.integer(operands[2], "s32" if any(signs) else "u32")
    parts = 4 if r.opcode[0] == "dp4a" else 2
    first = 2 if "hi" in r.modifiers else 0
    for place in range(parts):
        x = _field(a, place * (32 // parts), 32 // parts, signs[0])
        total = total + x * _field(b, 8 * (first + place), 8, signs[1])
    return r.raw(total, "b32")


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
        return ((high << amount) | (low >> (32 - amount))) & _WORD
    return ((low >> amount) | (high << (32 - amount))) & _WORD


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
    return out & _WORD


def _permute(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    modes = r.modifiers & _PERMUTED.keys()
    r.allow(*modes)
    a, b, selector = (r.integer(o, "b32") for o in operands)
    both = a | (b << 32)
    if modes:
        selector = _selector(modes.pop(), selector & 3)
    out = torch.zeros_like(both | selector)
    for place in range(4):
        nibble = (selector >> (4 * place)) & 15
        byte = (both >> ((nibble & 7) * 8)) & 255
        # The nibble's top bit asks for the byte's sign in all eight bits.
        byte = torch.where((nibble & 8) != 0, (byte >> 7) * 255, byte)
        out = out | (byte << (8 * place))
    return out


def _selector(mode: str, choice: Tensor) -> Tensor:
    """Return the selector of the plain instruction that a mode of prmt is short for."""
    selectors = [int(bytes_[::-1], 16) for bytes_ in _PERMUTED[mode]]
    return torch.tensor(selectors, device=choice.device)[choice]


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
        return out & _WORD if width == 32 else out  # type: ignore[no-any-return]

    return evaluate


def _highest(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    """bfind: the highest bit that differs from the sign, or its shift; all ones if none does."""
    r.allow("shiftamt")
    if r.type not in ("u32", "s32"):
        raise NotUnderstoodError(r.text)
    value = r.integer(operands[0], r.type)
    leading = bit_ops.clz(torch, torch.where(value < 0, ~value, value).to(torch.int32))
    leading = leading.to(torch.int64)
    found = leading if "shiftamt" in r.modifiers else 31 - leading
    return torch.where(leading == 32, _WORD, found)


def _extract(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    if r.type not in ("u32", "s32"):
        raise NotUnderstoodError(r.text)
    value = r.integer(operands[0], "u32")
    start, asked = ((r.integer(o, "u32") & 255).clamp(max=32) for o in operands[1:])
    length = torch.minimum(asked, 32 - start)
    field = (value >> start) & ((1 << length) - 1)
    if r.type == "s32":
        top = (value >> (start + length - 1).clamp(0, 31)) & 1
        field = torch.where((asked > 0) & (top != 0), field - (1 << length), field)
    return r.raw(field, "b32")


def _insert(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    if r.type != "b32":
        raise NotUnderstoodError(r.text)
    field, value = (r.integer(o, "b32") for o in operands[:2])
    start, length = ((r.integer(o, "u32") & 255).clamp(max=32) for o in operands[2:])
    mask = (((1 << length) - 1) << start) & _WORD
    return (value & ~mask) | ((field << start) & mask)


def _is_zero(r: Reader, operands: list[Operand], target: Any) -> Tensor:
    r.allow()
    return (r.integer(operands[0], r.type) == 0).to(torch.int64)


def pack(r: Reader, operands: list[Operand]) -> Tensor:
    """cvt.pack.sat: two integers, saturated, below the low bits of a third."""
    r.allow("pack", "sat")
    to, given = r.types[0], r.types[1]
    width = r.width(to)
    forms = ("s32", "b32") if width < 16 else ("s32",)
    if tuple(r.types[1:]) != forms or "sat" not in r.modifiers or width > 16:
        raise NotUnderstoodError(r.text)
    if len(operands) != len(forms) + 1:
        raise NotUnderstoodError(r.text)
    low, high = (
        (0, (1 << width) - 1) if to[0] == "u" else (-(1 << (width - 1)), 2 ** (width - 1) - 1)
    )
    a, b = (r.raw(r.integer(o, given).clamp(low, high), to) for o in operands[:2])
    out = b | (a << width)
    for rest in operands[2:]:
        out = out | (r.integer(rest, "b32") << (2 * width))
    return out & _WORD


# Numbers of source operands, and what is computed from them.
INTEGERS: dict[str, tuple[tuple[int, ...], Evaluate]] = {
    "mul24": ((2,), _multiply_24),
    "mad24": ((3,), _multiply_24),
    "sad": ((3,), _differences),
    "dp4a": ((3,), _dot),
    "dp2a": ((3,), _dot),
    "shl": ((2,), _shift),
    "shr": ((2,), _shift),
    "shf": ((3,), _funnel),
    "lop3": ((4,), _lop3),
    "prmt": ((3,), _permute),
    "bfe": ((3,), _extract),
    "bfi": ((4,), _insert),
    "bfind": ((1,), _highest),
    "popc": ((1,), _counted(bit_ops.popc)),
    "clz": ((1,), _counted(bit_ops.clz)),
    "brev": ((1,), _counted(bit_ops.brev)),
    "cnot": ((1,), _is_zero),
}
