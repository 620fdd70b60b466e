"""Times of a function of the script's: by CUDA events, in a CUDA graph, or by the host's clock.

The host's clock is used if there is no GPU. Under the `quick` knob `do_bench` calls its function
once, so that scripts which benchmark at their end get there.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.device.driver import driver, has_real_gpu
from tkdebug.runtime.launch.graph_capture import refuse_while_capturing
from tkdebug.runtime.launch.timed_launches import timed_launches

if TYPE_CHECKING:
    import torch


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
    Arguments and result are those of `do_bench`.
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
