"""The remarks of a run, ranked: those that would save most of its kernels' time come first.

Responsible for weighing remarks of launches by how often and how long these ran. Times were
recorded on a GPU if there are some, else predicted; each remark says which, and whose code was
timed. Remarks about code are always about tkdebug's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tkdebug.advice.records import (
    FILLED,
    LAUNCH,
    SMALL_GRID_KIND,
    LaunchCost,
    LineCost,
    Remark,
    ranked,
)
from tkdebug.instrument.device_records import GpuState
from tkdebug.instrument.session import Session

AT_THE_ROOF = "at-the-roof"
LAUNCH_BOUND = "launch-bound"
# The resources that bound even the best form of a kernel.
_ROOFS = ("memory", "tensor cores", "fp32 instructions")
# The least shares at the roof, of predicted and of measured times; the latter have more parts.
_AT_ROOF, _MEASURED_AT_ROOF = 0.8, 0.7
_JUST_LESS = 1 - 1e-9
PREDICTED = "predicted"
TKDEBUG, TRITON = "tkdebug", "Triton"
# The time of the CPU and of the GPU's front end that any launch takes.
_LAUNCH_NS = 2500.0
# The minimum time of a launch: a small problem's share of a full GPU is shorter than any launch.
_SHORTEST_NS = 1e3
_MANY_LAUNCHES = 50
# The least gain of one launch in place of many that is worth a remark.
_LEAST_TOGETHER = 1.9
_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Advice:
    """One remark with its rank.

    Attributes:
        rank: 1 for the first.
        predicted_gain: share of the time of all kernels of the run that is saved, 0 to 1.
        speedup: the kernel's speedup: its predicted time over the time without the cause.
        judged: "launch" if the speedup is the launch's own, "filled" if it is for a grid of such
            programs that fills the GPU; "" if nothing is predicted.
        speedup_launched: the speedup of the launch as it is; 1 if nothing is predicted.
        speedup_filled: the speedup of such a grid.
        times: the times by which kernels are weighed: "predicted", or whose code was measured
            ("tkdebug", "Triton").
    """

    file: str
    line: int
    kernel: str
    kind: str
    message: str
    rank: int
    predicted_gain: float
    speedup: float
    judged: str = ""
    speedup_launched: float = 1.0
    speedup_filled: float = 1.0
    times: str = PREDICTED

    @property
    def saved(self) -> str:
        """The predicted gain as people read it; "" if nothing is predicted."""
        return saved_share(self.predicted_gain, self.judged)


def saved_share(gain: float, judged: str, is_short: bool = False) -> str:
    """Return a predicted gain as all reports word it; "" if nothing is predicted.

    Args:
        gain: the share of the run's time that is saved, 0 to 1.
        judged: "filled" if the gain holds for grids that fill the GPU.
        is_short: whether the condition is written as a mark, where there is no room for more.
    """
    if gain <= 0:
        return ""
    condition = ("*" if is_short else " on a full GPU") if judged == FILLED else ""
    return f"{round(100 * gain) or '<1'} %{condition}"


@dataclass(frozen=True, slots=True)
class _Weight:
    """Times of launches like one that was looked at.

    Attributes:
        total_ns: the time of all of them.
        count: the number of launches.
        measured_ns: the time of one of them on a GPU; None if none was measured.
        code: the compiler whose code was measured.
    """

    total_ns: float
    count: int
    measured_ns: float | None = None
    code: str = TKDEBUG

    @property
    def times(self) -> str:
        """The origin of these times, in the words of `Advice.times`."""
        return PREDICTED if self.measured_ns is None else self.code


@dataclass(frozen=True, slots=True)
class Times:
    """Times of launches in another run.

    Attributes:
        by_kernel_ns: mean time of a launch by kernel.
        code: the compiler whose code was measured, by kernel.
        gpu: the name of the GPU; None if it is unknown, or they were several.
    """

    by_kernel_ns: Mapping[str, float]
    code: Mapping[str, str]
    gpu: str | None = None


def advice_of(session: Session, times: Times | None = None) -> tuple[Advice, ...]:
    """Return the remarks of a run.

    Args:
        session: the run.
        times: times measured in another run, to weigh kernels by; None for the run's own.
    """
    costs = [row.event for row in session.records(LaunchCost)]
    if not costs and not session.records(Remark):
        return ()
    remarks = [row.event for row in session.records(Remark)]
    weights = _weights(session, costs, times)
    total = sum(weight.total_ns for weight in weights.values()) or 1.0
    found = [*_of_remarks(remarks, weights, total), *_launch_bound(costs, weights, total)]
    order = _order(remarks, found)
    found.sort(key=lambda one: (order[one.kernel, one.file, one.line, one.kind], one.line))
    named = {one.kernel for one in found}
    found += _roofs(costs, named, weights)
    return tuple(replace(one, rank=rank) for rank, one in enumerate(found, 1))


def line_costs(session: Session) -> tuple[LineCost, ...]:
    """Return what lines cost, of the launches that were looked at."""
    return tuple(row.event for row in session.records(LineCost))


def launch_costs(session: Session) -> tuple[LaunchCost, ...]:
    """Return the costs of the launches that were looked at."""
    return tuple(row.event for row in session.records(LaunchCost))


def measured_ns(session: Session) -> dict[tuple[str, tuple[int, int, int]], float]:
    """The mean time on a GPU by hash and grid of launches, where they ran on one."""
    _, measured = _launch_times(session)
    return {key: total_ns / count for key, (total_ns, count) in measured.items()}


def times_of(session: Session) -> Times:
    """Return the times of a run on a GPU, and whose code took them."""
    summaries = [one for one in session.kernel_summaries() if one.finished]
    names = {recorded.event.name for recorded in session.records(GpuState)}
    return Times(
        {one.kernel: one.total_ns / one.finished for one in summaries},
        {kernel.name: compiled_by(kernel.stages) for kernel in session.kernels()},
        names.pop() if len(names) == 1 else None,
    )


def compiled_by(stages: Iterable[str]) -> str:
    """Return the compiler of a kernel, by the names of its stages."""
    return TRITON if _TRITON_STAGE in stages else TKDEBUG


_TRITON_STAGE = "ttgir"


def _weights(
    session: Session, costs: Sequence[LaunchCost], times: Times | None
) -> dict[tuple[str, int], _Weight]:
    """Return the times of launches of a hash and grid, by hash and the launch looked at."""
    counts, measured = _launch_times(session)
    alike: dict[tuple[str, tuple[int, int, int]], int] = {}
    for cost in costs:
        alike[cost.kernel_hash, cost.grid] = alike.get((cost.kernel_hash, cost.grid), 0) + 1
    weights = {}
    for cost in costs:
        key = cost.kernel_hash, cost.grid
        count = max(1, counts.get(key, 1) // alike[key])
        launch = cost.kernel_hash, cost.launch_id
        given_ns = None if times is None else times.by_kernel_ns.get(cost.kernel)
        if key in measured:
            total_ns, number = measured[key]
            weights[launch] = _Weight(total_ns / alike[key], count, total_ns / number)
        elif times is not None and given_ns is not None:
            code = times.code.get(cost.kernel, TKDEBUG)
            weights[launch] = _Weight(given_ns * count, count, given_ns, code)
        else:
            weights[launch] = _Weight(cost.grid_ns * count, count)
    return weights


_Kind = tuple[str, tuple[int, int, int]]


def _launch_times(session: Session) -> tuple[dict[_Kind, int], dict[_Kind, tuple[int, int]]]:
    """Count launches by hash and grid; sum up the times and number of those on a GPU."""
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
    """Return one remark for each kernel, line and kind: that of the launch it costs most."""
    best: dict[tuple[str, str, int, str], Advice] = {}
    gains: dict[tuple[str, str, int, str], dict[tuple[str, int], float]] = {}
    for remark in remarks:
        launch = remark.kernel_hash, remark.launch_id
        weight = weights.get(launch)
        now_ns, better_ns = remark.ranked_by
        share = max(0.0, 1 - better_ns / now_ns) if now_ns > 0 else 0.0
        gain = share * (weight.total_ns / total if weight is not None else 0.0)
        key = remark.kernel, remark.file, remark.line, remark.kind
        # Launches of several shapes have the cause: together they count; of one launch, once.
        by_launch = gains.setdefault(key, {})
        by_launch[launch] = max(gain, by_launch.get(launch, 0.0))
        known = best.get(key)
        one = Advice(
            *(remark.file, remark.line, remark.kernel, remark.kind, remark.message, 0),
            predicted_gain=0.0,
            speedup=1 / max(1e-6, 1 - share),
            judged=remark.judged,
            speedup_launched=_ratio(remark.predicted_ns, remark.better_ns),
            speedup_filled=_ratio(remark.filled_ns, remark.filled_better_ns),
            times=PREDICTED if weight is None else weight.times,
        )
        if known is not None and known.speedup > one.speedup:
            one = known
        best[key] = replace(one, predicted_gain=sum(by_launch.values()))
    return list(best.values())


_Key = tuple[str, str, int, str]


def _order(remarks: Sequence[Remark], found: Sequence[Advice]) -> Mapping[_Key, float]:
    """Return the sort keys of advice: negated gains, small-grid remarks after their launch's."""
    gains = {(o.kernel, o.file, o.line, o.kind): o.predicted_gain for o in found}
    by_launch: dict[tuple[str, int], list[Remark]] = {}
    for remark in remarks:
        by_launch.setdefault((remark.kernel_hash, remark.launch_id), []).append(remark)
    for of_launch in by_launch.values():
        least = 1.0
        for one in ranked(of_launch):
            key = one.kernel, one.file, one.line, one.kind
            if one.kind == SMALL_GRID_KIND:
                gains[key] = min(gains[key], least * _JUST_LESS)
            elif one.holds_filled:
                least = min(least, gains[key])
    return {key: -gain for key, gain in gains.items()}


