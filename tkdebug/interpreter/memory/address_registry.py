"""Tensors whose addresses were read, into which pointers that come from memory may point.

A script stores `tensor.data_ptr()` in an int64 tensor and a kernel casts it back to a pointer.
Each read is noted with the view it was read from; entries die with the storage.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.sites.live_memory import AddressRange
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.host_views import memory_of
from tkdebug.process.forks import renew_after_forks

_PURGE_EVERY = 1024
# Views of freed tensors that are remembered.
_MOST_FREED = 1024


@dataclass(frozen=True, slots=True)
class _View:
    storage: weakref.ref[torch.UntypedStorage]
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    span: AddressRange

    @property
    def tensor(self) -> Tensor | None:
        """The view; None once its storage is freed."""
        storage = self.storage()
        # Its memory may have been given up alone, by `resize_`.
        if storage is None or storage.data_ptr() != self.span.first or not storage.nbytes():
            return None
        storage = memory_of(storage)
        tensor = torch.empty(0, dtype=self.dtype, device=storage.device)
        return tensor.set_(storage, self.offset, self.shape, self.strides)

    def is_of(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> bool:
        """Whether this is a view of `storage`, unmoved and of unchanged size, with `dtype`."""
        first, end = self.span
        return (
            self.storage() is storage
            and self.dtype is dtype
            and storage.data_ptr() == first
            and storage.nbytes() == end - first
        )


@dataclass(frozen=True, slots=True)
class FreedTensor:
    """A tensor whose address was read, and that is freed.

    Attributes:
        span: the span of its storage.
        text: a description, such as "a torch.int32 tensor of shape [8], which is freed".
    """

    span: AddressRange
    text: str


@dataclass(frozen=True, slots=True)
class KnownMemory:
    """The tensors that pointers from memory may point into, at one time.

    Attributes:
        tensors: views whose addresses were read.
        freed: freed tensors, the latest first.
    """

    tensors: Sequence[Tensor]
    freed: Sequence[FreedTensor]

    def freed_at(self, address: int) -> FreedTensor | None:
        """The latest tensor that was freed at an address."""
        for one in self.freed:
            if one.span.first <= address < one.span.end:
                return one
        return None


_Key = tuple[int, tuple[int, ...], tuple[int, ...]]


def _view_of(tensor: Tensor, key: _Key, storage: torch.UntypedStorage) -> _View:
    address, shape, strides = key
    offset = int(tensor.storage_offset())
    first = address - offset * tensor.element_size()
    span = AddressRange(first, first + storage.nbytes())
    return _View(weakref.ref(storage), tensor.dtype, shape, strides, offset, span)


def _extent(
    tensor: Tensor, storage: torch.UntypedStorage
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides; for a nested tensor, those of all its values in a row."""
    if not tensor.is_nested:
        return tuple(tensor.shape), tensor.stride()
    elements = storage.nbytes() // tensor.element_size() - int(tensor.storage_offset())
    return (elements,), (1,)


class AddressRegistry:
    """Views by address, shape and strides; one address may have several views.

    Attributes:
        are_stored_by_kernels: whether kernels may have stored addresses that nobody read.
    """

    def __init__(self) -> None:
        self.are_stored_by_kernels = False
        self._views: dict[_Key, _View] = {}
        self._noted = 0
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Make a new lock, as a forked child has to."""
        self._lock = threading.Lock()

    def note(self, tensor: Tensor, address: int) -> None:
        """Remember the view whose address was read."""
        if address == 0:
            return
        storage = tensor.untyped_storage()
        key = address, *_extent(tensor, storage)
        view = self._views.get(key)
        if view is None or not view.is_of(storage, tensor.dtype):
            view = _view_of(tensor, key, storage)
        with self._lock:
            # The latest is the last.
            self._views.pop(key, None)
            self._views[key] = view
            self._noted += 1
            if self._noted % _PURGE_EVERY == 0:
                self._purge()

    def _purge(self) -> None:
        freed = [key for key, view in self._views.items() if view.storage() is None]
        for key in freed[: max(0, len(freed) - _MOST_FREED)]:
            del self._views[key]

    def buffers(self) -> list[Buffer]:
        """Return a buffer for every noted view that is still alive."""
        return [Buffer(tensor, None) for tensor in self.known().tensors]

    def known(self) -> KnownMemory:
        """Return the memory that is known just now."""
        with self._lock:
            views = list(self._views.values())
        tensors, freed = [], []
        for view in views:
            tensor = view.tensor
            if tensor is not None:
                tensors.append(tensor)
            else:
                text = f"a {view.dtype} tensor of shape {list(view.shape)}, which is freed"
                freed.append(FreedTensor(view.span, text))
        return KnownMemory(tensors, freed[::-1])

    def freed_at(self, address: int) -> str | None:
        """Return a description of the freed tensor that was at an address, or None if unknown."""
        found = self.known().freed_at(address)
        return None if found is None else found.text


ADDRESSES = AddressRegistry()


class _Noting:
    """The number of callers that want addresses noted; above 0, `Tensor.data_ptr` is replaced."""

    count = 0


def watch_addresses() -> Callable[[], None]:
    """Note every `Tensor.data_ptr()` from now on; return a function that stops it."""
    _Noting.count += 1
    if _Noting.count == 1:
        _replace_data_ptr()

    def stop() -> None:
        _Noting.count -= 1
        if _Noting.count == 0:
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
