"""Reports memory that is read before anything has written it.

Unwritten memory is marked in memory itself (`patterns`), so no accesses are kept: the values that
a load gave show whether it read any. Elements are listed only if it did.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.checks.unwritten.patterns import (
    MARKS,
    NARROW_PATTERNS,
    TYPES,
    bits_type,
    marked,
)
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.numerics.scans import may_have_nan
from tkdebug.interpreter.observers import LaunchContext, Observer
from tkdebug.interpreter.state import EvaluatorState

# Locks and counters have no more.
_FEW_ELEMS = 64


class UninitialisedReads(Observer):
    """`--check uninitialised-read`."""

    follows_accesses = True
    is_passive = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults
        self._written: frozenset[int] | None = None
        # Elements that were read so far of tensors that the kernel does not write; None for those
        # that have no marks anywhere.
        self._read_elems: dict[Buffer, int | None] = {}
        # For narrow integers, the elements of the allocation that nothing has written, if any.
        self._narrow: dict[Buffer, Tensor | None] = {}
        # For tensors that atomics access, whether they have no marks.
        self._unmarked: dict[Buffer, bool] = {}

    def launch_begins(self, launch: LaunchContext) -> None:
        """Note which tensors the kernel may write."""
        self._written = launch.written

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Report a load of memory that nothing has written."""
        if access.buffer.tensor.dtype in TYPES:
            self._look_at_narrow(access)
            return
        values, mark = access.loaded, _mark_of(access.buffer)
        if values is None or mark is None or self._has_no_marks(access.buffer, values.numel()):
            return
        if _has_mark(values, access.buffer.tensor.dtype, mark) and is_used(access.op):
            self._look_for_marks(access, mark)

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Report an atomic on unwritten memory; an exchange does not use what is there."""
        mark = _mark_of(access.buffer)
        if mark is None or tt.is_exchange(access.op) or self._is_marked_nowhere(access.buffer):
            return
        self._look_for_marks(access, mark)

    def _is_marked_nowhere(self, buffer: Buffer) -> bool:
        """Whether a small tensor, such as a lock, had no mark at its first access: none appear."""
        found = self._unmarked.get(buffer)
        if found is None:
            is_small = buffer.tensor.numel() <= _FEW_ELEMS
            where = marked(buffer.tensor) if is_small else None
            found = self._unmarked[buffer] = where is not None and not bool(where.any())
        return found

    def _look_for_marks(self, access: ObservedAccess, mark: int) -> None:
        buffer, touched = access.buffer, access.touch()
        memory = buffer.flat(buffer.tensor.dtype).view(bits_type(buffer.itemsize))
        unwritten = (memory[touched.places] == mark).nonzero().reshape(-1)
        if unwritten.numel():
            offender = self._faults.offender(buffer, touched, int(unwritten[0]))
            self._faults.unwritten(access.op, buffer, offender, int(unwritten.numel()))

    def _look_at_narrow(self, access: ObservedAccess) -> None:
        """Report a load of unwritten narrow integers, of a tensor the kernel does not write."""
        buffer = access.buffer
        is_cast = buffer.itemsize != buffer.tensor.element_size()
        if is_cast or self._may_be_written(buffer) or not is_used(access.op):
            return
        if buffer not in self._narrow:
            storage = buffer.tensor.untyped_storage()
            places = NARROW_PATTERNS.marked_places(storage, buffer.itemsize)
            self._narrow[buffer] = places if places is not None and bool(places.any()) else None
        unwritten = self._narrow[buffer]
        if unwritten is None or access.loaded is None:
            return
        touched = access.touch()
        found = unwritten[touched.places].nonzero().reshape(-1)
        if found.numel():
            offender = self._faults.offender(buffer, touched, int(found[0]))
            self._faults.unwritten(access.op, buffer, offender, int(found.numel()))

    def _may_be_written(self, buffer: Buffer) -> bool:
        return self._written is None or buffer.storage_key in self._written

    def _has_no_marks(self, buffer: Buffer, count: int) -> bool:
        """Whether a tensor that the kernel does not write is known to have no marks.

        All of it is looked at once, when as many elements were read as it has, with `count` now:
        most tensors of a matmul are read many times over.
        """
        seen = self._read_elems.get(buffer, 0)
        if seen is None:
            return True
        if self._may_be_written(buffer):
            return False
        if seen <= buffer.hull_elems <= seen + count:
            first, dtype = buffer.storage_offset, buffer.tensor.dtype
            whole = buffer.flat(dtype)[first : first + buffer.hull_elems]
            if not _has_mark(whole, dtype, MARKS[dtype]):
                self._read_elems[buffer] = None
                return True
        self._read_elems[buffer] = seen + count
        return False


def is_used(load: Operation) -> bool:
    """Whether a load's result is used: a compiler drops a load whose result is not."""
    seen, left = {load}, [load]
    while left:
        for value in left.pop().results:
            for user in value.uses:
                if OPS[user.name].effects or user.regions:
                    return True
                if user not in seen:
                    seen.add(user)
                    left.append(user)
    return False


def _mark_of(buffer: Buffer) -> int | None:
    """Return the mark of a buffer's elements; None if they have none, or another item size."""
    is_cast = buffer.itemsize != buffer.tensor.element_size()
    return None if is_cast else MARKS.get(buffer.tensor.dtype)


def _has_mark(values: Tensor, dtype: torch.dtype, mark: int) -> bool:
    """Whether an element of `values`, read from a tensor of `dtype`, has the bits of its mark."""
    if not values.numel():
        return False
    bits = values.view(bits_type(values.element_size()))
    # A sum or a range is many times as fast as a comparison of each.
    if dtype.is_floating_point:
        may_have = may_have_nan(values.view(dtype))
    else:
        low, high = bits.aminmax()
        may_have = int(low) <= mark <= int(high)
    return may_have and bool((bits == mark).any())
