"""Times configurations again whose times are close.

The GPU's clocks change while one configuration is timed after the other. Causal attention of head
size 64 took 377 to 429 TFLOP/s by the same configuration on an H200, and the fastest of six was
chosen in one of four runs.
"""

from __future__ import annotations

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
        Of each of them the round in the middle; nothing where only one is that fast, or all are
        slow.
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
    """Of a configuration's times by quantile, or its only one."""
    return float(timing[0] if isinstance(timing, Sequence) else timing)
