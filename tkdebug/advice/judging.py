"""Judgement of a launch's facts: costs, roof, and the remarks worth making, on its grid too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tkdebug.advice.facts import KernelFacts
from tkdebug.advice.findings import Finding, Launch, without_symptoms
from tkdebug.advice.machines import (
    MACHINES,
    MEMORY_SHARE,
    NAMED,
    Machine,
    fp32_flops_per_s,
    measured_machine,
    newest,
)
from tkdebug.advice.model import (
    Work,
    grid_s,
    grid_seconds,
    line_shares,
    longest,
    program_time,
    resource_seconds,
    steady_s,
    tensor_dram_bytes,
    without_waits,
)
from tkdebug.advice.records import (
    FILLED,
    LAUNCH,
    SMALL_GRID,
    SMALL_GRID_KIND,
    TINY_NS,
    LaunchCost,
    LineCost,
    LineTime,
    Remark,
    ranked,
)
from tkdebug.advice.rules import MASKED_SHARE, RULES, look_at, widest_access
from tkdebug.knobs import KNOBS

# Launching alone takes a good part of a launch that is shorter.
_SHORT_LAUNCH_S = 12e-6
# With next to nothing to do, a launch is a test's unless it takes so many times as long.
_TINY_FACTOR = 2
# The time to combine the results of programs that share the work of one: half a launch.
_COMBINING_S = 3e-6
# The least gains that the two findings on the grid have to promise.
_LEAST_SPLIT, _LEAST_EVEN = 1.3, 1.07
_MOST_ROUNDS = 8


def grid_findings(launch: Launch) -> Iterator[tuple[Finding, float, float]]:
    """Find the costs of the grid, each with the time as it is and as it would be."""
    facts, machine, work = launch.facts, launch.machine, launch.work
    now_s = grid_s(work, machine)
    is_tiny = steady_s(work, machine) < TINY_NS * 1e-9
    if now_s < _SHORT_LAUNCH_S * (_TINY_FACTOR if is_tiny else 1):
        return
    even_s = grid_s(work, machine, balanced=True)
    programs = facts.programs
    held = machine.sms * work.blocks
    split_s = grid_s(_split(launch, held / programs), machine) + _COMBINING_S
    if programs < machine.sms and even_s >= _LEAST_SPLIT * split_s:
        message = (
            f"a grid of {programs} on {machine.sms} multiprocessors, each program long; split the "
            "work of a program over several (by blocks of its loop), and combine their results"
        )
        yield Finding(facts.frame, "small-grid", message, work), now_s, split_s
    share = programs / machine.sms
    rounds = math.ceil(share)
    if 1 < share <= _MOST_ROUNDS and rounds > share and now_s >= _LEAST_EVEN * even_s:
        left = programs - (rounds - 1) * machine.sms
        message = (
            f"{programs} programs on {machine.sms} multiprocessors: {left} of them get {rounds}, "
            f"the others {rounds - 1}, and wait; {share:.2f} waves take as long as {rounds}; "
            "another tile size, or a persistent kernel, evens that out"
        )
        yield Finding(facts.frame, "wave-quantisation", message, work), now_s, even_s


def _split(launch: Launch, parts: float) -> Work:
    """The work if each program were split into `parts` that share the iterations of its loops.

    Loops with a loop-carried dependence are not split.
    """
    loops = [loop for loop in launch.facts.loops if loop.needs_before is None]
    most = max((loop.rounds for loop in loops), default=1.0)
    parts = max(1.0, min(parts, most))
    work = without_waits(
        launch.work, lambda w: 1 - 1 / parts if any(loop.has(w) for loop in loops) else 0.0
    )
    return replace(work, programs=max(1, round(work.programs * parts)))


# The least gain that a remark has to promise: more for causes that good kernels have, too, less for
# causes that are certain and seldom alone. Repeated work is in no good kernel.
LEAST_SPEEDUP = 1.07
_LEAST_OF_KIND = {
    "slow-function": 1.2,
    "no-wgmma": 1.12,
    "integer-division": 1.05,
    "low-occupancy-registers": 1.15,
    "low-occupancy-shared": 1.25,
    "bank-conflict": 1.4,
    "layout-conversion": 1.25,
    "barriers": 1.15,
    "not-pipelined": 1.1,
    "serial-loop": 1.3,
    "narrow-access": 1.03,
    "spill": 1.03,
    "small-product-tiles": 1.25,
    "small-tiles": 1.2,
}
# Waits and repeated work in each iteration of a loop count in short launches, too: the programs of
# a full GPU hide them from each other if iterations are as few as a test's.
_OF_ROUNDS = frozenset(
    ("dependent-loads", "serial-loop", "redundant-load", "repeated-work", "reduction-in-loop")
)
_LEAST_OF_ROUNDS = 1.3
# The share of a program's time from which certain causes are named, with their share, even where
# other programs run meanwhile.
_LEAST_SHARE = 0.005
_LEAST_SHARE_OF_KIND = {
    "integer-division": 0.2,
    "int64-arithmetic": 0.2,
    "dependent-loads": 0.25,
    "redundant-load": 0.2,
    "repeated-work": 0.2,
    "reduction-in-loop": 0.2,
}
# A launch that is shorter is judged as if the GPU were full alone: it takes as long to launch it.
SHORT_LAUNCH_S = 12e-6
_S_TO_NS = 1e9
# No launch is shorter: a small test problem's share of a full GPU is no time to show.
_SHORTEST_S = 1e-6


@dataclass(frozen=True, slots=True)
class Verdict:
    """Records to keep of a launch."""

    cost: LaunchCost
    lines: tuple[LineCost | LineTime, ...]
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class RemarkPlugin:
    """Object that an entry point of the group `tkdebug.remarks` names.

    Attributes:
        remarks: gives the remarks on a launch, from its facts and the GPU that predictions are made
            for.
    """

    remarks: Callable[[KernelFacts, Machine], Iterable[Remark]]


def machine_of(target: str) -> Machine | None:
    """Return the GPU that predictions for an architecture are made for, or None if unknown.

    It is the one that `advise_gpu` names; else one whose ceilings were measured here, else one of
    that architecture by its data sheet.
    """
    gpu = KNOBS.advise_gpu
    machine = None if gpu is None else NAMED.get((target, gpu))
    machine = machine or MACHINES.get(target)
    measured = None if machine is None else newest(target, gpu)
    return machine if machine is None or measured is None else measured_machine(machine, measured)


def judge(facts: KernelFacts, machine: Machine, launch_id: int) -> Verdict:
    """The verdict on one launch."""
    launch = look_at(facts, machine)
    now = Times(grid_s(launch.work, machine), steady_s(launch.work, machine))
    findings = without_symptoms(launch, (found for rule in RULES for found in rule(launch)))
    remarks = _causes_first(
        [
            (finding, remark)
            for finding in findings
            if (remark := _remark(launch, finding, now, launch_id)) is not None
        ]
    )
    remarks += [
        _after_rounds(
            _of_grid(launch, finding, before_s, after_s, now, launch_id), remarks, facts, machine
        )
        for finding, before_s, after_s in grid_findings(launch)
    ]
    lines: list[LineCost | LineTime] = [*_lines(facts, launch_id), *_times(launch, launch_id)]
    return Verdict(_cost(launch, now, launch_id), tuple(lines), tuple(ranked(remarks)))


def _causes_first(found: list[tuple[Finding, Remark]]) -> list[Remark]:
    """Return the remarks; a symptom's gain is lowered so that it ranks after its causes."""
    return [
        replace(
            remark,
            better_ns=max([remark.better_ns, *(_MORE * r.better_ns for r in causes)]),
            filled_better_ns=max(
                [remark.filled_better_ns, *(_MORE * r.filled_better_ns for r in causes)]
            ),
        )
        for finding, remark in found
        for causes in [[r for cause, r in found if cause.explains(finding)]]
    ]


