"""Upstream's function around tuning: `knobs.autotuning.listener`.

Responsible for what it is called with; the knob that sets it is `compat`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

TuneListener = Callable[..., object]


@dataclass
class TuneHooks:
    """The function in force.

    Attributes:
        listener: called with keywords fn, key, best_config, configs_timings (each config's times in
            ms by quantile), duration (in s) and cache_hit, when configurations have been timed.
    """

    listener: TuneListener | None = None


TUNE_HOOKS = TuneHooks()
