"""The functions of `triton.testing`: times of a function, comparisons, and rates of the device.

Times are taken by CUDA events, in a CUDA graph, or by the host's clock. The host's clock is used if
there is no GPU. Under the `quick` knob `do_bench` calls its function once, so that scripts which
benchmark at their end get there.

`perf_report` is imported.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from tkdebug.errors import TkError, UnsupportedError, UsageError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.benchmark.perf_report import Benchmark, Mark, perf_report
from tkdebug.runtime.device.driver import driver, has_real_gpu
from tkdebug.runtime.device.modes import timed_launches
from tkdebug.runtime.launch.graph_capture import refuse_while_capturing

if TYPE_CHECKING:
    import torch

__all__ = [
    "Benchmark",
    "Mark",
    "assert_close",
    "cuda_memcheck",
    "do_bench",
    "do_bench_cudagraph",
    "do_bench_cudagraph_proton",
    "do_bench_proton",
    "get_dram_gbps",
    "get_max_simd_tflops",
    "get_max_tensorcore_tflops",
    "nvsmi",
    "perf_report",
    "set_gpu_clock",
]


def assert_close(
    x: Any,
    y: Any,
    atol: float | Callable[[Any], float] | None = None,
    rtol: float | Callable[[Any], float] | None = None,
    err_msg: str = "",
) -> None:
    """Check that two tensors, arrays, lists or numbers agree.

    Args:
        x: one.
        y: the other.
        atol: absolute tolerance, or a function from dtype to it; 1e-2 by default.
        rtol: relative tolerance, or a function from dtype to it; 0 by default.
        err_msg: put before the message.

    Raises:
        AssertionError: they differ by more than atol + rtol * abs(y), or in shape.
    """
    import numpy
    import torch

    first = x if isinstance(x, torch.Tensor) else torch.tensor(x)
    second = y if isinstance(y, torch.Tensor) else torch.tensor(y)
    absolute = 1e-2 if atol is None else atol(first.dtype) if callable(atol) else atol
    relative = 0.0 if rtol is None else rtol(first.dtype) if callable(rtol) else rtol
    a, b = _as_numpy(first), _as_numpy(second)
    if a.size > 1 or b.size > 1:
        numpy.testing.assert_allclose(
            a, b, atol=absolute, rtol=relative, equal_nan=True, err_msg=err_msg
        )
    elif not numpy.allclose(a, b, atol=absolute, rtol=relative):
        raise AssertionError(
            f"{err_msg} {a} is not close to {b} (atol={absolute}, rtol={relative})".strip()
        )


def _as_numpy(tensor: torch.Tensor) -> Any:
    import torch

    # numpy has no bfloat16 and no 8-bit floats.
    if tensor.dtype == torch.bfloat16 or (tensor.is_floating_point() and tensor.itemsize == 1):
        tensor = tensor.float()
    return tensor.detach().cpu().numpy()


def cuda_memcheck(**target_kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Upstream's decorator that reruns a test under cuda-memcheck, which CUDA no longer has.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        "cuda_memcheck: CUDA no longer ships cuda-memcheck; run the test interpreted, "
        "which checks every access"
    )


def get_dram_gbps(device: int | None = None) -> float:
    """Peak memory bandwidth of `device` in GB/s; an H200's without a GPU."""
    properties = _properties(device)
    # Two transfers per clock (kHz), bus width in bits.
    return float(properties["mem_clock_rate"] * properties["mem_bus_width"] * 2 / 1e6 / 8)


def _properties(device: int | None) -> dict[str, int]:
    index = driver.active.get_current_device() if device is None else device
    properties: dict[str, int] = driver.active.utils.get_device_properties(index)
    return properties


