"""Facts of a launch judged: what it costs, the remarks that are worth making, the roof."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tkdebug.advice.ceilings import measured_machine, newest
from tkdebug.advice.facts import KernelFacts
from tkdebug.advice.findings import Finding, Launch
from tkdebug.advice.grids import grid_findings
from tkdebug.advice.machines import MACHINES, MEMORY_SHARE, Machine
from tkdebug.advice.model import (
    bound_of,
    grid_s,
    resource_seconds,
    steady_s,
    tensor_dram_bytes,
)
from tkdebug.advice.records import LaunchCost, LineCost, Remark
from tkdebug.advice.rules import RULES, look_at

# A remark promises at least so much; more, where the model is least sure of the cause, and less
# where the cause is certain and seldom alone.
LEAST_SPEEDUP = 1.07
_LEAST_OF_KIND = {
    "slow-function": 1.2,
    "low-occupancy-registers": 1.25,
    "low-occupancy-shared": 1.25,
    "bank-conflict": 1.3,
    "redundant-load": 1.15,
    "narrow-access": 1.03,
    "spill": 1.03,
    "small-product-tiles": 1.25,
    "small-tiles": 1.2,
}
_S_TO_NS = 1e9
# No launch is shorter: a small test problem's share of a full GPU is no time to show.
_SHORTEST_S = 1e-6


@dataclass(frozen=True, slots=True)
class Verdict:
    """What there is to record of a launch."""

    cost: LaunchCost
    lines: tuple[LineCost, ...]
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class RemarkPlugin:
    """What an entry point of the group `tkdebug.remarks` names.

    Attributes:
        remarks: what there is to say of a launch of which it gets the facts, and the GPU that
            predictions are made for.
    """

    remarks: Callable[[KernelFacts, Machine], Iterable[Remark]]


def machine_of(target: str) -> Machine | None:
    """The GPU that predictions for an architecture are made for.

    It is one whose ceilings were measured here, else one of that architecture by its data sheet.
    """
    machine = MACHINES.get(target)
    measured = None if machine is None else newest(target)
    return machine if machine is None or measured is None else measured_machine(machine, measured)


def judge(facts: KernelFacts, machine: Machine, launch_id: int) -> Verdict:
    """The verdict on one launch."""
    launch = look_at(facts, machine)
    now_s = steady_s(launch.work, machine)
    remarks = [
        remark
        for rule in RULES
        for finding in rule(launch)
        if (remark := _remark(launch, finding, now_s, launch_id)) is not None
    ]
    remarks += [
        _of_grid(launch, finding, before_s, after_s, launch_id)
        for finding, before_s, after_s in grid_findings(launch)
        if before_s >= LEAST_SPEEDUP * after_s
    ]
    remarks.sort(key=lambda remark: remark.better_ns / remark.predicted_ns)
    return Verdict(_cost(launch, now_s, launch_id), tuple(_lines(facts, launch_id)), tuple(remarks))


def _remark(launch: Launch, finding: Finding, now_s: float, launch_id: int) -> Remark | None:
    better_s = steady_s(finding.better, launch.machine)
    if now_s < _LEAST_OF_KIND.get(finding.kind, LEAST_SPEEDUP) * better_s:
        return None
    return _made(launch, finding, now_s, better_s, launch_id)


def _of_grid(
    launch: Launch, finding: Finding, before_s: float, after_s: float, launch_id: int
) -> Remark:
    return _made(launch, finding, before_s, after_s, launch_id)


def _made(
    launch: Launch, finding: Finding, now_s: float, better_s: float, launch_id: int
) -> Remark:
    facts = launch.facts
    machine = f"an {launch.machine.name} {launch.machine.basis}"
    times = f", {_time(better_s)} instead of {_time(now_s)} on {machine}"
    if now_s < _SHORTEST_S:
        times = f" in a grid that fills {machine}"
    prediction = f"predicted: {now_s / better_s:.3g}x as fast{times}"
    return Remark(
        kernel=facts.kernel,
        kernel_hash=facts.kernel_hash,
        launch_id=launch_id,
        file=finding.frame.file,
        line=finding.frame.line,
        kind=finding.kind,
        message=f"{finding.message} ({prediction})",
        predicted_ns=now_s * _S_TO_NS,
        better_ns=better_s * _S_TO_NS,
    )


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.2g} us"


def _cost(launch: Launch, now_s: float, launch_id: int) -> LaunchCost:
    facts, machine, work = launch.facts, launch.machine, launch.work
    bound, share = bound_of(work, machine)
    memory_s = tensor_dram_bytes(facts) / machine.dram_bytes_per_s
    return LaunchCost(
        kernel=facts.kernel,
        kernel_hash=facts.kernel_hash,
        launch_id=launch_id,
        file=facts.frame.file,
        line=facts.frame.line,
        grid=facts.grid,
        target=facts.target,
        machine=machine.name,
        ceilings=machine.basis,
        read_bytes=facts.read_bytes,
        written_bytes=facts.written_bytes,
        l2_bytes=round(work.l2_bytes),
        flops=facts.flops + sum(d.flops for d in facts.dots if d.unit == "fma"),
        tensor_flops=facts.tensor_flops,
        predicted_ns=now_s * _S_TO_NS,
        grid_ns=max(now_s, grid_s(work, machine)) * _S_TO_NS,
        roof_ns=max(memory_s / MEMORY_SHARE, work.tensor_s) * _S_TO_NS,
        bound=bound,
        bound_share=share,
        occupancy_percent=facts.occupancy.percent,
        limited_by=facts.occupancy.limited_by,
        is_exact=facts.exact,
        resources_ns={
            name: round(seconds * _S_TO_NS, 1)
            for name, seconds in resource_seconds(work, machine).items()
        },
    )


def _lines(facts: KernelFacts, launch_id: int) -> Iterator[LineCost]:
    blank = LineCost(
        facts.kernel, facts.kernel_hash, launch_id, "", 0, "", "", 0.0, 0.0, 0.0, 0, 0.0
    )
    for access in facts.accesses:
        if not access.requests:
            continue
        yield replace(
            blank,
            file=access.frame.file,
            line=access.frame.line,
            what=access.kind,
            tensor=access.tensor,
            requests=access.requests * access.executions,
            sectors=access.sectors / access.requests,
            needed_sectors=access.needed_sectors / access.requests,
            width_bytes=access.width_bytes,
        )
    for shared in facts.shared:
        yield replace(
            blank,
            file=shared.frame.file,
            line=shared.frame.line,
            what="shared",
            requests=shared.needed,
            conflicts=shared.wavefronts - shared.needed,
        )
