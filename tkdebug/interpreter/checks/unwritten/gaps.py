"""Gaps that launches left in fresh tensors, kept until something reads them.

Scratch memory has gaps by design: partial sums of a ragged split, rows up to the next multiple. A
gap is reported when something reads it, a later launch or torch; or at the end of the script, for a
tensor that still exists and that nothing has read at all. A tensor that was freed cannot be read.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tkdebug.compiler.ir.location import SourceLocation
from tkdebug.findings.reporting import report
from tkdebug.interpreter.checks.unwritten.patterns import marked
from tkdebug.records.events import Fault

_FEW_ALLOCATIONS = 64


@dataclass(slots=True)
class Gap:
    """A fault that is held back.

    Attributes:
        view: the tensor as it was passed, without holding on to it: shape, strides, offset, dtype.
        is_used: whether the end of the script need not report it: something read or copied the
            tensor, or only reads of gaps count.
        is_read: whether something has read any of the tensor; a copy is no read.
        made_by: the function that computed the tensor from one with gaps; "" for plain copies.
    """

    fault: Fault
    storage: weakref.ref[torch.UntypedStorage]
    view: tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype]
    is_used: bool = False
    is_reported: bool = False
    is_read: bool = False
    made_by: str = ""

    def tensor(self) -> Tensor | None:
        """Return the tensor; None if it is freed."""
        storage = self.storage()
        if storage is None:
            return None
        shape, strides, offset, dtype = self.view
        made = torch.empty(0, dtype=dtype, device=storage.device)
        return made.set_(storage, offset, shape, strides)


class HeldGaps:
    """All faults that are held back, by the address of the allocation."""

    def __init__(self) -> None:
        self._gaps: dict[int, list[Gap]] = {}
        # How many allocations there are before those that are gone are forgotten.
        self._most = _FEW_ALLOCATIONS
        self._ends_with_script = False
        self._is_aside = False

    def __bool__(self) -> bool:
        return bool(self._gaps) and not self._is_aside

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Ignore gaps in the context, so that a debugger's reads do not count as the script's."""
        before, self._is_aside = self._is_aside, True
        try:
            yield
        finally:
            self._is_aside = before

    def allocations(self) -> frozenset[int]:
        """Return the addresses of the allocations that have, or had, gaps."""
        return frozenset(self._gaps)

    def hold(self, tensor: Tensor, fault: Fault, has_to_be_read: bool = False) -> None:
        """Hold back a fault of `tensor`; with `has_to_be_read`, for good unless a gap is read."""
        if not self._ends_with_script:
            self._ends_with_script = True
            # `tkdebug run` calls what the script's process has registered when the script ends.
            atexit.register(self.end)
        storage = tensor.untyped_storage()
        view = (tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype)
        found = self._gaps.setdefault(storage.data_ptr(), [])
        found.append(Gap(fault, weakref.ref(storage), view, is_used=has_to_be_read))

    def has(self, tensor: Tensor) -> bool:
        """Whether a launch left gaps in the allocation that the tensor is in."""
        return bool(self._of(tensor))

    def copied(self, source: Tensor, copy: Tensor, made_by: str = "") -> None:
        """Give the gaps of `source` to its copy, or to a result computed from it by `made_by`."""
        for gap in self._of(source):
            gap.is_used = True
            if not gap.is_reported and copy.numel() and _has_gap(copy):
                self._add_copy(gap, copy, made_by or gap.made_by)

    def _add_copy(self, gap: Gap, copy: Tensor, made_by: str) -> None:
        storage = copy.untyped_storage()
        view = (tuple(copy.shape), copy.stride(), int(copy.storage_offset()), copy.dtype)
        if len(self._gaps) >= self._most:
            self._forget_the_gone()
        held = self._gaps.setdefault(storage.data_ptr(), [])
        held[:] = [each for each in held if each.fault is not gap.fault or each.storage()]
        reference = weakref.ref(storage)
        held.append(Gap(gap.fault, reference, view, is_used=True, made_by=made_by))

    def _forget_the_gone(self) -> None:
        """Drop freed allocations: a loop makes copies in new places again and again."""
        for key, gaps in tuple(self._gaps.items()):
            if not any(gap.storage() is not None for gap in gaps):
                del self._gaps[key]
        self._most = max(_FEW_ALLOCATIONS, 2 * len(self._gaps))

    def read(
        self, tensor: Tensor, made: Sequence[Tensor], reader: str, may_move: bool = True
    ) -> None:
        """Note that `reader` read `tensor`, which may have gaps, and computed `made` from it.

        A gap is dropped (`torch.where`, `tril`) if results could show it, as NaNs, and do not. It
        is moved if results have it unchanged, unless `may_move` is False (as for `max`).
        """
        gaps = self._of(tensor)
        shows = [each for each in made if each.dtype.is_floating_point]
        if not gaps or not tensor.dtype.is_floating_point or not shows:
            self.read_of(gaps, tensor, reader)
        elif any(has_nan(each) if may_move else bool(each.isnan().any()) for each in shows):
            self.read_of(gaps, tensor, reader)
        else:
            for each in shows:
                self.copied(tensor, each)
            for gap in gaps:
                gap.is_used = gap.is_read = True

    def read_of(self, gaps: Sequence[Gap], part: Tensor, reader: str) -> None:
        """Note that `reader` read `part` of memory with `gaps`; report if it has a gap itself."""
        matters = bool(gaps) and _has_gap(part)
        for gap in gaps:
            gap.is_used = gap.is_read = True
            if matters:
                self._tell(gap, f"{reader} reads some of them")

    def handed_out(self, tensor: Tensor) -> None:
        """Report gaps in a computed tensor whose memory is handed to other code."""
        for gap in self._of(tensor):
            if gap.made_by and _has_gap(tensor):
                self._tell(gap, f"{gap.made_by} reads some of them")

    def saved(self, tensor: Tensor) -> None:
        """Report that a tensor is saved with gaps, unless something has read it before."""
        for gap in self._of(tensor):
            if not gap.is_read and _has_gap(tensor):
                self._tell(gap, "torch's `save` writes some of them to a file")

    def at(self, address: int) -> list[Gap]:
        """Return the gaps of the allocation that an address is in."""
        for start, gaps in list(self._gaps.items()):
            # Gaps of an allocation that is gone may be listed before those of the one in its place.
            there = [(gap, storage) for gap in gaps if (storage := gap.storage()) is not None]
            if any(0 <= address - start < storage.nbytes() for _, storage in there):
                return [gap for gap, _ in there]
        return []

    def read_gap(self, tensor: Tensor, kernel: str, place: SourceLocation) -> None:
        """Report that a kernel used a gap of the allocation that `tensor` is in."""
        for gap in self._of(tensor):
            frames = gap.fault.frames
            is_same_file = bool(frames) and frames[-1].file == place.file
            where = f"line {place.line}" if is_same_file else f"{place.file}:{place.line}"
            self._tell(gap, f"{kernel} reads some of them at {where}")

    def use(self, tensor: Tensor) -> bool:
        """Note that a launch takes the tensor; return whether it has gaps."""
        gaps = self._of(tensor)
        for gap in gaps:
            gap.is_used = gap.is_read = True
        return bool(gaps)

    def end(self) -> None:
        """Report tensors that still exist, have gaps, and were not used."""
        for gap in [gap for gaps in self._gaps.values() for gap in gaps]:
            tensor = gap.tensor()
            if not gap.is_used and tensor is not None and _has_gap(tensor):
                self._tell(gap)
        self.forget()

    def forget(self) -> None:
        """Drop all gaps unreported: the script does not reach the code that would read them."""
        self._gaps.clear()
        atexit.unregister(self.end)
        self._ends_with_script = False

    def _of(self, tensor: Tensor) -> list[Gap]:
        """Return the gaps of the tensor's allocation, if that is still the same one."""
        key = tensor.untyped_storage().data_ptr()
        gaps = [gap for gap in self._gaps.get(key, ()) if gap.storage() is not None]
        if not gaps:
            self._gaps.pop(key, None)
        return gaps

    def _tell(self, gap: Gap, reader: str = "") -> None:
        if gap.is_reported:
            return
        # Copies share the fault.
        for other in self._with_fault(gap.fault):
            other.is_reported = True
        fault = gap.fault
        report(replace(fault, message=f"{fault.message}; {reader}") if reader else fault)

    def _with_fault(self, fault: Fault) -> Iterator[Gap]:
        return (gap for gaps in self._gaps.values() for gap in gaps if gap.fault is fault)


def _has_gap(tensor: Tensor) -> bool:
    where = marked(tensor)
    return where is not None and bool(where.any())


def has_nan(tensor: Tensor) -> bool:
    """Whether a tensor of floats has a NaN that is no mark of unwritten memory."""
    where = marked(tensor)
    nans = tensor.isnan()
    return bool((nans if where is None else nans & ~where).any())


HELD_GAPS = HeldGaps()
