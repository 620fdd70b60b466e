"""The stand-in's CUDA device: its properties, the account of its memory, and `torch.cuda.memory`.

It is one H200, as torch's properties record has it. The numbers are a real device's, so that
scripts which size their launches by them (programs per multiprocessor, shared memory per block)
take the same branch as on a GPU.

Storages that count as CUDA's are counted, in bytes rounded up as CUDA's allocator does. A GPU
differs by its libraries' memory, and by memory that never reaches Python.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

CAPABILITY = (9, 0)
# CUDA's caching allocator gives out multiples of these, and takes multiples of those.
_BLOCK_BYTES = 512
_SEGMENT_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The fields of torch's `_CudaDeviceProperties`; sizes in bytes, rates in kHz."""

    name: str = "NVIDIA H200"
    major: int = CAPABILITY[0]
    minor: int = CAPABILITY[1]
    total_memory: int = 150_110_011_392
    multi_processor_count: int = 132
    warp_size: int = 32
    max_threads_per_block: int = 1024
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_block_optin: int = 232448
    shared_memory_per_multiprocessor: int = 233472
    L2_cache_size: int = 62914560
    clock_rate: int = 1_980_000
    memory_clock_rate: int = 3_201_000
    memory_bus_width: int = 6144
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    uuid: str = "00000000-0000-0000-0000-000000000000"

    @property
    def gcnArchName(self) -> str:
        """The name of the device, which torch's builds for CUDA return here, too."""
        return self.name

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, "
            f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )


PROPERTIES = DeviceProperties()


@dataclass(slots=True)
class _Account:
    """Bytes in use, in this process.

    They are changed by single statements, which no other thread or finaliser can interrupt.
    """

    current: int = 0
    peak: int = 0
    allocated: int = 0
    # The most in use since the cache was last emptied: the allocator keeps that much.
    kept: int = 0


_ACCOUNT = _Account()


class Allocation:
    """An entry in the account for as long as the object lives."""

    __slots__ = ("_size_bytes",)

    def __init__(self, size_bytes: int) -> None:
        size_bytes = -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
        self._size_bytes = size_bytes
        account = _ACCOUNT
        account.current += size_bytes
        account.allocated += size_bytes
        if account.current > account.peak:
            account.peak = account.current
        if account.current > account.kept:
            account.kept = account.current

    def __del__(self) -> None:
        _ACCOUNT.current -= self._size_bytes


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch says that the host has not enough memory."""
    return "can't allocate memory" in str(error)


def out_of_memory(error: RuntimeError) -> RuntimeError:
    """Return CUDA's out-of-memory error with the first line of the host's error."""
    return torch.cuda.OutOfMemoryError(f"CUDA out of memory. {str(error).splitlines()[0]}")


def host_memory_free_bytes() -> int:
    """Return the bytes that the host can still give; the device's memory lies there."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return PROPERTIES.total_memory


def mem_get_info(device: object = None) -> tuple[int, int]:
    """Return the free bytes, as far as the host has them, and the total bytes of the device."""
    return min(host_memory_free_bytes(), PROPERTIES.total_memory), PROPERTIES.total_memory


def memory_allocated(device: object = None) -> int:
    """Bytes in use."""
    return _ACCOUNT.current


def max_memory_allocated(device: object = None) -> int:
    """The most bytes in use since `reset_peak_memory_stats`."""
    return _ACCOUNT.peak


