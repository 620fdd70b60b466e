"""Times of configurations: close ones are timed again, and upstream's deprecated options.

The GPU's clocks change while one configuration is timed after the other. Causal attention of head
size 64 took 377 to 429 TFLOP/s by the same configuration on an H200, and the fastest of six was
chosen in one of four runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tkdebug.runtime.benchmark import testing
from tkdebug.runtime.tune.config import Config

# The slowest time that is close, as a multiple of the fastest.
_CLOSE = 1.05
_ROUNDS = 3
# `do_bench` makes some ten calls at least, which of slower ones takes longer than the first time.
_SLOWEST_MS = 5.0
briefly = partial(testing.do_bench, warmup=5, rep=20)


def timed_in_turn(
    timings: Mapping[Config, Any], bench: Callable[[Config], Any]
) -> dict[Config, Any]:
    """Time the configurations that are close to the fastest again, in turn.

    Args:
        timings: of each configuration.
        bench: times one, `briefly`.

    Returns:
        The round in the middle for each of them; nothing if only one is that fast, or all
            are slow.
    """
    least_ms = min(map(median_ms, timings.values()))
    close = [config for config in timings if median_ms(timings[config]) <= _CLOSE * least_ms]
    if len(close) < 2 or least_ms > _SLOWEST_MS:
        return {}
    rounds: dict[Config, list[Any]] = {config: [] for config in close}
    for _ in range(_ROUNDS):
        for config, found in rounds.items():
            found.append(bench(config))
    return {config: sorted(found, key=median_ms)[_ROUNDS // 2] for config, found in rounds.items()}


def median_ms(timing: Any) -> float:
    """Return the median of a configuration's times by quantile, or its only time."""
    return float(timing[0] if isinstance(timing, Sequence) else timing)


def deprecated_timer(
    warmup: int | None, rep: int | None, use_cuda_graph: bool
) -> Callable[[Callable[[], object], Sequence[float]], Any]:
    """Warn of deprecated options, and return the `do_bench` that they ask for.

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