def _after_rounds(
    grid: Remark, remarks: list[Remark], facts: KernelFacts, machine: Machine
) -> Remark:
    """Return a remark on a grid, ranked after waits in loops if few multiprocessors are idle.

    More programs then do no more than hide these waits.
    """
    if grid.kind != SMALL_GRID_KIND or machine.sms >= _LEAST_SPLIT * facts.programs:
        return grid
    waits = [one.better_ns for one in remarks if one.kind in _OF_ROUNDS | {"not-pipelined"}]
    return replace(grid, better_ns=max([grid.better_ns, *(_MORE * ns for ns in waits)]))


# A factor just above 1, by which times that would be equal get an order.
_MORE = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a launch: with its own grid, and as a part of one that fills the GPU."""

    launched_s: float
    filled_s: float

    @property
    def is_small(self) -> bool:
        """Whether the grid leaves much of the GPU idle."""
        return self.launched_s > SMALL_GRID * self.filled_s


def _remark(launch: Launch, finding: Finding, now: Times, launch_id: int) -> Remark | None:
    """The remark on a finding, or None if it promises too little on this grid and on a full one."""
    least, machine = _LEAST_OF_KIND.get(finding.kind, LEAST_SPEEDUP), launch.machine
    better = Times(grid_s(finding.better, machine), steady_s(finding.better, machine))
    if now.is_small:
        whole = [_of_whole_tiles(work, launch.facts) for work in (launch.work, finding.better)]
        now_s, better_s = (steady_s(work, machine) for work in whole)
        now, better = replace(now, filled_s=now_s), replace(better, filled_s=better_s)
    else:
        # The grid's waves are a finding of their own, if the grid stays large.
        better_s = better.launched_s if better.is_small else better.filled_s
        now, better = Times(now.filled_s, now.filled_s), Times(better_s, better_s)
    launched, filled = now.launched_s / better.launched_s, now.filled_s / better.filled_s
    counts = not now.is_small or now.launched_s >= SHORT_LAUNCH_S
    if not counts and finding.kind in _OF_ROUNDS:
        counts, least = launched >= _LEAST_OF_ROUNDS, min(least, _LEAST_OF_ROUNDS)
    is_named = finding.share >= _LEAST_SHARE_OF_KIND.get(finding.kind, _LEAST_SHARE)
    if not (filled >= least or (counts and launched >= least) or is_named):
        return None
    judged = LAUNCH if not now.is_small or (counts and launched >= filled) else FILLED
    return _made(launch, finding, now, better, judged, launch_id)


def _of_whole_tiles(work: Work, facts: KernelFacts) -> Work:
    """Return the work if masks let whole tiles through: a test's data do not fill them.

    Instructions are counted for whole tiles already. The work is unchanged if masks leave less
    than `MASKED_SHARE`, for which there is a remark.
    """
    tile = widest_access(facts)
    share = 1.0 if tile is None else tile.on_share
    if not MASKED_SHARE <= share < 1:
        return work
    return replace(
        work,
        dram_bytes=work.dram_bytes / share,
        l2_bytes=work.l2_bytes / share,
        awaited_dram_bytes=work.awaited_dram_bytes / share,
        awaited_l2_bytes=work.awaited_l2_bytes / share,
        request_s=work.request_s / share,
    )


def _of_grid(
    launch: Launch, finding: Finding, before_s: float, after_s: float, now: Times, launch_id: int
) -> Remark:
    before, after = Times(before_s, now.filled_s), Times(after_s, now.filled_s)
    return _made(launch, finding, before, after, LAUNCH, launch_id)


def _made(
    launch: Launch, finding: Finding, now: Times, better: Times, judged: str, launch_id: int
) -> Remark:
    facts = launch.facts
    return Remark(
        kernel=facts.kernel,
        kernel_hash=facts.kernel_hash,
        launch_id=launch_id,
        file=finding.frame.file,
        line=finding.frame.line,
        kind=finding.kind,
        message=f"{finding.message} ({_prediction(launch, now, better, judged)})",
        predicted_ns=now.launched_s * _S_TO_NS,
        better_ns=better.launched_s * _S_TO_NS,
        filled_ns=now.filled_s * _S_TO_NS,
        filled_better_ns=better.filled_s * _S_TO_NS,
        judged=judged,
    )


def _prediction(launch: Launch, now: Times, better: Times, judged: str) -> str:
    """Return the predictions for the launch as it is and for a grid that fills the GPU."""
    machine = f"an {launch.machine.name} {launch.machine.basis}"
    launched = f"{now.launched_s / better.launched_s:.3g}x as fast"
    filled = f"{now.filled_s / better.filled_s:.3g}x as fast"
    times = ""
    if now.launched_s >= _SHORTEST_S:
        times = f", {_time(better.launched_s)} instead of {_time(now.launched_s)}"
    if judged == FILLED:
        as_it_is = f"; as it is {launched}{times}" if times else ""
        return f"predicted: {filled} in a grid that fills {machine}{as_it_is}"
    if now.is_small and filled != launched and now.filled_s != better.filled_s:
        return f"predicted: {launched}{times} on {machine}; {filled} in a grid that fills it"
    return f"predicted: {launched}{times} on {machine}"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.2g} us"


def _cost(launch: Launch, now: Times, launch_id: int) -> LaunchCost:
    facts, machine, work = launch.facts, launch.machine, launch.work
    times = resource_seconds(work, machine)
    bound, share = longest(times)
    launched_bound, launched_share = longest(grid_seconds(work, machine))
    memory_s = tensor_dram_bytes(facts) / machine.dram_bytes_per_s
    program = program_time(work, machine)
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
        predicted_ns=now.filled_s * _S_TO_NS,
        grid_ns=max(now.launched_s, now.filled_s) * _S_TO_NS,
        roof_ns=max(memory_s / MEMORY_SHARE, work.tensor_s) * _S_TO_NS,
        bound=bound,
        bound_share=share,
        occupancy_percent=facts.occupancy.percent,
        limited_by=facts.occupancy.limited_by,
        is_exact=facts.exact,
        resources_ns=_nanoseconds(times),
        launched_bound=launched_bound,
        launched_share=launched_share,
        program_ns=_nanoseconds(
            {
                "waiting for memory": program.waiting,
                "computing": program.computing,
                "moving data": program.moving,
                "overlapped": program.overlapped,
            }
        ),
        ceilings_per_s=_ceilings(launch),
    )


def _ceilings(launch: Launch) -> dict[str, float]:
    facts, machine, tensor_s = launch.facts, launch.machine, launch.work.tensor_s
    found = {"memory": machine.dram_bytes_per_s * MEMORY_SHARE, "fp32": fp32_flops_per_s(machine)}
    if tensor_s:
        found["tensor cores"] = facts.tensor_flops / tensor_s
    return found


def _nanoseconds(times: Mapping[str, float]) -> Mapping[str, float]:
    return {name: round(seconds * _S_TO_NS, 1) for name, seconds in times.items()}


def _times(launch: Launch, launch_id: int) -> Iterator[LineTime]:
    facts = launch.facts
    shares = line_shares(facts, launch.work, launch.machine)
    issued = {line.frame: line.by_pipe.get("issue", 0.0) for line in facts.code}
    places: dict[tuple[str, int], tuple[float, float]] = {}
    for frame in {**shares, **issued}:
        share, count = places.get((frame.file, frame.line), (0.0, 0.0))
        added = share + shares.get(frame, 0.0), count + issued.get(frame, 0.0)
        places[frame.file, frame.line] = added
    for (file, line), (share, count) in sorted(places.items()):
        yield LineTime(facts.kernel, facts.kernel_hash, launch_id, file, line, share, count)


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