def _peak_tflops(ops_per_subcore: int, clock_rate: float, device: int | None) -> float:
    subcores = _properties(device)["multiprocessor_count"] * 4
    return float(subcores * clock_rate * ops_per_subcore * 1e-9)


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """Peak of the tensor cores for `dtype` at `clock_rate` kHz, by upstream's per-core counts.

    Raises:
        UnsupportedError: tensor cores do not compute in `dtype`.
    """
    name = str(dtype).rpartition(".")[2]
    if driver.active.get_device_capability(device)[0] < 8:
        # Volta and Turing: two 4x4x4 tensor cores, fp16 only.
        ops = {"float16": 256}.get(name)
    else:
        bits = {"float32": 32, "int32": 32, "float16": 16, "bfloat16": 16, "int16": 16, "int8": 8}
        width = bits.get(name, 8 if name.startswith(("float8", "fp8")) else 0)
        ops = 8192 // width if width else None
    if ops is None:
        raise UnsupportedError(f"get_max_tensorcore_tflops: tensor cores do not compute in {dtype}")
    return _peak_tflops(ops, clock_rate, device)


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """Peak of the ordinary floating-point units for `dtype` at `clock_rate` kHz.

    Raises:
        UnsupportedError: no figure is known for `dtype`.
    """
    name = str(dtype).rpartition(".")[2]
    known = {"float32": 32, "float16": 64}
    if driver.active.get_device_capability(device)[0] >= 8:
        known["bfloat16"] = 64
    if name not in known:
        raise UnsupportedError(f"get_max_simd_tflops: no figure is known for {dtype}")
    return _peak_tflops(known[name], clock_rate, device)


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Whole-number attributes of GPU 0, as nvidia-smi names them.

    Raises:
        TkError: nvidia-smi is not there, or does not know an attribute.
    """
    text = _nvidia_smi(f"--query-gpu={','.join(attrs)}", "--format=csv,noheader,nounits")
    return [int(value) for value in text.split(",")]


def _nvidia_smi(*arguments: str) -> str:
    command = ["nvidia-smi", "-i", "0", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise TkError("nvidia-smi is not on this machine; it comes with NVIDIA's driver") from None
    except subprocess.CalledProcessError as error:
        why = (error.stdout + error.stderr).strip().splitlines()
        raise TkError(f"{' '.join(command)}: {why[0] if why else error}") from error


@contextmanager
def set_gpu_clock(
    ref_sm_clock: int = 1350, ref_mem_clock: int = 1215
) -> Iterator[tuple[float, float]]:
    """Lock the clocks of GPU 0, in MHz, inside of a `with` block; that takes privileges.

    Yields:
        Peak TFLOP/s and GB/s at those clocks, by upstream's figures for an A100.

    Raises:
        TkError: nvidia-smi refuses, or the clocks do not settle.
    """
    try:
        _nvidia_smi("-pm", "1")
        _nvidia_smi(f"--lock-gpu-clocks={ref_sm_clock},{ref_sm_clock}")
        _nvidia_smi(f"--lock-memory-clocks={ref_mem_clock},{ref_mem_clock}")
        for name, wanted in (("sm", ref_sm_clock), ("memory", ref_mem_clock)):
            got = nvsmi([f"clocks.current.{name}"])[0]
            if abs(got - wanted) >= 10:
                raise TkError(f"{name} clock: got {got} MHz, expected {wanted} MHz")
        yield 1e-6 * 2 * 108 * 4 * 256 * ref_sm_clock, 640 * 2 * ref_mem_clock * 1e-3
    finally:
        for arguments in (("-pm", "0"), ("-rgc",), ("-rmc",)):
            _nvidia_smi(*arguments)


def _mean(times: list[float]) -> float:
    import statistics  # and with it fractions and decimals, which few scripts need

    return statistics.mean(times)


def _median(times: list[float]) -> float:
    import statistics

    return statistics.median(times)


_RETURN_MODES: dict[str, Callable[[list[float]], Any]] = {
    "min": min,
    "max": max,
    "mean": _mean,
    "median": _median,
    "all": list,
}
_ESTIMATE_CALLS = 5
_GRAPH_REPLAYS = 10
# No clock resolves less than this; keeps the counts finite for empty functions.
_SHORTEST_MS = 1e-3


def _quantile(times: Sequence[float], quantiles: Sequence[float]) -> list[float]:
    """Quantiles with linear interpolation between neighbours."""
    ordered = sorted(times)
    result = []
    for quantile in quantiles:
        if not 0 <= quantile <= 1:
            raise UsageError(f"quantiles: got {quantile}, expected numbers from 0 to 1")
        point = quantile * (len(ordered) - 1)
        low, high = math.floor(point), math.ceil(point)
        result.append(ordered[low] + (point - low) * (ordered[high] - ordered[low]))
    return result


def _summarize_statistics(
    times: list[float], quantiles: Sequence[float] | None, return_mode: str
) -> Any:
    if quantiles is None:
        return _RETURN_MODES[return_mode](times)
    values = _quantile(times, quantiles)
    return values[0] if len(values) == 1 else values


def _check_return_mode(return_mode: str) -> None:
    if return_mode not in _RETURN_MODES:
        known = ", ".join(_RETURN_MODES)
        raise UsageError(f"return_mode: got {return_mode!r}, expected one of {known}")


def _forget_gradients(tensors: Iterable[torch.Tensor] | None) -> None:
    for tensor in tensors or ():
        tensor.grad = None


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Time `fn`.

    Args:
        fn: the function to time; called once before any timing.
        warmup: milliseconds spent warming up.
        rep: milliseconds spent timing.
        grad_to_none: tensors whose gradients are dropped before each call.
        quantiles: the quantiles to return instead, each from 0 to 1.
        return_mode: "min", "max", "mean", "median" or "all".

    Returns:
        Milliseconds: a number, or a list for several quantiles or "all".

    Raises:
        UsageError: no such return mode or quantile.
        CaptureError: a graph is being captured.
    """
    _check_return_mode(return_mode)
    refuse_while_capturing("timing waits for the device", "time before the capture")
    _warn_if_interpreted()
    grad_to_none = None if grad_to_none is None else list(grad_to_none)
    if KNOBS.quick:
        return _summarize_statistics([_host_ms(fn)], quantiles, return_mode)
    timer = _device_times if has_real_gpu() else _host_times
    times = timer(fn, warmup, rep, grad_to_none)
    return _summarize_statistics(times, quantiles, return_mode)


