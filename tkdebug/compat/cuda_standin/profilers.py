"""Calls that scripts make to CUDA's profilers: ranges, switches, and torch's own profilers.

Nobody listens on the CPU; torch's profilers run, without a device to time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.profiler
import torch.cuda.profiler

from tkdebug.compat.cuda_standin.device_memory import mem_get_info

if TYPE_CHECKING:
    from tkdebug.compat.replacements import Replacements


def _zero(*arguments: Any, **keywords: Any) -> int:
    return 0


class RangeMarks:
    """The functions of `torch.cuda.nvtx`; nobody listens."""

    rangePushA = rangePop = rangeStartA = rangeEnd = markA = staticmethod(_zero)
    deviceRangeStart = deviceRangeEnd = staticmethod(_zero)


class CudaRuntime:
    """The result of `torch.cuda.cudart()`: the calls that scripts make around a profiled region."""

    class cudaError:
        """The runtime's status codes."""

        success = 0

    cudaProfilerStart = cudaProfilerStop = staticmethod(_zero)
    cudaMemGetInfo = staticmethod(mem_get_info)
    cudaHostRegister = cudaHostUnregister = staticmethod(_zero)


def check_error(res: int) -> None:
    """Raise on a status other than success, which does not occur."""
    if res:
        raise RuntimeError(f"CUDA error ({res})")


@contextmanager
def emit_nvtx(enabled: bool = True, record_shapes: bool = False) -> Iterator[None]:
    """The stand-in's `torch.autograd.profiler.emit_nvtx`."""
    yield


def apply(patches: Replacements) -> None:
    """Put the replacements in place."""
    patches.set(torch.cuda.nvtx, "_nvtx", RangeMarks())
    for owner in (torch.cuda, torch.cuda.profiler):
        patches.set(owner, "cudart", CudaRuntime)
        patches.set(owner, "check_error", check_error)
    patches.set(torch.autograd.profiler, "emit_nvtx", emit_nvtx)
    profile = torch.autograd.profiler.profile
    patches.set(profile, "__init__", _without_device(profile.__init__))


def _without_device(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def start(self: Any, *arguments: Any, **keywords: Any) -> None:
        # torch would complain of each operation that no CUDA event could be recorded.
        for name in ("use_cuda", "use_device"):
            if keywords.get(name) in (True, "cuda"):
                del keywords[name]
        original(self, *arguments, **keywords)

    return start
