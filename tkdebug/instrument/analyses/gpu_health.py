"""What a session says about how far its times on the GPU can be trusted, in sentences.

Responsible for the judgement: clocks that changed while kernels ran, what slowed the GPU down,
records that were lost. What the numbers mean is `device_records`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tkdebug.instrument.device_records import GpuState, LostActivities
from tkdebug.instrument.recording.nvml import slowdown_names
from tkdebug.instrument.session import Session

# A GPU that boosts as it should stays within a step or two of 15 MHz.
NOTABLE_SHARE = 0.05


def warnings(session: Session) -> Iterator[str]:
    """A sentence for each thing that makes times of this run less than comparable."""
    by_gpu: dict[str, list[GpuState]] = defaultdict(list)
    for recorded in session.records(GpuState):
        if recorded.event.is_busy:
            by_gpu[recorded.event.gpu].append(recorded.event)
    for states in by_gpu.values():
        yield from _clock_warnings(states, more_than_one=len(by_gpu) > 1)
    lost: dict[str, int] = defaultdict(int)
    for loss in session.records(LostActivities):
        lost[loss.event.reason] += loss.event.count
    for reason, count in lost.items():
        yield f"{count:,} records of the GPU are missing: {reason}" if count else reason


def _clock_warnings(states: Sequence[GpuState], more_than_one: bool) -> Iterator[str]:
    name = states[0].name + (f" ({states[0].gpu})" if more_than_one else "")
    clocks = [state.sm_clock_mhz for state in states]
    if min(clocks) < max(clocks) * (1 - NOTABLE_SHARE):
        yield (
            f"{name}: its clock was between {min(clocks)} and {max(clocks)} MHz while kernels ran; "
            "times from different moments do not compare"
        )
    reasons = dict.fromkeys(n for state in states for n in slowdown_names(state.slowdown_reasons))
    if reasons:
        yield f"{name}: was slowed down: {', '.join(reasons)}"