def memory_reserved(device: object = None) -> int:
    """Bytes that CUDA's allocator would hold on to."""
    return -(-_ACCOUNT.kept // _SEGMENT_BYTES) * _SEGMENT_BYTES


def reset_peak_memory_stats(device: object = None) -> None:
    """Reset the peak."""
    _ACCOUNT.peak = _ACCOUNT.current


def empty_cache() -> None:
    """Set the reserved bytes to the bytes in use."""
    _ACCOUNT.kept = _ACCOUNT.current


def memory_stats(device: object = None) -> dict[str, Any]:
    """The figures above by torch's names; others are 0."""
    stats: dict[str, Any] = defaultdict(int)
    current, peak, allocated = _ACCOUNT.current, _ACCOUNT.peak, _ACCOUNT.allocated
    for kind in ("allocated_bytes", "active_bytes", "requested_bytes"):
        stats[f"{kind}.all.current"] = current
        stats[f"{kind}.all.peak"] = peak
        stats[f"{kind}.all.allocated"] = allocated
        stats[f"{kind}.all.freed"] = allocated - current
    for moment in ("current", "peak"):
        stats[f"reserved_bytes.all.{moment}"] = memory_reserved()
    return stats


def memory_summary(device: object = None, abbreviated: bool = False) -> str:
    """Return a line of text with the bytes in use, their peak, and the reserved bytes."""
    return (
        f"CUDA memory, where 'cuda' runs on the CPU: {_ACCOUNT.current} bytes in use, "
        f"{_ACCOUNT.peak} at most, {memory_reserved()} reserved"
    )


_given_out: dict[int, torch.Tensor] = {}


def caching_allocator_alloc(size: int, device: object = None, stream: object = None) -> int:
    """Allocate `size` bytes, and return their address."""
    memory = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
    address = memory.data_ptr()
    _given_out[address] = memory
    return address


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what `caching_allocator_alloc` gave."""
    _given_out.pop(mem_ptr, None)


class MemPool:
    """Replaces `torch.cuda.MemPool`: a name, as there is one memory."""

    _numbers = itertools.count(1)

    def __init__(self, allocator: object = None, **options: Any) -> None:
        self.id = (0, next(self._numbers))
        self.allocator = allocator

    def use_count(self) -> int:
        """Number of holders of the pool, always 1."""
        return 1

    def snapshot(self, include_traces: bool = True) -> list[Any]:
        """Return an empty list, as the pool has no segments."""
        return []


@contextmanager
def use_mem_pool(pool: MemPool, device: object = None) -> Iterator[None]:
    """Change nothing in the `with` block: there is only one memory."""
    yield


def _snapshot(device: object = None, **options: Any) -> dict[str, Any]:
    return {"segments": [], "device_traces": [[]], "allocator_settings": {}}


def _nothing(*arguments: Any, **keywords: Any) -> None:
    return None


def _zero(*arguments: Any, **keywords: Any) -> int:
    return 0


_NOTHINGS = (
    "reset_accumulated_memory_stats set_per_process_memory_fraction caching_allocator_enable "
    "reset_peak_host_memory_stats reset_accumulated_host_memory_stats _record_memory_history"
)
MEMORY: Mapping[str, Callable[..., Any] | type] = {
    **{name: _nothing for name in _NOTHINGS.split()},
    "empty_cache": empty_cache,
    "memory_allocated": memory_allocated,
    "max_memory_allocated": max_memory_allocated,
    "memory_reserved": memory_reserved,
    "max_memory_reserved": memory_reserved,
    "memory_cached": memory_reserved,
    "max_memory_cached": memory_reserved,
    "device_memory_used": memory_reserved,
    "reset_peak_memory_stats": reset_peak_memory_stats,
    "reset_max_memory_allocated": reset_peak_memory_stats,
    "reset_max_memory_cached": reset_peak_memory_stats,
    "memory_stats": memory_stats,
    "memory_stats_as_nested_dict": lambda device=None: {},
    "host_memory_stats": lambda: defaultdict(int),
    "host_memory_stats_as_nested_dict": lambda: {},
    "memory_snapshot": lambda *arguments, **keywords: [],
    "memory_summary": memory_summary,
    "mem_get_info": mem_get_info,
    "get_per_process_memory_fraction": lambda device=None: 1.0,
    "get_allocator_backend": lambda: "native",
    "caching_allocator_alloc": caching_allocator_alloc,
    "caching_allocator_delete": caching_allocator_delete,
    "MemPool": MemPool,
    "use_mem_pool": use_mem_pool,
    "_snapshot": _snapshot,
    "memory_usage": _zero,
}
