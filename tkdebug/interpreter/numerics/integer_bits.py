"""Bit operations on 32- and 64-bit integers, elementwise on torch tensors.

Integers are signless, held in int32 and int64. Words of 32 bits are worked on inside int64, where
nothing overflows. Every function takes the torch module first.
"""

from __future__ import annotations

from typing import Any

_WORD = 0xFFFFFFFF


def _low(t: Any, x: Any) -> Any:
    """The low word as a number from 0 to 2**32 - 1."""
    return x.to(t.int64) & _WORD


def _high(t: Any, x: Any) -> Any:
    return (x >> 32) & _WORD


def _popc(word: Any) -> Any:
    """Count the one bits of a word (Hacker's Delight, 5-1)."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) & _WORD) >> 24


def popc(t: Any, x: Any) -> Any:
    """Number of one bits, int32."""
    count = _popc(_low(t, x))
    if x.dtype == t.int64:
        count = count + _popc(_high(t, x))
    return count.to(t.int32)


def _clz(word: Any) -> Any:
    for shift in (1, 2, 4, 8, 16):
        word = word | (word >> shift)
    return 32 - _popc(word)


def clz(t: Any, x: Any) -> Any:
    """Number of zero bits above the highest one, int32."""
    low = _clz(_low(t, x))
    if x.dtype != t.int64:
        return low.to(t.int32)
    high = _high(t, x)
    return t.where(high != 0, _clz(high), 32 + low).to(t.int32)


def _ffs(t: Any, word: Any) -> Any:
    return t.where(word != 0, _popc((word & -word) - 1) + 1, 0)


def ffs(t: Any, x: Any) -> Any:
    """Position of the lowest one bit counted from 1; 0 for 0, int32."""
    low = _ffs(t, _low(t, x))
    if x.dtype != t.int64:
        return low.to(t.int32)
    high = _ffs(t, _high(t, x))
    return t.where(low != 0, low, t.where(high != 0, high + 32, 0)).to(t.int32)


def _brev(word: Any) -> Any:
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        word = ((word >> shift) & mask) | ((word & mask) << shift)
    return ((word >> 16) | (word << 16)) & _WORD


def brev(t: Any, x: Any) -> Any:
    """The bits in reverse order."""
    low = _brev(_low(t, x))
    if x.dtype != t.int64:
        return low.to(t.int32)
    return (low << 32) | _brev(_high(t, x))


def wide(t: Any, x: Any, unsigned: bool) -> Any:
    """A 32-bit integer's value in int64."""
    return _low(t, x) if unsigned else x.to(t.int64)


def mulhi(t: Any, unsigned: bool, x: Any, y: Any) -> Any:
    """High half of the product."""
    if x.dtype == t.int32:
        return ((wide(t, x, unsigned) * wide(t, y, unsigned)) >> 32).to(t.int32)
    x0, x1, y0, y1 = _low(t, x), _high(t, x), _low(t, y), _high(t, y)
    # Schoolbook: no partial sum reaches 2**64 when carries are taken word by word.
    low, cross_a, cross_b = x0 * y0, x1 * y0, x0 * y1
    carry = _high(t, low) + (cross_a & _WORD) + (cross_b & _WORD)
    high = x1 * y1 + _high(t, cross_a) + _high(t, cross_b) + _high(t, carry)
    if unsigned:
        return high
    return high - t.where(x < 0, y, 0) - t.where(y < 0, x, 0)


def mul24(t: Any, unsigned: bool, x: Any, y: Any) -> Any:
    """Low 32 bits of the product of the low 24 bits."""
    if unsigned:
        return ((x.to(t.int64) & 0xFFFFFF) * (y.to(t.int64) & 0xFFFFFF)).to(t.int32)
    return (((x << 8) >> 8).to(t.int64) * ((y << 8) >> 8).to(t.int64)).to(t.int32)


def sad(t: Any, unsigned: bool, x: Any, y: Any, z: Any) -> Any:
    """|x - y| + z."""
    difference = wide(t, x, unsigned) - wide(t, y, unsigned)
    return (difference.abs() + _low(t, z)).to(t.int32)


def average(t: Any, unsigned: bool, up: int, x: Any, y: Any) -> Any:
    """(x + y + up) / 2 rounded down, without overflow."""
    return ((wide(t, x, unsigned) + wide(t, y, unsigned) + up) >> 1).to(t.int32)


def byte_perm(t: Any, x: Any, y: Any, selector: Any) -> Any:
    """Four of the eight bytes of y:x, chosen by the selector's four nibbles."""
    both = _low(t, x) | (_low(t, y) << 32)
    out = None
    for place in range(4):
        byte = (both >> (((selector.to(t.int64) >> (4 * place)) & 7) * 8)) & 0xFF
        out = byte << (8 * place) if out is None else out | (byte << (8 * place))
    return out.to(t.int32)  # type: ignore[union-attr]
