"""Results of PTX instructions, on the bits of all threads at once.

Integers wrap, and floating-point numbers are numpy's: `.approx` and `.rn` are not told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from ptx_program import WIDTHS, Instruction

Bits = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

FLOATS: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def mask(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def signed(value: Bits, bits: int) -> npt.NDArray[np.int64]:
    shift = np.uint64(64 - bits)
    return (value << shift).view(np.int64) >> np.int64(64 - bits)


def as_float(value: Bits, kind: str) -> Any:
    if kind == "bf16":
        return (value.astype(np.uint32) << 16).view(np.float32)
    kept: dict[str, Any] = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}
    return value.astype(kept[kind]).view(FLOATS[kind])


def of_float(value: Any, kind: str) -> Bits:
    if kind == "bf16":
        bits = np.asarray(value, np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
        return np.where(np.isnan(value), np.uint64(0x7FFF), rounded)
    kept: dict[str, Any] = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}
    return np.asarray(value, FLOATS[kind]).view(kept[kind]).astype(np.uint64)


def flushed(value: Any) -> Any:
    """With zeros of the same sign in the place of subnormal fp32 numbers."""
    return np.where(np.abs(value) < np.finfo(np.float32).tiny, np.copysign(0, value), value)


JOINS: dict[str, Callable[[Mask, Mask], Mask]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def compared(relation: str, kind: str, x: Bits, y: Bits) -> Mask:
    bits = WIDTHS[kind]
    if kind.startswith(("f", "bf")):
        left, right = as_float(x, kind), as_float(y, kind)
        unordered = np.isnan(left) | np.isnan(right)
        if relation in ("num", "nan"):
            return unordered if relation == "nan" else ~unordered
        if relation.endswith("u"):
            return unordered | _RELATIONS[relation[:-1]](left, right)
        return ~unordered & _RELATIONS[relation](left, right)
    if kind.startswith("s"):
        return _RELATIONS[relation](signed(x, bits), signed(y, bits))
    relation = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(relation, relation)
    return _RELATIONS[relation](x & mask(bits), y & mask(bits))


_RELATIONS: dict[str, Callable[[Any, Any], Mask]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _add(one: Instruction, bits: int, x: Bits, y: Bits) -> Bits:
    return x + y


def _times(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    if "wide" not in one.parts and "hi" not in one.parts:
        return x * y
    left, right = x, y
    if one.type.startswith("s"):
        left, right = (signed(value, bits).view(np.uint64) for value in (x, y))
    if "wide" in one.parts:
        return left * right
    pairs = zip(*(_numbers(one, bits, value) for value in (x, y)), strict=True)
    return np.array([(a * b >> bits) & (1 << 64) - 1 for a, b in pairs], np.uint64)


def _numbers(one: Instruction, bits: int, value: Bits) -> list[int]:
    found = signed(value, bits) if one.type.startswith("s") else value
    return [int(each) for each in found.tolist()]


def _divided(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    out = []
    for a, b in zip(_numbers(one, bits, x), _numbers(one, bits, y), strict=True):
        quotient = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        out.append((quotient if one.parts[0] == "div" else a - quotient * b) & (1 << 64) - 1)
    return np.array(out, np.uint64)


def _least(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    pick = np.minimum if one.parts[0] == "min" else np.maximum
    if one.type.startswith("s"):
        return pick(signed(x, bits), signed(y, bits)).view(np.uint64)
    return pick(x, y)


def _shifted_left(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    by = y & mask(32)
    return np.where(by < np.uint64(bits), x << np.minimum(by, np.uint64(63)), 0)


def _shifted_right(one: Instruction, bits: int, x: Bits, y: Bits) -> Any:
    by = np.minimum(y & mask(32), np.uint64(bits))
    if one.type.startswith("s"):
        return (signed(x, bits) >> np.minimum(by, np.uint64(63)).view(np.int64)).view(np.uint64)
    return np.where(by < np.uint64(bits), x >> np.minimum(by, np.uint64(63)), 0)


def _each(compute: Callable[..., int]) -> Callable[..., Any]:
    def all_of(one: Instruction, bits: int, *values: Bits) -> Any:
        rows = zip(*(value.tolist() for value in values), strict=True)
        return np.array([compute(bits, *row) & (1 << 64) - 1 for row in rows], np.uint64)

    return all_of


def _extracted(one: Instruction, bits: int, value: Bits, at: Bits, count: Bits) -> Any:
    out = []
    for x, first, many in zip(value.tolist(), at.tolist(), count.tolist(), strict=True):
        place, length = first & 255, many & 255
        field = x >> place & (1 << length) - 1
        if one.type.startswith("s") and length and x >> min(place + length, bits) - 1 & 1:
            field -= 1 << max(0, min(length, bits - place))
        out.append(field & (1 << 64) - 1)
    return np.array(out, np.uint64)


def _permuted(bits: int, low: int, high: int, selector: int) -> int:
    data = (high << 32 | low).to_bytes(8, "little")
    out = 0
    for number in range(4):
        nibble = selector >> 4 * number & 15
        byte = data[nibble & 7]
        out |= ((0xFF if byte >> 7 else 0) if nibble & 8 else byte) << 8 * number
    return out


def _logic(bits: int, a: int, b: int, c: int, table: int) -> int:
    out = 0
    for row in range(8):
        if table >> row & 1:
            x = a if row & 4 else ~a
            out |= x & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return out & (1 << bits) - 1


INTEGER: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": lambda one, bits, x, y: x - y,
    "mul": _times,
    "mad": lambda one, bits, x, y, z: _times(one, bits, x, y) + z,
    "div": _divided,
    "rem": _divided,
    "min": _least,
    "max": _least,
    "and": lambda one, bits, x, y: x & y,
    "or": lambda one, bits, x, y: x | y,
    "xor": lambda one, bits, x, y: x ^ y,
    "not": lambda one, bits, x: ~x,
    "neg": lambda one, bits, x: np.uint64(0) - x,
    "abs": lambda one, bits, x: np.abs(signed(x, bits)).view(np.uint64),
    "shl": _shifted_left,
    "shr": _shifted_right,
    "popc": _each(lambda bits, x: x.bit_count()),
    "clz": _each(lambda bits, x: bits - x.bit_length()),
    "brev": _each(lambda bits, x: int(f"{x:0{bits}b}"[::-1], 2)),
    "bfind": _each(lambda bits, x: x.bit_length() - 1),
    "bmsk": _each(lambda bits, at, count: ((1 << min(count, 32)) - 1) << min(at, 32)),
    "bfe": _extracted,
    "prmt": _each(_permuted),
    "lop3": _each(_logic),
}


def _extreme(one: Instruction, x: Any, y: Any) -> Any:
    if "NaN" in one.parts:
        return (np.minimum if one.parts[0] == "min" else np.maximum)(x, y)
    return (np.fmin if one.parts[0] == "min" else np.fmax)(x, y)


FLOAT: dict[str, Callable[..., Any]] = {
    "add": lambda one, x, y: x + y,
    "sub": lambda one, x, y: x - y,
    "mul": lambda one, x, y: x * y,
    "div": lambda one, x, y: x / y,
    "fma": lambda one, x, y, z: x.astype(np.float64) * y + z,
    "min": _extreme,
    "max": _extreme,
    "neg": lambda one, x: -x,
    "abs": lambda one, x: np.abs(x),
    "sqrt": lambda one, x: np.sqrt(x),
    "rcp": lambda one, x: 1 / x,
    "rsqrt": lambda one, x: 1 / np.sqrt(x),
    "ex2": lambda one, x: np.exp2(x),
    "lg2": lambda one, x: np.log2(x),
}


def _sum(kind: str, bits: int, old: int, given: int) -> int:
    if not kind.startswith(("f", "bf")):
        return old + given
    x, y = (as_float(np.array([value], np.uint64), kind) for value in (old, given))
    return int(of_float(x + y, kind)[0])


def _extremes(pick: Callable[[int, int], int]) -> Callable[..., int]:
    def chosen(kind: str, bits: int, old: int, given: int) -> int:
        if kind.startswith("s"):
            signed = [value - (value >> bits - 1 << bits) for value in (old, given)]
            return pick(*signed)
        return pick(old, given)

    return chosen


ATOMICS: dict[str, Callable[..., int]] = {
    "add": _sum,
    "min": _extremes(min),
    "max": _extremes(max),
    "and": lambda kind, bits, old, given: old & given,
    "or": lambda kind, bits, old, given: old | given,
    "xor": lambda kind, bits, old, given: old ^ given,
    "exch": lambda kind, bits, old, given: given,
    "cas": lambda kind, bits, old, compare, given: given if old == compare else old,
}
