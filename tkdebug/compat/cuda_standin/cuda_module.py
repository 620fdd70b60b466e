"""The functions and classes that replace those in `torch.cuda` and `torch.accelerator`.

Nothing here touches torch; `patches` puts `TORCH_CUDA` and `TORCH_ACCELERATOR` in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import torch

from tkdebug.compat.cuda_standin import graphs, streams
from tkdebug.compat.cuda_standin.device import (
    CAPABILITY,
    MEMORY,
    PROPERTIES,
    DeviceProperties,
    mem_get_info,
)
from tkdebug.compat.cuda_standin.generators import GENERATOR
from tkdebug.compat.cuda_standin.gpu_alerts import get_sync_debug_mode, set_sync_debug_mode
from tkdebug.compat.cuda_standin.tensors import announce, is_cuda_device
from tkdebug.runtime.launch.graph_capture import refuse_while_capturing


def _checked(device: object) -> None:
    if isinstance(device, DeviceScope) and device.idx == 0:
        return
    if device is not None and not is_cuda_device(device):
        raise ValueError(f"Expected a cuda device, but got: {device}")


def _nothing(*arguments: Any, **keywords: Any) -> None:
    return None


def _always(value: Any) -> Callable[..., Any]:
    def answer(*arguments: Any, **keywords: Any) -> Any:
        return value

    return answer


def set_device(device: object) -> None:
    """Accept the one device; raise for another index."""
    _checked(device)
    announce()


def get_device_properties(device: object = None) -> DeviceProperties:
    """The H200's record."""
    _checked(device)
    announce()
    return PROPERTIES


def get_device_capability(device: object = None) -> tuple[int, int]:
    """Compute capability, (9, 0)."""
    _checked(device)
    return CAPABILITY


def get_device_name(device: object = None) -> str:
    """The record's name."""
    _checked(device)
    return PROPERTIES.name


def manual_seed(seed: int) -> None:
    """Seed the device's generator."""
    GENERATOR.manual_seed(int(seed))


def get_rng_state(device: object = None) -> torch.Tensor:
    """State of the device's generator: a seed and an offset."""
    return GENERATOR.get_state()


def set_rng_state(new_state: torch.Tensor, device: object = None) -> None:
    """Set the state of the device's generator."""
    GENERATOR.set_state(new_state)


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Set the one device's state."""
    for state in new_states:
        set_rng_state(state)


class DeviceScope:
    """Replaces `torch.cuda.device(0)`; there is nothing to switch."""

    def __init__(self, device: object = None) -> None:
        _checked(device)
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> DeviceScope:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class DeviceOf(DeviceScope):
    """The stand-in's `torch.cuda.device_of(tensor)`."""

    def __init__(self, obj: Any) -> None:
        super().__init__(None)
        self.idx = 0 if obj.is_cuda else -1


class _LegacyType(type):
    """Makes `isinstance(x, torch.cuda.FloatTensor)` ask for dtype and device."""

    dtype: torch.dtype

    def __instancecheck__(cls, value: object) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        return value.is_cuda and value.dtype == cls.dtype

    def __call__(cls, *arguments: Any, **keywords: Any) -> torch.Tensor:
        if len(arguments) == 1 and not isinstance(arguments[0], int):
            return torch.tensor(arguments[0], dtype=cls.dtype, device="cuda")
        return torch.empty(arguments, dtype=cls.dtype, device="cuda")


_LEGACY_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}
LEGACY_TENSORS: Mapping[str, type] = {
    name: _LegacyType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
    for name, dtype in _LEGACY_DTYPES.items()
}


def _synchronize(device: object = None) -> None:
    _checked(device)
    announce()
    refuse_while_capturing("the host waits for the device", "synchronize after the replay")


TORCH_CUDA: Mapping[str, Any] = {
    **MEMORY,
    **LEGACY_TENSORS,
    "is_available": _always(True),
    "is_initialized": _always(True),
    "init": _nothing,
    "_lazy_init": announce,
    "_initialized": True,
    "_lazy_call": lambda function, **keywords: function(),
    "device_count": _always(1),
    "_device_count_nvml": _always(1),
    "current_device": _always(0),
    "set_device": set_device,
    "_exchange_device": _always(0),
    "_maybe_exchange_device": _always(0),
    "device": DeviceScope,
    "device_of": DeviceOf,
    "get_device_properties": get_device_properties,
    "get_device_capability": get_device_capability,
    "get_device_name": get_device_name,
    "get_arch_list": lambda: ["sm_90"],
    "get_gencode_flags": _always("-gencode compute=compute_90,code=sm_90"),
    "can_device_access_peer": _always(False),
    "is_bf16_supported": _always(True),
    "is_tf32_supported": _always(True),
    "synchronize": _synchronize,
    "ipc_collect": _nothing,
    "clock_rate": _always(PROPERTIES.clock_rate // 1000),
    "utilization": _always(0),
    "temperature": _always(0),
    "power_draw": _always(0),
    "set_sync_debug_mode": set_sync_debug_mode,
    "get_sync_debug_mode": get_sync_debug_mode,
    "_sleep": _nothing,
    "_is_compiled": _always(True),
    "Stream": streams.Stream,
    "ExternalStream": streams.ExternalStream,
    "Event": streams.Event,
    "StreamContext": streams.StreamContext,
    "stream": streams.StreamContext,
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "set_stream": streams.set_stream,
    "get_stream_from_external": streams.ExternalStream,
    "is_current_stream_capturing": graphs.is_current_stream_capturing,
    "CUDAGraph": graphs.CudaGraph,
    "graph": graphs.GraphScope,
    "graph_pool_handle": graphs.graph_pool_handle,
    "manual_seed": manual_seed,
    "manual_seed_all": manual_seed,
    "seed": GENERATOR.seed,
    "seed_all": GENERATOR.seed,
    "initial_seed": GENERATOR.initial_seed,
    "get_rng_state": get_rng_state,
    "get_rng_state_all": lambda: [get_rng_state()],
    "set_rng_state": set_rng_state,
    "set_rng_state_all": set_rng_state_all,
    "_is_in_bad_fork": _always(False),
}
TORCH_ACCELERATOR: Mapping[str, Any] = {
    **MEMORY,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "is_available": _always(True),
    "device_count": _always(1),
    "current_device_index": _always(0),
    "current_device_idx": _always(0),
    "set_device_index": set_device,
    "set_device_idx": set_device,
    "device_index": DeviceScope,
    "current_stream": streams.current_stream,
    "set_stream": streams.set_stream,
    "synchronize": _synchronize,
    "get_memory_info": mem_get_info,
    "empty_host_cache": _nothing,
}
