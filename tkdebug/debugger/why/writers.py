"""Which launch wrote a tensor last, for questions about where a value is from."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class _Writer:
    storage: weakref.ref[torch.UntypedStorage]
    version: int
    text: str


class Writers:
    """The last launch that may have written each allocation.

    torch counts what is done to a tensor in place: after anything but a launch the writer is
    unknown.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Writer] = {}

    def note(self, tensors: Iterable[Tensor], text: str) -> None:
        """A launch has written `tensors`."""
        for tensor in tensors:
            version = _version(tensor)
            if version is not None:
                storage = tensor.untyped_storage()
                self._known[storage.data_ptr()] = _Writer(weakref.ref(storage), version, text)

    def of(self, arguments: Iterable[Any]) -> dict[int, str]:
        """By address, who wrote the allocations of a launch's arguments last."""
        found = {}
        for tensor in arguments:
            if not isinstance(tensor, Tensor):
                continue
            key = tensor.untyped_storage().data_ptr()
            known = self._known.get(key)
            if known is not None and known.storage() is not None:
                if known.version == _version(tensor):
                    found[key] = known.text
        return found


def _version(tensor: Tensor) -> int | None:
    """How often torch has changed a tensor; None where it does not count."""
    return None if tensor.is_inference() else tensor._version  # noqa: SLF001
