"""`triton.testing`."""

from __future__ import annotations

from tkdebug.runtime.benchmark.device_limits import (
    get_dram_gbps,
    get_max_simd_tflops,
    get_max_tensorcore_tflops,
    nvsmi,
    set_gpu_clock,
)
from tkdebug.runtime.benchmark.testing import (
    Benchmark,
    Mark,
    assert_close,
    cuda_memcheck,
    perf_report,
)
from tkdebug.runtime.benchmark.timed_calls import (
    do_bench,
    do_bench_cudagraph,
    do_bench_cudagraph_proton,
    do_bench_proton,
)

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
