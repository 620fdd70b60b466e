"""Timelines of launches: which kernels are compiled for them, and what their launches left.

Responsible for the choice: the first launches of each kernel that is asked for have timelines, and
none of those is checked or watched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.hook_chain import HOOKS
from tkdebug.knobs import KNOBS
from tkdebug.timelines.requests import read_request, requested

if TYPE_CHECKING:
    from tkdebug.compiler.probes.clock_sites import TimelinePlan
    from tkdebug.compiler.probes.sites import ProbeOptions

# The first one of a kernel finds caches cold.
MOST_LAUNCHES = 3


def timeline_options(kernel: str) -> ProbeOptions | None:
    """How a kernel is compiled for timelines; None where none are asked for."""
    request = requested(tuple(map(read_request, KNOBS.timelines)), kernel)
    if request is None:
        return None
    from tkdebug.compiler.probes.clock_sites import TimelineOptions
    from tkdebug.compiler.probes.sites import ProbeOptions

    return ProbeOptions(frozenset(), timeline=TimelineOptions(request.programs))


def tell_timelines(
    plan: TimelinePlan, data: bytes, kernel: str, launch_id: int, grid: tuple[int, int, int]
) -> None:
    """Tell hooks of what a launch left."""
    from tkdebug.compiler.probes.clock_sites import timelines_of

    for one in timelines_of(plan, data, kernel, launch_id, grid):
        HOOKS.record(one)
