"""A checked native launch, as far as faults depend on it: its arguments and its grid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

from tkdebug.compiler.sites.live_memory import AddressRange
from tkdebug.compiler.sites.table import hull_elems
from tkdebug.interpreter.memory.address_registry import ADDRESSES
from tkdebug.interpreter.memory.buffers import Buffer

if TYPE_CHECKING:
    from tkdebug.interpreter.fault_log import FaultLog


class PassedTensor(NamedTuple):
    """A tensor as a launch got it; it keeps no memory alive.

    Attributes:
        address: the address of its first element.
        shape: its extents.
        strides: the strides in elements.
        dtype: the dtype of its elements.
        storage_offset: the place of the first element in the allocation, in elements.
        storage_bytes: the size of the allocation.
        described: shape and strides that a descriptor of it was given; None if none was passed.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    storage_offset: int
    storage_bytes: int
    described: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @staticmethod
    def of(
        tensor: torch.Tensor, described: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    ) -> PassedTensor:
        """Return the facts of `tensor` that need no look at its elements.

        A tensor whose storage was resized to 0 has no elements.
        """
        size_bytes = tensor.untyped_storage().nbytes()
        # It is not the script that asks for the address, so that the registry need not note it.
        is_plain = tensor.__class__ is torch.Tensor
        address = torch._C.TensorBase.data_ptr(tensor) if is_plain else tensor.data_ptr()  # noqa: SLF001
        if not size_bytes and tensor.numel():
            return PassedTensor(address, (0,), (1,), tensor.dtype, 0, 0, described)
        shape, strides, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        return PassedTensor(address, shape, strides, tensor.dtype, offset, size_bytes, described)

    @property
    def storage(self) -> AddressRange:
        """The address range of the tensor's allocation."""
        first = self.address - self.storage_offset * self.dtype.itemsize
        return AddressRange(first, first + self.storage_bytes)

    def byte_bounds(self) -> tuple[int, int]:
        """Return the address of its first byte, and the one after its last; (0, 0) without any."""
        if not self.address:
            # It has no elements, or its storage was resized to 0.
            return 0, 0
        size = self.dtype.itemsize
        behind = self.storage_bytes // size - self.storage_offset
        elements = hull_elems(self.shape, self.strides, behind)
        return self.address, self.address + size * elements

    @property
    def has_gaps(self) -> bool:
        """Whether memory from its first to its last element may have other elements in between."""
        each = zip(self.strides, self.shape, strict=True)
        dims = [(stride, size) for stride, size in each if size != 1]
        if 0 in self.shape or any(stride == 0 for stride, _ in dims):
            return False
        expected = 1
        for stride, size in sorted(dims):
            if stride != expected:
                return True
            expected *= size
        return False

    def buffer(self, name: str | None) -> Buffer:
        """Make a buffer of the memory that may be touched through it; it has no contents."""
        whole = torch.empty(self.storage_bytes, dtype=torch.uint8, device="meta")
        count = self.storage_bytes // self.dtype.itemsize
        elements = whole[: count * self.dtype.itemsize].view(self.dtype)
        view = elements.as_strided(self.shape, self.strides, self.storage_offset)
        buffer = Buffer(view, name)
        buffer.address = self.address
        return buffer


@dataclass(frozen=True, slots=True)
class ReportedLaunch:
    """A launch whose reports are read.

    Attributes:
        kernel: the kernel's name in faults.
        launch_id: the launch's number in its process.
        grid: programs along x, y, z.
        tensors: the passed tensors, by the parameter's name, as `CheckPlan.bounds` has it.
        arguments: the kernel's arguments by name, constants too; for hints.
        known: other tensors, whose addresses were read.
        freed_at: names the freed tensor that an address led to.
    """

    kernel: str
    launch_id: int
    grid: tuple[int, int, int]
    tensors: Mapping[str, PassedTensor]
    arguments: Mapping[str, object] = field(default_factory=dict)
    known: Sequence[PassedTensor] = ()
    freed_at: Callable[[int], str | None] = ADDRESSES.freed_at

    def log(self) -> FaultLog:
        """Return an empty log for the launch's faults, which does not pass them to the hooks."""
        # Launches without a fault need no texts of faults.
        from tkdebug.interpreter.fault_log import FaultLog

        log = FaultLog(self.kernel, self.launch_id, self.grid, False, self.arguments)
        log.freed_at = self.freed_at
        return log

    def buffer_at(self, address: int, itemsize: int) -> Buffer | None:
        """Return the tensor at an address, in elements of `itemsize` bytes; None if unknown."""
        named = [tensor.buffer(name) for name, tensor in self.tensors.items()]
        known = [*named, *(tensor.buffer(None) for tensor in self.known)]
        for buffer in sorted(known, key=lambda buffer: -buffer.hull_elems):
            found = buffer.reinterpreted(itemsize)
            offset = address - buffer.address
            if 0 <= offset < found.hull_elems * itemsize and offset % itemsize == 0:
                return found
        return None

    @property
    def facts(self) -> Hashable:
        """Return all that offsets, masks and faults depend on, except loaded values."""
        tensors = ((name, one._replace(address=0)) for name, one in self.tensors.items())
        numbers = ((name, repr(value)) for name, value in self.arguments.items())
        return self.kernel, self.grid, tuple(tensors), tuple(numbers)
