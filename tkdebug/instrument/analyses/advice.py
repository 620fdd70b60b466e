"""The remarks of a run, ranked: what would save most of its kernels' time comes first.

Responsible for weighing remarks of launches by how often and how long these ran. Times are those
that were recorded on a GPU where there are some, else those that were predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tkdebug.advice.records import LaunchCost, LineCost, Remark
from tkdebug.instrument.session import Session

AT_THE_ROOF = "at-the-roof"
LAUNCH_BOUND = "launch-bound"
# Of which a kernel's best form is made.
_ROOFS = ("memory", "tensor cores", "fp32 instructions")
# A launch takes so much of the CPU and of the GPU's front end, whatever it does.
_LAUNCH_NS = 2500.0
# No launch is shorter: a small test problem's share of a full GPU is no time to show.
_SHORTEST_NS = 1e3
_MANY_LAUNCHES = 50
_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Advice:
    """One remark with its rank.

    Attributes:
        rank: from 1.
        predicted_gain: share of the time of all kernels of the run that is saved, 0 to 1.
        speedup: of the kernel: its predicted time over that without the cause.
    """

    file: str
    line: int
    kernel: str
    kind: str
    message: str
    rank: int
    predicted_gain: float
    speedup: float

    @property
    def saved(self) -> str:
        """The predicted gain as people read it; "" where nothing is predicted."""
        percent = round(100 * self.predicted_gain)
        return f"{percent or '<1'} %" if self.predicted_gain > 0 else ""


@dataclass(frozen=True, slots=True)
class _Weight:
    """How long launches like one that was looked at took.

    Attributes:
        total_ns: of all of them.
        count: how many.
    """

    total_ns: float
    count: int


def advice_of(session: Session, times_ns: Mapping[str, float] | None = None) -> tuple[Advice, ...]:
    """The remarks of a run.

    Args:
        session: the run.
        times_ns: time of a launch by kernel, as measured in another run.
    """
    costs = [row.event for row in session.records(LaunchCost)]
    if not costs and not session.records(Remark):
        return ()
    remarks = [row.event for row in session.records(Remark)]
    weights = _weights(session, costs, times_ns or {})
    total = sum(weight.total_ns for weight in weights.values()) or 1.0
    found = [*_of_remarks(remarks, weights, total), *_launch_bound(costs, weights, total)]
    found.sort(key=lambda one: (-one.predicted_gain, one.file, one.line, one.kind))
    named = {one.kernel for one in found}
    found += _roofs(costs, named)
    return tuple(
        Advice(o.file, o.line, o.kernel, o.kind, o.message, rank, o.predicted_gain, o.speedup)
        for rank, o in enumerate(found, 1)
    )


def line_costs(session: Session) -> tuple[LineCost, ...]:
    """What lines cost, of the launches that were looked at."""
    return tuple(row.event for row in session.records(LineCost))


def launch_costs(session: Session) -> tuple[LaunchCost, ...]:
    """What launches cost that were looked at."""
    return tuple(row.event for row in session.records(LaunchCost))


def measured_ns(session: Session) -> dict[tuple[str, tuple[int, int, int]], float]:
    """The mean time on a GPU by hash and grid of launches, where they ran on one."""
    _, measured = _launch_times(session)
    return {key: total_ns / count for key, (total_ns, count) in measured.items()}


def _weights(
    session: Session, costs: Sequence[LaunchCost], times_ns: Mapping[str, float]
) -> dict[tuple[str, int], _Weight]:
    """By hash and launch that was looked at, the launches of its hash and grid."""
    counts, measured = _launch_times(session)
    alike: dict[tuple[str, tuple[int, int, int]], int] = {}
    for cost in costs:
        alike[cost.kernel_hash, cost.grid] = alike.get((cost.kernel_hash, cost.grid), 0) + 1
    weights = {}
    for cost in costs:
        key = cost.kernel_hash, cost.grid
        count = max(1, counts.get(key, 1) // alike[key])
        one_ns = times_ns.get(cost.kernel, cost.grid_ns)
        total_ns = measured[key][0] / alike[key] if key in measured else one_ns * count
        weights[cost.kernel_hash, cost.launch_id] = _Weight(total_ns, count)
    return weights


_Kind = tuple[str, tuple[int, int, int]]


def _launch_times(session: Session) -> tuple[dict[_Kind, int], dict[_Kind, tuple[int, int]]]:
    """By hash and grid: how many launches, and of those on a GPU their time and number."""
    counts: dict[_Kind, int] = {}
    measured: dict[_Kind, tuple[int, int]] = {}
    after = 0
    while page := session.launches_in_order(after, _PAGE):
        for launch in page:
            key = launch.kernel_hash, launch.grid
            counts[key] = counts.get(key, 0) + 1
            if launch.mode == "native" and launch.duration_ns is not None:
                total_ns, count = measured.get(key, (0, 0))
                measured[key] = total_ns + launch.duration_ns, count + 1
        after = page[-1].seq
    return counts, measured


def _of_remarks(
    remarks: Sequence[Remark], weights: Mapping[tuple[str, int], _Weight], total: float
) -> list[Advice]:
    """One for each cause: of several launches of a kernel the one that it costs most."""
    best: dict[tuple[str, str, int, str], Advice] = {}
    gains: dict[tuple[str, str, int, str], dict[tuple[str, int], float]] = {}
    for remark in remarks:
        launch = remark.kernel_hash, remark.launch_id
        weight = weights.get(launch)
        share = 0.0
        if remark.predicted_ns > 0:
            share = 1 - remark.better_ns / remark.predicted_ns
        gain = share * (weight.total_ns / total if weight is not None else 0.0)
        key = remark.kernel, remark.file, remark.line, remark.kind
        # Launches of several shapes have the cause: together they count; of one launch, once.
        by_launch = gains.setdefault(key, {})
        by_launch[launch] = max(gain, by_launch.get(launch, 0.0))
        known = best.get(key)
        message, speedup = remark.message, 1 / max(1e-6, 1 - share)
        if known is not None and known.speedup > speedup:
            message, speedup = known.message, known.speedup
        gain = sum(by_launch.values())
        best[key] = Advice(
            remark.file, remark.line, remark.kernel, remark.kind, message, 0, gain, speedup
        )
    return list(best.values())


def _launch_bound(
    costs: Sequence[LaunchCost], weights: Mapping[tuple[str, int], _Weight], total: float
) -> list[Advice]:
    """Kernels that are launched often and are shorter than a launch."""
    found = []
    for cost in costs:
        weight = weights[cost.kernel_hash, cost.launch_id]
        if weight.count < _MANY_LAUNCHES or cost.predicted_ns > _LAUNCH_NS / 2:
            continue
        with_launches = total + weight.count * _LAUNCH_NS
        gain = weight.count * _LAUNCH_NS / with_launches * (1 - 1 / weight.count)
        speedup = (cost.predicted_ns + _LAUNCH_NS) / (cost.predicted_ns + _LAUNCH_NS / weight.count)
        message = (
            f"{weight.count} launches of {_each(cost.predicted_ns)} each: launching takes "
            f"longer, about {_LAUNCH_NS / 1e3:.2g} us; do the work of several in one launch, fuse "
            f"them, or replay them as a CUDA graph (predicted: up to {speedup:.3g}x as fast)"
        )
        found.append(
            Advice(cost.file, cost.line, cost.kernel, LAUNCH_BOUND, message, 0, gain, speedup)
        )
    return found


def _each(time_ns: float) -> str:
    if time_ns < _SHORTEST_NS:
        return "less than a microsecond"
    return f"{time_ns / 1e3:.2g} us"


def _roofs(costs: Sequence[LaunchCost], named: set[str]) -> list[Advice]:
    found: dict[str, Advice] = {}
    for cost in costs:
        if cost.kernel in named or cost.bound not in _ROOFS or cost.kernel in found:
            continue
        time = f"{cost.predicted_ns / 1e3:.3g} us on"
        if cost.predicted_ns < _SHORTEST_NS:
            time = "time of a grid that fills"
        message = (
            f"at the roof: {cost.bound} take{'s' if cost.bound == 'memory' else ''} "
            f"{100 * cost.bound_share:.0f} % of the predicted {time} an {cost.machine}"
        )
        found[cost.kernel] = Advice(
            cost.file, cost.line, cost.kernel, AT_THE_ROOF, message, 0, 0.0, 1.0
        )
    return list(found.values())
