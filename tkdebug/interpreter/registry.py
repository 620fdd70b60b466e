"""Tensors whose addresses were read: what pointers that come from memory may point into.

A script stores `tensor.data_ptr()` in an int64 tensor and a kernel casts it back to a pointer.
Each read is noted with the view it was read from; entries die with the storage.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.forks import renew_after_forks
from tkdebug.interpreter.buffers import Buffer

_PURGE_EVERY = 1024


@dataclass(frozen=True, slots=True)
class _View:
    storage: weakref.ref[torch.UntypedStorage]
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


_Key = tuple[int, tuple[int, ...], tuple[int, ...]]


class AddressRegistry:
    """Views by address, shape and strides; one address may stand for several views."""

    def __init__(self) -> None:
        self._views: dict[_Key, _View] = {}
        self._noted = 0
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """As a forked child has to."""
        self._lock = threading.Lock()

    def note(self, tensor: Tensor, address: int) -> None:
        """Remember the view whose address was read."""
        if address == 0:
            return
        view = _View(
            weakref.ref(tensor.untyped_storage()),
            tensor.dtype,
            tuple(tensor.shape),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
        )
        with self._lock:
            self._views[address, view.shape, view.strides] = view
            self._noted += 1
            if self._noted % _PURGE_EVERY == 0:
                self._views = {a: v for a, v in self._views.items() if v.storage() is not None}

    def buffers(self) -> list[Buffer]:
        """A buffer for every noted view that is still alive."""
        with self._lock:
            views = list(self._views.values())
        found = []
        for view in views:
            storage = view.storage()
            if storage is None:
                continue
            tensor = torch.empty(0, dtype=view.dtype, device=storage.device)
            tensor.set_(storage, view.offset, view.shape, view.strides)
            found.append(Buffer(tensor, None))
        return found


ADDRESSES = AddressRegistry()


class _Watch:
    """How many ask for addresses to be noted; the method is replaced while any does."""

    count = 0


def watch_addresses() -> Callable[[], None]:
    """Note every `Tensor.data_ptr()` from now on; the result, called once, stops it."""
    _Watch.count += 1
    if _Watch.count == 1:
        _replace_data_ptr()

    def stop() -> None:
        _Watch.count -= 1
        if _Watch.count == 0:
            # The method is inherited from torch's C base class.
            del Tensor.data_ptr

    return stop


def _replace_data_ptr() -> None:
    original = Tensor.data_ptr

    def data_ptr(self: Tensor) -> int:
        address = original(self)
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            ADDRESSES.note(self, address)
        return address

    Tensor.data_ptr = data_ptr  # type: ignore[method-assign, assignment]