def _warn_if_interpreted() -> None:
    from tkdebug.runtime.device.modes import current_mode  # it looks for a GPU

    if current_mode() == "interpret":
        _warn_once(
            "kernels are interpreted, so the times that do_bench measures here say nothing about a "
            "GPU's; compare none of them"
        )


@cache
def _warn_once(text: str) -> None:
    print(f"tkdebug: {text}", file=sys.stderr)


def _host_ms(fn: Callable[[], object]) -> float:
    started_ns = time.perf_counter_ns()
    fn()
    # At least a nanosecond: scripts divide by it.
    return max(time.perf_counter_ns() - started_ns, 1) / 1e6


def _host_times(
    fn: Callable[[], object], warmup: float, rep: float, grad_to_none: list[torch.Tensor] | None
) -> list[float]:
    fn()
    with timed_launches():
        return _repeated_host_times(fn, warmup, rep, grad_to_none)


def _repeated_host_times(
    fn: Callable[[], object], warmup: float, rep: float, grad_to_none: list[torch.Tensor] | None
) -> list[float]:
    estimate_ms = max(_host_ms(fn), _SHORTEST_MS)
    # The two calls above have warmed up whatever is slower than the time given for it.
    for _ in range(int(warmup / estimate_ms)):
        fn()
    times = []
    for _ in range(max(1, int(rep / estimate_ms))):
        _forget_gradients(grad_to_none)
        times.append(_host_ms(fn))
    return times