def _ratio(now_ns: float, better_ns: float) -> float:
    return now_ns / better_ns if now_ns > 0 and better_ns > 0 else 1.0


def _launch_bound(
    costs: Sequence[LaunchCost], weights: Mapping[tuple[str, int], _Weight], total: float
) -> list[Advice]:
    """Return remarks on kernels that are launched often and are shorter than a launch.

    One launch with the work of all of them would fill the GPU.
    """
    found = []
    for cost in costs:
        weight = weights[cost.kernel_hash, cost.launch_id]
        now_ns = weight.count * max(cost.grid_ns, _LAUNCH_NS)
        together_ns = _LAUNCH_NS + weight.count * cost.predicted_ns
        speedup = now_ns / together_ns
        if weight.count < _MANY_LAUNCHES or cost.grid_ns > _LAUNCH_NS or speedup < _LEAST_TOGETHER:
            continue
        gain = (now_ns - together_ns) / (total - weight.total_ns + now_ns)
        message = (
            f"{weight.count} launches of {_each(cost.grid_ns)} each: launching takes "
            f"longer, about {_LAUNCH_NS / 1e3:.2g} us; do the work of several in one launch, fuse "
            f"them, or replay them as a CUDA graph (predicted: up to {speedup:.3g}x as fast)"
        )
        found.append(
            Advice(
                *(cost.file, cost.line, cost.kernel, LAUNCH_BOUND, message, 0, gain, speedup),
                judged=LAUNCH,
                speedup_launched=speedup,
                times=weight.times,
            )
        )
    return found


