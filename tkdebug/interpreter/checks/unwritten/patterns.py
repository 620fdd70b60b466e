"""What marks memory that nothing has written: bit patterns that no arithmetic gives.

Fresh memory is filled with them (`compat.around_torch.marked_empties`); an element that still has
one when a kernel reads it was never written. Those of floats are signalling NaNs: copies keep them,
while every operation on one gives another, quiet NaN. Integers of 8 and 16 bits have none to spare:
`narrow_patterns` tells stretches of them. 8-bit floats have no marks.
"""

from __future__ import annotations

import ctypes

import torch

from tkdebug.compiler.sites.live_memory import MARKS as BITS
from tkdebug.interpreter.checks.unwritten.narrow_patterns import NARROW_PATTERNS, TYPES

_C_TYPES = {2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}


def bits_type(itemsize: int) -> torch.dtype:
    """The integer type of a size in bytes."""
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[itemsize]


def _signed(pattern: int, bits: int) -> int:
    return pattern - (1 << bits) if pattern >> (bits - 1) else pattern


_DTYPES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int32: "i32",
    torch.int64: "i64",
}
# By type, as the signed integer of the same bits.
MARKS = {dtype: _signed(BITS[name], 8 * dtype.itemsize) for dtype, name in _DTYPES.items()}


def marked(tensor: torch.Tensor) -> torch.Tensor | None:
    """Where a tensor has not been written; None where that is not known, or it is empty."""
    if tensor.dtype in TYPES:
        return NARROW_PATTERNS.marked(tensor)
    mark = MARKS.get(tensor.dtype)
    if mark is None or not tensor.numel():
        return None
    return tensor.view(bits_type(tensor.element_size())) == mark


def put_marks(tensor: torch.Tensor, where: torch.Tensor) -> None:
    """Mark elements of a tensor as not written, if its type has a mark.

    Autograd does not see it: a tensor of its own over the same memory is filled.
    """
    if tensor.dtype in TYPES:
        NARROW_PATTERNS.put(tensor, where)
        return
    mark = MARKS.get(tensor.dtype)
    if mark is None or not tensor.numel():
        return
    bits = torch.empty(0, dtype=bits_type(tensor.element_size()), device=tensor.device)
    storage, offset = tensor.untyped_storage(), int(tensor.storage_offset())
    bits.set_(storage, offset, tensor.shape, tensor.stride())
    bits.masked_fill_(where, mark)


def is_unwritten(tensor: torch.Tensor) -> bool:
    """Whether nothing has written any element of a tensor."""
    if tensor.dtype in TYPES:
        return NARROW_PATTERNS.is_unwritten(tensor)
    mark = MARKS.get(tensor.dtype)
    if mark is None or not tensor.numel():
        return False
    # Most tensors show by their first or last element that they were written.
    if tensor.is_cpu and _first_bits(tensor) != mark:
        return False
    bits = tensor.view(bits_type(tensor.element_size()))
    ends = (0,) * bits.dim(), (-1,) * bits.dim()
    return all(int(bits[end]) == mark for end in ends) and bool((bits == mark).all())


def _first_bits(tensor: torch.Tensor) -> int:
    # Every launch asks; an index into a tensor takes ten times as long.
    return _C_TYPES[tensor.element_size()].from_address(tensor.data_ptr()).value
