"""Marks of memory that nothing has written: bit patterns that no arithmetic gives.

Fresh memory is filled with them (`compat.around_torch.unwritten_memory`); an element that still has
one when a kernel reads it was never written. The marks of floats are signalling NaNs: copies keep
them, while every operation on one gives another, quiet NaN. 8-bit floats have no marks.

Integers of 8 and 16 bits have no pattern to spare, so no single element shows it. Each allocation
is filled with random bytes from a place of its own in one table; a stretch that still has eight of
them in a row, where an aligned word begins, was not written: data would agree by a chance of
2**-64. So shorter gaps are not seen, and a copy of a gap elsewhere looks like data, unless it is
marked as one.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.sites.live_memory import MARKS as BITS

TYPES = frozenset((torch.int8, torch.uint8, torch.int16, torch.uint16))
_TABLE_BYTES = 1 << 16
_WORD_BYTES = 8
# How far apart the texts of two allocations begin.
_STEP = 24_593
_FEW_ALLOCATIONS = 256


@dataclass(frozen=True, slots=True)
class _Filled:
    """A filled allocation, and the bytes that were written into it, over and over."""

    storage: weakref.ref[torch.UntypedStorage]
    text: Tensor

    def fill(self, memory: Tensor) -> None:
        """Write the text into the bytes of an allocation."""
        for part, text in self._parts(memory):
            part.copy_(text)

    def agrees(self, memory: Tensor, unit: torch.dtype) -> Tensor:
        """Return which units of an allocation still have the bytes that they were filled with."""
        parts = [part.view(unit) == text.view(unit) for part, text in self._parts(memory)]
        return torch.cat([part.reshape(-1) for part in parts])

    def _parts(self, memory: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        whole = memory.numel() // _TABLE_BYTES * _TABLE_BYTES
        if whole:
            yield memory[:whole].view(-1, _TABLE_BYTES), self.text
        if whole < memory.numel():
            yield memory[whole:], self.text[: memory.numel() - whole]


class NarrowPatterns:
    """The allocations of this process that were filled, by address."""

    def __init__(self) -> None:
        self._filled: dict[int, _Filled] = {}
        self._count = 0
        self._most = _FEW_ALLOCATIONS

    def fill(self, storage: torch.UntypedStorage) -> None:
        """Fill a fresh CPU allocation."""
        if storage.nbytes() and storage.device.type == "cpu":
            self._begin(storage).fill(_bytes_of(storage))

    def is_unwritten(self, tensor: Tensor) -> bool:
        """Whether nothing has written any element of a tensor; False if that is not known."""
        storage = tensor.untyped_storage()
        filled = self._of(storage)
        if filled is None or storage.nbytes() < _WORD_BYTES:
            return False
        memory = _bytes_of(storage)
        # Most tensors that were written show it by their first bytes.
        if not torch.equal(memory[:_WORD_BYTES], filled.text[:_WORD_BYTES]):
            return False
        whole = memory.numel() // _WORD_BYTES * _WORD_BYTES
        return bool(filled.agrees(memory[:whole], torch.int64).all())

    def marked(self, tensor: Tensor) -> Tensor | None:
        """Return which elements were not written; None if that is unknown or all were."""
        places = self.marked_places(tensor.untyped_storage(), tensor.element_size())
        if places is None:
            return None
        return places.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    def marked_places(self, storage: torch.UntypedStorage, itemsize: int) -> Tensor | None:
        """Return, by element of an allocation, whether it was not written.

        Return None if that is unknown, or all were written.
        """
        filled = self._of(storage)
        if filled is None:
            return None
        memory = _bytes_of(storage)
        whole = memory.numel() // _WORD_BYTES * _WORD_BYTES
        words = filled.agrees(memory[:whole], torch.int64) if whole else torch.zeros(0)
        if not bool(words.any()):
            return None
        found = torch.zeros(memory.numel(), dtype=torch.bool)
        found[:whole] = words.repeat_interleave(_WORD_BYTES)
        _spread(found, filled.agrees(memory, torch.uint8))
        elements = found[: memory.numel() // itemsize * itemsize].view(-1, itemsize)
        return elements.all(1)

    def put(self, tensor: Tensor, where: Tensor) -> None:
        """Mark elements of a CPU tensor as not written."""
        storage = tensor.untyped_storage()
        if not tensor.is_cpu or not storage.nbytes():
            return
        filled = self._of(storage) or self._begin(storage)
        text = torch.empty(storage.nbytes(), dtype=torch.uint8)
        filled.fill(text)
        memory = _bytes_of(storage)
        chosen = torch.zeros(storage.nbytes() // tensor.element_size(), dtype=torch.bool)
        chosen.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset())).copy_(where)
        bytes_chosen = chosen.repeat_interleave(tensor.element_size())
        end = bytes_chosen.numel()
        memory[:end] = torch.where(bytes_chosen, text[:end], memory[:end])

    def _begin(self, storage: torch.UntypedStorage) -> _Filled:
        if len(self._filled) >= self._most:
            gone = [key for key, each in self._filled.items() if each.storage() is None]
            for key in gone:
                del self._filled[key]
            self._most = max(_FEW_ALLOCATIONS, 2 * len(self._filled))
        self._count += 1
        start = self._count * _STEP % _TABLE_BYTES // _WORD_BYTES * _WORD_BYTES
        text = _table()[start : start + _TABLE_BYTES]
        filled = self._filled[storage.data_ptr()] = _Filled(weakref.ref(storage), text)
        return filled

    def _of(self, storage: torch.UntypedStorage) -> _Filled | None:
        """Return the fill of an allocation; None if it has none or was freed."""
        filled = self._filled.get(storage.data_ptr()) if self._filled else None
        return None if filled is None or filled.storage() is None else filled


def _spread(found: Tensor, same: Tensor) -> None:
    """Extend `found` by adjacent bytes that agree, by less than a word at each end."""
    for _ in range(_WORD_BYTES - 1):
        found[1:] |= found[:-1] & same[1:]
        found[:-1] |= found[1:] & same[:-1]


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    memory = torch.empty(0, dtype=torch.uint8)
    return memory.set_(storage, 0, (storage.nbytes(),), (1,))


@functools.cache
def _table() -> Tensor:
    generator = torch.Generator().manual_seed(0x7FA5)
    once = torch.randint(0, 256, (_TABLE_BYTES,), dtype=torch.uint8, generator=generator)
    return once.repeat(2)


NARROW_PATTERNS = NarrowPatterns()


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
    """Return where a tensor has not been written; None if that is not known, or it is empty."""
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
