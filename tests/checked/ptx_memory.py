"""The memory that a kernel may access: pieces of this process's, and a block's shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ptx_arithmetic import Bits, Mask


class OutsideError(Exception):
    """An access of memory that the launch was not given."""


class MisalignedError(Exception):
    """An access of several elements at no multiple of its size, which a GPU refuses."""


class Memory:
    """Pieces of this process's memory that a kernel may access, by their addresses."""

    def __init__(self, pieces: Sequence[npt.NDArray[np.uint8]]) -> None:
        self._pieces = sorted(pieces, key=lambda piece: int(piece.ctypes.data))
        self._starts = np.array([piece.ctypes.data for piece in self._pieces], np.uint64)

    def _places(self, addresses: Bits, size: int) -> list[tuple[Mask, npt.NDArray[np.uint8], Any]]:
        found = []
        if size & (size - 1) == 0 and (addresses % np.uint64(size)).any():
            raise MisalignedError(f"{size} bytes at {int(addresses.max()):#x}")
        piece_of = np.searchsorted(self._starts, addresses, "right").astype(np.int64) - 1
        for number in np.unique(piece_of).tolist():
            chosen = piece_of == number
            piece = self._pieces[number]
            offsets = (addresses[chosen] - self._starts[number]).astype(np.int64)
            if number < 0 or (offsets + size > len(piece)).any():
                raise OutsideError(f"{size} bytes at {int(addresses[chosen].max()):#x}")
            found.append((chosen, piece, offsets[:, None] + np.arange(size)))
        return found

    def load(self, addresses: Bits, size: int) -> npt.NDArray[np.uint8]:
        """Bytes (threads, size)."""
        out = np.zeros((len(addresses), size), np.uint8)
        for chosen, piece, places in self._places(addresses, size):
            out[chosen] = piece[places]
        return out

    def store(self, addresses: Bits, data: npt.NDArray[np.uint8]) -> None:
        """Write bytes (threads, size); of equal addresses the last thread's stay."""
        for chosen, piece, places in self._places(addresses, data.shape[1]):
            piece[places] = data[chosen]


class Local(Memory):
    """The local memory of some threads, whose addresses begin at 0.

    Args:
        data: of all threads (threads, bytes).
        here: which of them access it.
    """

    def __init__(self, data: npt.NDArray[np.uint8], here: Mask) -> None:
        self._data, self._rows = data, np.flatnonzero(here)[:, None]

    def _columns(self, addresses: Bits, size: int) -> Any:
        if (addresses + np.uint64(size) > self._data.shape[1]).any():
            raise OutsideError(f"{size} bytes at {int(addresses.max()):#x} of local memory")
        return addresses.astype(np.int64)[:, None] + np.arange(size)

    def load(self, addresses: Bits, size: int) -> npt.NDArray[np.uint8]:
        """Bytes (threads, size)."""
        found: npt.NDArray[np.uint8] = self._data[self._rows, self._columns(addresses, size)]
        return found

    def store(self, addresses: Bits, data: npt.NDArray[np.uint8]) -> None:
        """Write bytes (threads, size)."""
        self._data[self._rows, self._columns(addresses, data.shape[1])] = data


class Shared(Memory):
    """A block's shared memory, whose addresses begin at 0."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self._pieces = [data]
        self._starts = np.zeros(1, np.uint64)