def _device_times(
    fn: Callable[[], object], warmup: float, rep: float, grad_to_none: list[torch.Tensor] | None
) -> list[float]:
    device = driver.active.get_device_interface()
    fn()
    device.synchronize()
    with timed_launches():
        return _repeated_device_times(fn, warmup, rep, grad_to_none)


def _repeated_device_times(
    fn: Callable[[], object], warmup: float, rep: float, grad_to_none: list[torch.Tensor] | None
) -> list[float]:
    active = driver.active
    device = active.get_device_interface()
    cache = active.get_empty_cache_for_benchmark()

    def event() -> Any:
        return device.Event(enable_timing=True)

    start, end = event(), event()
    start.record()
    for _ in range(_ESTIMATE_CALLS):
        active.clear_cache(cache)
        fn()
    end.record()
    device.synchronize()
    estimate_ms = max(start.elapsed_time(end) / _ESTIMATE_CALLS, _SHORTEST_MS)
    for _ in range(max(1, int(warmup / estimate_ms))):
        fn()
    spans = [(event(), event()) for _ in range(max(1, int(rep / estimate_ms)))]
    for start, end in spans:
        _forget_gradients(grad_to_none)
        active.clear_cache(cache)
        start.record()
        fn()
        end.record()
    device.synchronize()
    return [start.elapsed_time(end) for start, end in spans]


def do_bench_cudagraph(
    fn: Callable[[], object],
    rep: float = 20,
    grad_to_none: Iterable[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Time `fn` replayed from a CUDA graph, so that the host's share does not show.

    Without a GPU, and for interpreted kernels, there is nothing to capture: then it is `do_bench`.
    Arguments and result are those of `do_bench`.
    """
    from tkdebug.runtime.device.modes import current_mode

    _check_return_mode(return_mode)
    tensors = list(grad_to_none or ())
    if KNOBS.quick or not has_real_gpu() or current_mode() == "interpret":
        return do_bench(fn, 0, rep, tensors, quantiles, return_mode)
    import torch

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream), ExitStack() as timed:
        fn()
        timed.enter_context(timed_launches())
        for tensor in tensors:
            tensor.detach_()
            tensor.requires_grad_(True)
            tensor.grad = None
        estimate_ms = max(_span_ms(fn, _ESTIMATE_CALLS) / _ESTIMATE_CALLS, _SHORTEST_MS)
        calls = max(1, int(rep / estimate_ms))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                _forget_gradients(tensors)
                fn()
        torch.cuda.synchronize()
        times = [_span_ms(graph.replay, 1) / calls for _ in range(_GRAPH_REPLAYS)]
    return _summarize_statistics(times, quantiles, return_mode)


def do_bench_proton(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Time `fn` without the host's share.

    Upstream sums up its kernels' times from CUPTI. Here the calls are replayed from a CUDA graph,
    so waits of the GPU between two kernels of a call are part of the time; stderr says so once.
    Arguments and result are those of `do_bench`, but `warmup` is ignored: replays need none.
    """
    if has_real_gpu() and not KNOBS.quick:
        _warn_once(
            "do_bench_proton times calls in a CUDA graph, with the gaps between their kernels; "
            "Triton's own sums up the kernels"
        )
    return do_bench_cudagraph(fn, rep, grad_to_none, quantiles, return_mode)


def do_bench_cudagraph_proton(
    fn: Callable[[], object],
    rep: float = 20,
    grad_to_none: Iterable[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Time calls as `do_bench_proton` does, without a warm-up."""
    return do_bench_proton(fn, 0, rep, grad_to_none, quantiles, return_mode)


def _span_ms(fn: Callable[[], object], calls: int) -> float:
    """Device milliseconds that `calls` calls of `fn` take together."""
    import torch

    start, end = _cuda_event(), _cuda_event()
    start.record()
    for _ in range(calls):
        fn()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _cuda_event() -> Any:
    import torch

    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


# Facts of the driver for tuners.
driver.default.benchmarker = do_bench
