# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""Attributes of torch that the stand-in replaces, and puts back.

Putting them back leaves torch exactly as it was. Nobody listens to calls of CUDA's profilers on the
CPU; torch's own profilers run, without a device to time. If a script asks for nccl, gloo does the
work of its collectives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
import torch.autograd.profiler
import torch.cuda.profiler
import torch.distributed
from torch import Tensor

from tkdebug.compat.cuda_standin import streams
from tkdebug.compat.cuda_standin.compiling import compile_for_stand_in
from tkdebug.compat.cuda_standin.cuda_module import TORCH_ACCELERATOR, TORCH_CUDA
from tkdebug.compat.cuda_standin.device import mem_get_info
from tkdebug.compat.cuda_standin.generators import GENERATOR, Generator
from tkdebug.compat.cuda_standin.gpu_alerts import report_wait
from tkdebug.compat.cuda_standin.tensors import host, is_cuda_device, new_storage, resize
from tkdebug.compat.cuda_standin.torch_internals import share_timers
from tkdebug.compat.replacements import Replacements
from tkdebug.runtime.launch.graph_capture import capture_in_force
from tkdebug.terminal.text import tell

_CUDA_VERSION = "12.8"


def apply(patches: Replacements) -> None:
    """Put every replacement in place."""
    _patch_modules(patches)
    _patch_libraries(patches)
    _patch_default_tensor_type(patches)
    _patch_storages(patches)
    _patch_lists(patches)
    _patch_backward(patches)
    _patch_profilers(patches)
    _patch_collectives(patches)
    compile_for_stand_in(patches)


def _another(value: Any) -> Any:
    """Return a copy of a function: torch's compiler has a table by function, without duplicates."""
    if not isinstance(value, FunctionType):
        return value

    @functools.wraps(value)
    def same(*arguments: Any, **keywords: Any) -> Any:
        return value(*arguments, **keywords)

    return same


def _current_raw_stream(device: int) -> int:
    return int(streams.current_stream(device).cuda_stream)


def _empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _patch_modules(patches: Replacements) -> None:
    for name, value in TORCH_CUDA.items():
        if hasattr(torch.cuda, name):
            patches.set(torch.cuda, name, value)
    patches.set(torch.cuda, "default_generators", (GENERATOR,))
    for submodule in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
        for name, value in TORCH_CUDA.items():
            if name in vars(submodule) and name != "device":
                patches.set(submodule, name, value)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        for name, value in TORCH_ACCELERATOR.items():
            if hasattr(accelerator, name):
                patches.set(accelerator, name, _another(value))
    # Code that torch.compile generated, and was saved, allocates and launches by them.
    patches.set(torch._C, "_cuda_getCurrentRawStream", _current_raw_stream)
    patches.set(torch._C._dynamo.guards, "_empty_strided_cuda", _empty_strided)
    patches.set(torch, "Generator", Generator)
    patches.set(torch, "Stream", streams.Stream)
    patches.set(torch, "Event", streams.Event)
    patches.set(torch.version, "cuda", torch.version.cuda or _CUDA_VERSION)
    convert = Tensor.type

    @functools.wraps(convert)
    def to_type(self: Tensor, dtype: Any = None, *arguments: Any, **keywords: Any) -> Any:
        # C++ code knows the legacy types of a build for CUDA alone.
        if isinstance(dtype, type) and dtype.__module__ == "torch.cuda":
            dtype = f"torch.cuda.{dtype.__name__}"
        return convert(self, dtype, *arguments, **keywords)

    patches.set(Tensor, "type", to_type)
    # Its argument is refused for not being torch's own stream type before a kernel would see it.
    patches.set(Tensor, "record_stream", lambda tensor, stream: None)


def _scatter(tensor: Tensor, devices: Any, *arguments: Any) -> tuple[Tensor, ...]:
    return (tensor.cuda(),)


def _gather(tensors: Any, dim: int, destination: int | None = None) -> Tensor:
    whole = torch.cat(tuple(tensors), dim)
    return whole.cpu() if destination == _TO_THE_CPU else whole


def _broadcast(tensor: Tensor, devices: Any) -> tuple[Tensor, ...]:
    return tuple(tensor.cuda(device) for device in devices)


def _broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int) -> list[list[Tensor]]:
    return [[tensor.cuda(device) for tensor in tensors] for device in devices]


# As `torch.nn.parallel.comm` numbers devices.
_TO_THE_CPU = -1
# For DataParallel, over the one device.
_OF_ONE_DEVICE = {
    "_scatter": _scatter,
    "_gather": _gather,
    "_broadcast": _broadcast,
    "_broadcast_coalesced": _broadcast_coalesced,
}