def _each(time_ns: float) -> str:
    if time_ns < _SHORTEST_NS:
        return "less than a microsecond"
    return f"{time_ns / 1e3:.2g} us"


def _roofs(
    costs: Sequence[LaunchCost],
    named: set[str],
    weights: Mapping[tuple[str, int], _Weight],
) -> list[Advice]:
    """Return remarks on kernels that take just the time of their bytes or products, as launched.

    For a measured launch, that must hold for the measured time, too.
    """
    found: dict[str, Advice] = {}
    for cost in costs:
        if cost.kernel in named or cost.kernel in found:
            continue
        roof, share = roof_of(cost)
        weight = weights[cost.kernel_hash, cost.launch_id]
        measured_ns = weight.measured_ns
        roof_ns = cost.resources_ns.get(roof, 0.0)
        if share < _AT_ROOF or (measured_ns and roof_ns < _MEASURED_AT_ROOF * measured_ns):
            continue
        take = f"{roof} take{'s' if roof == 'memory' else ''}"
        message = (
            f"at the roof: {take} {100 * share:.0f} % of the predicted {cost.grid_ns / 1e3:.3g} us "
            f"on an {cost.machine}"
        )
        if measured_ns:
            message += (
                f", and {100 * roof_ns / measured_ns:.0f} % of the {measured_ns / 1e3:.3g} us that "
                f"{weight.code}'s code took"
            )
        found[cost.kernel] = Advice(
            *(cost.file, cost.line, cost.kernel, AT_THE_ROOF, message, 0, 0.0, 1.0),
            judged=LAUNCH,
            times=weight.times,
        )
    return list(found.values())


def roof_of(cost: LaunchCost) -> tuple[str, float]:
    """Return the roof resource that takes longest, and its share of the launch's time."""
    roof = max(_ROOFS, key=lambda name: cost.resources_ns.get(name, 0.0))
    return roof, cost.resources_ns.get(roof, 0.0) / cost.grid_ns if cost.grid_ns else 0.0


def what_bounds(cost: LaunchCost) -> str:
    """Return what bounds a launch without remarks, as it is and in a grid that fills the GPU."""
    bound, share = cost.launched_bound or cost.bound, cost.launched_share or cost.bound_share
    text = f"it is bound by {bound}, {100 * share:.0f} % of its predicted time"
    if cost.is_small:
        roof_ns = max(cost.resources_ns.get(name, 0.0) for name in _ROOFS)
        full = f"{cost.bound}, {100 * cost.bound_share:.0f} % of it"
        if roof_ns >= _AT_ROOF * cost.predicted_ns:
            full += ", which is the roof"
        text += f"; in a grid that fills the GPU by {full}"
    return text
