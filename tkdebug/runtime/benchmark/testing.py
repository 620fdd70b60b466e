"""The functions of `triton.testing`: comparisons, and rates of the device; the rest is imported."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tkdebug.errors import TkError, UnsupportedError
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


# Facts of the driver for tuners.
driver.default.benchmarker = do_bench


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