def _patch_libraries(patches: Replacements) -> None:
    for name in ("preferred_linalg_library", "preferred_blas_library"):
        chosen = vars(torch.backends.cuda).get(name)
        if chosen is not None:
            # The CPU's libraries are the only ones.
            patches.set(torch.backends.cuda, name, lambda backend=None, chosen=chosen: chosen())
    # In a build with CUDA, cuDNN would take the weights of recurrent layers.
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    for name, function in _OF_ONE_DEVICE.items():
        patches.set(torch._C, name, function)


def _patch_default_tensor_type(patches: Replacements) -> None:
    set_type = torch.set_default_tensor_type

    @functools.wraps(set_type)
    def set_default_tensor_type(t: Any, /) -> None:
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        on_cuda = name.startswith("torch.cuda.")
        set_type(name.replace("torch.cuda.", "torch."))
        torch.set_default_device("cuda" if on_cuda else None)

    patches.set(torch, "set_default_tensor_type", set_default_tensor_type)


def _patch_storages(patches: Replacements) -> None:
    """Have CUDA storages, which saving and loading use, made and resized here."""
    make = torch.UntypedStorage.__new__

    def new(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if is_cuda_device(keywords.get("device")):
            size = arguments[0] if arguments else keywords.get("size", 0)
            if isinstance(size, int):
                return new_storage(size)
            keywords["device"] = "cpu"
            return make(cls, *arguments, **keywords).cuda()
        return make(cls, *arguments, **keywords)

    patches.set(torch.UntypedStorage, "__new__", staticmethod(new))
    resize_elsewhere = torch.UntypedStorage.resize_

    def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if not self.is_cuda:
            resize_elsewhere(self, size)
            return self
        resize(self, size)
        return self

    patches.set(torch.UntypedStorage, "resize_", resize_)


def _patch_lists(patches: Replacements) -> None:
    """Have `tolist` read the host's memory in place; torch would copy the tensor first."""
    to_list = Tensor.tolist
    modes, dispatch_modes = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack

    @functools.wraps(to_list)
    def tolist(self: Tensor) -> Any:
        is_plain = type(self) is Tensor and self.is_cuda and capture_in_force() is None
        if not is_plain or modes() or dispatch_modes():
            return to_list(self)
        try:
            self.untyped_storage()
        except NotImplementedError:
            # A sparse tensor, or one that a transform of functions sees.
            return to_list(self)
        report_wait()
        return to_list(host(self))

    patches.set(Tensor, "tolist", tolist)


def _patch_backward(patches: Replacements) -> None:
    """Have backward passes run in the thread that asks for them.

    Autograd's own threads, one a device, are started with its first pass, which may have been
    before the stand-in; they do not know that a graph is being captured.
    """
    run = torch.autograd.graph._engine_run_backward

    @functools.wraps(run)
    def run_backward(*arguments: Any, **keywords: Any) -> Any:
        with torch.autograd.set_multithreading_enabled(False):
            return run(*arguments, **keywords)

    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn is not None:
        # Streams of the stand-in have no numbers in C++ code.
        warn(False)
        patches.on_restore(lambda: warn(True))
    for owner in (torch.autograd, torch.autograd.graph):
        if "_engine_run_backward" in vars(owner):
            patches.set(owner, "_engine_run_backward", run_backward)


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


def _patch_profilers(patches: Replacements) -> None:
    """Replace the calls of CUDA's profilers, and have torch's profiler time no device."""
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


def _patch_collectives(patches: Replacements) -> None:
    """Have gloo do the work of collectives if a script asks for nccl."""
    if hasattr(torch.cuda, "nccl"):
        patches.set(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return
    from torch.distributed import distributed_c10d

    patches.on_restore(share_timers())
    logger = getattr(torch.distributed, "Logger", None)
    if logger is not None:
        # The times of a gradient reducer, which a build without CUDA takes none of.
        patches.set(logger, "set_runtime_stats_and_log", lambda self: None)

    for name in ("init_process_group", "new_group"):
        replacement = _over_gloo(getattr(distributed_c10d, name))
        for owner in (distributed_c10d, torch.distributed):
            patches.set(owner, name, replacement)
    for owner in (distributed_c10d, torch.distributed):
        patches.set(owner, "is_nccl_available", lambda: True)


def _over_gloo(original: Callable[..., Any]) -> Callable[..., Any]:
    place = 0 if original.__name__ == "init_process_group" else 2

    @functools.wraps(original)
    def make_group(*arguments: Any, **keywords: Any) -> Any:
        given = list(arguments)
        backend = given[place] if len(given) > place else keywords.get("backend")
        if isinstance(backend, str) and "nccl" in backend.lower():
            _say_once()
            if len(given) > place:
                given[place] = "gloo"
            else:
                keywords["backend"] = "gloo"
            keywords.pop("pg_options", None)
        # It would make the group wait for a CUDA device.
        keywords.pop("device_id", None)
        return original(*given, **keywords)

    return make_group


@functools.cache
def _say_once() -> None:
    tell("nccl is replaced by gloo, because 'cuda' runs on the CPU here")
