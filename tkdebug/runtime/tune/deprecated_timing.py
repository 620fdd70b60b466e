"""`autotune(warmup=, rep=, use_cuda_graph=)`, which upstream has deprecated for `do_bench=`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tkdebug.runtime.benchmark import testing


def deprecated_timer(
    warmup: int | None, rep: int | None, use_cuda_graph: bool
) -> Callable[[Callable[[], object], Sequence[float]], Any]:
    """Warn of them, and give the `do_bench` that they ask for.

    Args:
        warmup: milliseconds of warming up; None for the default.
        rep: milliseconds of timing; None for the default.
        use_cuda_graph: whether calls are replayed from a CUDA graph.
    """
    warnings.warn(
        "autotune: warmup, rep and use_cuda_graph are deprecated; pass do_bench=",
        DeprecationWarning,
        stacklevel=4,
    )
    rep_ms = 100 if rep is None else rep
    warmup_ms = 25 if warmup is None else warmup

    def bench(call: Callable[[], object], quantiles: Sequence[float]) -> Any:
        if use_cuda_graph:
            return testing.do_bench_cudagraph(call, rep=rep_ms, quantiles=quantiles)
        return testing.do_bench(call, warmup=warmup_ms, rep=rep_ms, quantiles=quantiles)

    return bench
