"""The functions and classes that replace those in `torch.cuda` and `torch.accelerator`.

Nothing here touches torch; `patches` puts `TORCH_CUDA` and `TORCH_ACCELERATOR` in place.

CUDA graphs work without a GPU: `torch.cuda.CUDAGraph`, `torch.cuda.graph` and related functions. A
capture runs the work and records it (`capture`); a replay does the recorded steps again on the same
tensors, so that new values which the script has copied into inputs give new values in the outputs.
Values that the host computed during the capture are fixed, as on a GPU.

Launch hooks see launches that are captured, as in native mode, and each that a replay makes,
which native mode does not see. Faults are reported for replays only: that is when a GPU would run
the kernels.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NoReturn

import torch

from tkdebug.compat.cuda_standin import streams
from tkdebug.compat.cuda_standin.capture import Capture, Step, run_steps
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
from tkdebug.errors import UnsupportedError
from tkdebug.runtime.launch.graph_capture import (
    CaptureError,
    capture_in_force,
    refuse_while_capturing,
)

_ERROR_MODES = ("global", "thread_local", "relaxed")
_pool_numbers = itertools.count(1)


def graph_pool_handle() -> tuple[int, int]:
    """A memory pool's name; each graph of the stand-in keeps its memory to itself."""
    return (0, next(_pool_numbers))


def is_current_stream_capturing() -> bool:
    """Whether this thread captures a graph."""
    return capture_in_force() is not None


class CudaGraph:
    """The stand-in's `torch.cuda.CUDAGraph`."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._keep_graph = keep_graph
        self._capture: Capture | None = None
        self._steps: list[Step] | None = None
        self._pool: tuple[int, int] | None = None
        self._generators: list[torch.Generator] = []

    def capture_begin(
        self,
        pool: tuple[int, int] | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Record the work of this thread from now on.

        Raises:
            CaptureError: a graph is being captured already, this one has been, or the current
                stream is the default stream.
        """
        if capture_error_mode not in _ERROR_MODES:
            raise RuntimeError(
                "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                f"{capture_error_mode}"
            )
        refuse_while_capturing(
            "another capture begins", "end the first one, and replay graphs one after the other"
        )
        if self._steps is not None or self._capture is not None:
            raise CaptureError(
                "This CUDAGraph instance already owns a captured graph. "
                "To capture a new graph, create a new instance."
            )
        if streams.current_stream().cuda_stream == 0:
            raise CaptureError(
                "CUDA graphs must be captured on a non-default stream. "
                "(However, after capture, it's ok to replay them on the default stream.)"
            )
        self._pool = pool or graph_pool_handle()
        self._capture = Capture()
        self._capture.begin(self._generators)

    def capture_end(self) -> None:
        """Stop recording.

        Raises:
            CaptureError: no capture was begun here, or something was refused since.
        """
        capture = self._capture
        if capture is None or capture_in_force() is not capture:
            raise CaptureError("Capture must end on the same stream it began on.")
        self._capture = None
        steps = capture.end()
        if capture.has_failed:
            raise CaptureError(
                "CUDA error: operation failed due to a previous error during capture"
            )
        if not steps:
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be "
                "captured on wrong device or stream.",
                stacklevel=2,
            )
        self._steps = steps

    def instantiate(self) -> None:
        """Check that the graph was captured; it is ready for replays already."""
        self._captured("instantiate")

    def replay(self) -> None:
        """Do the captured work again.

        Raises:
            CaptureError: nothing was captured, or a step of it fails.
        """
        steps = self._captured("replay")
        outer = capture_in_force()
        if isinstance(outer, Capture):
            outer.include(steps)
        else:
            run_steps(steps)

    def reset(self) -> None:
        """Forget the captured steps; the graph may capture again."""
        self._steps = None

    def pool(self) -> tuple[int, int]:
        """The memory pool's name.

        Raises:
            CaptureError: nothing was captured.
        """
        if self._pool is None:
            raise CaptureError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Let the graph draw from `generator` again with each replay."""
        self._generators.append(generator)

    def enable_debug_mode(self) -> None:
        """Do nothing: scripts call this before `debug_dump`, which is refused."""

    def debug_dump(self, debug_path: str) -> NoReturn:
        """Refuse: CUDA's drawing of the graph does not exist.

        Raises:
            UnsupportedError: always.
        """
        raise _unsupported("debug_dump")

    def raw_cuda_graph(self) -> NoReturn:
        """Refuse: CUDA's handle of the graph does not exist.

        Raises:
            UnsupportedError: always.
        """
        raise _unsupported("raw_cuda_graph")

    raw_cuda_graph_exec = raw_cuda_graph

    def _captured(self, call: str) -> list[Step]:
        if self._steps is None:
            raise CaptureError(f"Called CUDAGraph::{call} without a preceding successful capture.")
        return self._steps


def _unsupported(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"torch.cuda.CUDAGraph.{name} is not supported without a CUDA device; "
        "tkdebug lists the launches of each replay"
    )


class GraphScope:
    """Replaces `torch.cuda.graph(g)`: work inside is captured."""

    def __init__(
        self,
        cuda_graph: CudaGraph,
        pool: tuple[int, int] | None = None,
        stream: streams.Stream | None = None,
        capture_error_mode: str = "global",
        **options: Any,
    ) -> None:
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = stream or streams.Stream()
        self.capture_error_mode = capture_error_mode
        self.stream_ctx = streams.StreamContext(self.capture_stream)

    def __enter__(self) -> None:
        refuse_while_capturing(
            "another capture begins", "end the first one, and replay graphs one after the other"
        )
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.cuda_graph.capture_end()
        except CaptureError:
            # The refusal's own text says more.
            if error is None:
                raise
        finally:
            self.stream_ctx.__exit__(kind, error, trace)


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
    """Properties of the one device, an H200."""
    _checked(device)
    announce()
    return PROPERTIES


def get_device_capability(device: object = None) -> tuple[int, int]:
    """Compute capability, (9, 0)."""
    _checked(device)
    return CAPABILITY


def get_device_name(device: object = None) -> str:
    """Name of the one device, as its properties have it."""
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
    "is_current_stream_capturing": is_current_stream_capturing,
    "CUDAGraph": CudaGraph,
    "graph": GraphScope,
    "graph_pool_handle": graph_pool_handle,
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
