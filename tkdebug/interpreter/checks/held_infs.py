"""Infs that launches stored by right, kept until a later launch makes a NaN of one.

exp(100) is Inf in fp32, so a kernel that stores it is right; where another kernel divides by the
sum of a row of them, the fault is in the first.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.location import SourceLocation
from tkdebug.findings.reporting import report
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.records.events import Fault

_FEW_ALLOCATIONS = 64


@dataclass(slots=True)
class HeldFault:
    """A fault that is none yet; copies of its Infs share it."""

    fault: Fault
    is_reported: bool = False


@dataclass(frozen=True, slots=True)
class HeldInf:
    """Infs that one op of a launch made, in one allocation.

    Attributes:
        held: what is reported of them.
        op: which made them.
        storage: the allocation, without holding on to it.
        version: of the tensor when they were stored: torch counts what it changes. None of those
            that it does not count for.
        places: (n,) int64, offsets from the start of the allocation, in elements of `itemsize`.
    """

    held: HeldFault
    op: Operation
    storage: weakref.ref[torch.UntypedStorage]
    version: int | None
    places: Tensor
    itemsize: int


class HeldInfs:
    """All that are kept, by the address of the allocation."""

    def __init__(self) -> None:
        self._infs: dict[int, list[HeldInf]] = {}
        # How many allocations there are before those that are gone are forgotten.
        self._most = _FEW_ALLOCATIONS

    def __len__(self) -> int:
        """How many allocations have, or had, some."""
        return len(self._infs)

    def hold(self, buffer: Buffer, places: Tensor, op: Operation, held: HeldFault) -> None:
        """Keep Infs that `op` made and a launch stored to `places` of a buffer."""
        if len(self._infs) >= self._most:
            self._forget_the_gone()
        storage = weakref.ref(buffer.tensor.untyped_storage())
        version = _version_of(buffer.tensor)
        inf = HeldInf(held, op, storage, version, places, buffer.itemsize)
        self._infs.setdefault(buffer.storage_key, []).append(inf)

    def of(self, buffer: Buffer) -> Sequence[HeldInf]:
        """Those in the allocation of a buffer, which torch has not changed since."""
        found = self._infs.get(buffer.storage_key, ())
        version = _version_of(buffer.tensor) if found else None
        return [inf for inf in found if inf.storage() is not None and inf.version == version]

    def drop(self, storage_key: int) -> None:
        """An allocation was written to."""
        self._infs.pop(storage_key, None)

    def tell(self, held: HeldFault, kernel: str, place: SourceLocation) -> None:
        """A kernel made a NaN of one of them, and stored it."""
        if held.is_reported:
            return
        held.is_reported = True
        fault = held.fault
        is_same_file = bool(fault.frames) and fault.frames[-1].file == place.file
        where = f"line {place.line}" if is_same_file else f"{place.file}:{place.line}"
        message = f"{fault.message}; {kernel} makes a NaN of it, and stores that at {where}"
        report(replace(fault, message=message))

    def _forget_the_gone(self) -> None:
        for key, infs in tuple(self._infs.items()):
            if not any(inf.storage() is not None for inf in infs):
                del self._infs[key]
        self._most = max(_FEW_ALLOCATIONS, 2 * len(self._infs))


def _version_of(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version  # noqa: SLF001


HELD_INFS = HeldInfs()
