"""What `triton.testing` offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tkdebug.errors import UnsupportedError
from tkdebug.runtime.benchmark.device_limits import (
    get_dram_gbps,
    get_max_simd_tflops,
    get_max_tensorcore_tflops,
    nvsmi,
    set_gpu_clock,
)
from tkdebug.runtime.benchmark.perf_report import Benchmark, Mark, perf_report
from tkdebug.runtime.benchmark.timed_calls import (
    do_bench,
    do_bench_cudagraph,
    do_bench_cudagraph_proton,
    do_bench_proton,
)
from tkdebug.runtime.device.driver import driver

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


# What tuners get of the driver.
driver.default.benchmarker = do_bench
