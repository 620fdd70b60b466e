"""Model of a launch's time: work by resource, over the GPU's work in a second.

The model is simple on purpose, and `docs/advise.md` has all of it. Each resource has a time of its
own; they overlap, the largest counts most (a sum of fourth powers). One of them is latency: the
time of a program from its begin to its end, over the number of programs that a multiprocessor holds
at a time. Remarks are made by changing the work that one cause adds, and asking again.

The time is shared out by the resources that make it: each has a share of the sum of fourth powers,
which goes to lines as they use the resource: bytes, instructions, cycles. What belongs to no line,
such as a block's setup, is spread as the rest is, so that the lines' times add up to the launch's.

Invariant: the time of a grid that fills the GPU is `steady_s`, that of the grid as it is `grid_s`;
each is continuous in the number of programs, except at whole waves of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tkdebug.advice.facts import AccessFacts, KernelFacts, WaitFacts
from tkdebug.advice.machines import LINE_BYTES, MEMORY_SHARE, SECTOR_BYTES, TENSOR_SHARE, Machine
from tkdebug.errors import Frame

_POWER = 4
# Blocks begin and end: registers and shared memory are set up, arguments are read.
_BLOCK_S = 300e-9
# Atomics on one address follow each other so far apart: two cycles of the cache or so; measured.
ATOMIC_S = 1.2e-9
# The share of one multiprocessor of the second-level cache's bandwidth.
_SM_BYTES_PER_CYCLE = 64
# The bandwidth of one of its slices.
_SLICE_BYTES_PER_CYCLE = 64
# Requests on their way that a multiprocessor keeps track of.
_REQUESTS_IN_FLIGHT = 300
_LONE_SECTOR = 3
_CACHED_BYTES = 20 << 20
# The share of a load's latency in each execution: loads that wait less run ahead.
_HIDDEN_SHARE = 0.05
_OF_MEMORY = ("load", "copy", "atomic")
# Causes of a warp's waits on its multiprocessor.
ON_CHIP = ("spill", "shared", "shuffle", "barrier", "special", "tensor", "dependency", "other")
_T = TypeVar("_T")
_OF_CODE = " instructions"
_PIPE_NAMES = {"ALU": "alu", "integer multiply": "imad"}


@dataclass(frozen=True, slots=True)
class Work:
    """Work that a launch asks of each resource.

    Attributes:
        dram_bytes: moved from and to memory, each sector once, and spills that no cache holds.
        l2_bytes: moved from and to the second-level cache.
        l1_wavefronts: wavefronts of 128 bytes, through the first-level cache and shared memory.
        pipes: instructions of warps by pipe; "issue" is all of them.
        tensor_s: the time that tensor cores take at their peak, all of them busy.
        atomic_s: the time of the most used address.
        waits: the waits of a warp of one program.
        awaited_dram_bytes: the part of `dram_bytes` that is loaded while a program waits.
        awaited_l2_bytes: the same part of `l2_bytes`.
        request_s: the times that requests to memory are on their way, all added up.
        blocks: the blocks of a multiprocessor at a time.
        warps: the warps of a multiprocessor at a time.
        programs: the programs of the launch.
    """

    dram_bytes: float
    l2_bytes: float
    l1_wavefronts: float
    pipes: Mapping[str, float]
    tensor_s: float
    atomic_s: float
    waits: tuple[WaitFacts, ...]
    awaited_dram_bytes: float
    awaited_l2_bytes: float
    request_s: float
    blocks: int
    warps: int
    programs: int

    @property
    def warps_of_program(self) -> float:
        """Warps of one program."""
        return self.warps / self.blocks


def tensor_seconds(facts: KernelFacts, machine: Machine) -> float:
    """Return the time of products on tensor cores, at the share of their peak that is reached."""
    total = 0.0
    for dot in facts.dots:
        if dot.unit == "fma":
            continue
        peak = machine.tensor_flops.get(dot.bits) or machine.tensor_flops[16] * 16 / dot.bits
        share = 1.0 if dot.unit == "wgmma" else machine.mma_share
        total += dot.flops * dot.passes / (peak * share * TENSOR_SHARE)
    return total


def atomic_seconds(
    facts: KernelFacts, machine: Machine, is_combined: Callable[[AccessFacts], bool] | None = None
) -> float:
    """Return the time of atomics: on the most used sector, or all over the slices.

    A slice of the second-level cache takes one element after the other, of whatever address; this
    fits measured sums by group, by column and by row. It moves 64 bytes a cycle, so there are as
    many as its bandwidth needs. Source: NVIDIA A100 white paper, "A100 L2 cache": 5120 bytes a
    cycle; the same address once a cycle at most: Kepler GK110 white paper, "Atomic operations".

    Args:
        facts: the facts of the launch.
        machine: the GPU.
        is_combined: tells whether an access's programs add up first, and do one atomic for each
            address.
    """
    slices = machine.l2_bytes_per_s / (machine.clock_hz * _SLICE_BYTES_PER_CYCLE)
    longest = elements = 0.0
    for access in facts.accesses:
        if access.kind != "atomic":
            continue
        each = meeting(access) if is_combined is not None and is_combined(access) else 1.0
        longest = max(longest, access.same_sector / each)
        elements += access.elements / each
    return ATOMIC_S * max(longest, elements / slices)


def meeting(access: AccessFacts) -> float:
    """Mean number of atomics on one address in an execution, at least 1."""
    each = access.elements / max(1, access.executions)
    return max(1.0, each / access.addresses) if access.addresses else 1.0


def l2_bytes(access: AccessFacts) -> float:
    """The bytes through the second-level cache: each execution's sectors.

    Sectors without their neighbours cost more: measured on columns of a matrix.
    """
    alone = access.program_sectors > 2 * access.needed_sectors
    scale = _LONE_SECTOR if alone else 1
    return access.executions * access.program_sectors * SECTOR_BYTES * scale


def dram_bytes(access: AccessFacts) -> float:
    """Return the bytes of the sectors that an access touches in the launch, each once."""
    return access.footprint_bytes + access.overfetch_bytes


def reread_bytes(access: AccessFacts, facts: KernelFacts, machine: Machine) -> float:
    """Return the bytes that an access reads from memory again, since no cache has kept them.

    Programs that run at the same time keep in the second-level cache what each has read before, as
    far as there is room beside all else that they read and write.
    """
    first = next((a for a in facts.accesses if a.op_id == access.loaded_by), None)
    if first is None or first is access:
        return 0.0
    running = min(facts.programs, machine.sms * max(1, facts.occupancy.blocks))
    read = {a.tensor for a in facts.accesses if a.kind == "load"}
    touched = sum(
        a.footprint_bytes
        for a in facts.accesses
        if a.loaded_by is None and (a.kind == "load" or a.tensor not in read)
    )
    kept = running * touched / facts.programs
    if kept <= machine.l2_bytes:
        return 0.0
    moved = access.executions * access.program_sectors * SECTOR_BYTES
    return moved * (1 - machine.l2_bytes / kept)


def swept_bytes(access: AccessFacts, facts: KernelFacts, machine: Machine) -> float:
    """Return the bytes that a load reads from memory again for other programs of the grid.

    Along an axis that its addresses do not depend on, programs read the same. Axes before it run
    first: what these read meanwhile has to fit the second-level cache.
    """
    if access.kind != "load" or access.path == "bulk":
        return 0.0
    running, programs, times, missed = machine.sms * max(1, facts.occupancy.blocks), 1, 1.0, 0.0
    for axis, extent in enumerate(facts.grid):
        if axis not in access.axes and any(f < axis and facts.grid[f] > 1 for f in access.axes):
            later = (facts.grid[f] for f in access.axes if f > axis)
            kept = access.footprint_bytes / math.prod(later)
            times *= max(1.0, extent / max(1.0, running / programs))
            missed = max(missed, 1 - machine.l2_bytes / kept if kept else 0.0)
        programs *= extent
    return access.footprint_bytes * (times - 1) * missed


def latency_s(access: AccessFacts, machine: Machine) -> float:
    """Return the latency of an access: memory that is read for the first time is not cached."""
    moved = access.executions * access.program_sectors * SECTOR_BYTES
    first = min(1.0, dram_bytes(access) / moved) if moved else 1.0
    again_s = access.kept * machine.l1_latency_s + (1 - access.kept) * machine.l2_latency_s
    return first * machine.memory_latency_s + (1 - first) * again_s


def request_s(access: AccessFacts, machine: Machine) -> float:
    """Return the time that all requests of an access are on their way, added up."""
    return access.executions * access.requests * latency_s(access, machine)


def local_l2_bytes(facts: KernelFacts, machine: Machine) -> float:
    """Return the local memory's bytes through L2: those that the first cache has no room for."""
    blocks = max(1, facts.occupancy.blocks)
    threads = blocks * facts.num_warps * 32
    room = max(0, machine.l1_bytes - blocks * facts.shared_bytes)
    held = threads * facts.local_bytes
    if held <= room:
        return 0.0
    return sum(facts.local_lines.values()) * LINE_BYTES * (1 - room / held)


def local_dram_bytes(facts: KernelFacts, machine: Machine) -> float:
    """Return the local memory's bytes from and to memory: those that no cache has room for."""
    threads = max(1, facts.occupancy.blocks) * facts.num_warps * 32
    held = machine.sms * threads * facts.local_bytes
    if held <= machine.l2_bytes:
        return 0.0
    return local_l2_bytes(facts, machine) * (1 - machine.l2_bytes / held)


def tensor_dram_bytes(facts: KernelFacts) -> float:
    """Return the tensors' bytes from and to memory; a product's operands may lie in a cache."""
    moved = facts.read_bytes + facts.written_bytes
    return 0 if facts.dots and moved < _CACHED_BYTES else moved


def awaited_loads(facts: KernelFacts, machine: Machine) -> list[AccessFacts]:
    """Loads whose data a program waits for; none if they run ahead of their use.

    Of loads that are made together, only the last to come is waited for.
    """
    loads = [a for a in facts.accesses if a.kind == "load" and a.path == "registers"]
    waited = sum(wait.cycles for wait in facts.waits if wait.cause == "load")
    most = max((a.executions for a in loads), default=0) / facts.programs
    is_hidden = waited < _HIDDEN_SHARE * most * machine.l2_latency_s * machine.clock_hz
    return [] if is_hidden else loads


def work_of(facts: KernelFacts, machine: Machine) -> Work:
    """The work of a launch."""
    pipes: dict[str, float] = {}
    for line in facts.code:
        for pipe, count in line.by_pipe.items():
            pipes[pipe] = pipes.get(pipe, 0.0) + count
    shared = sum(s.wavefronts for s in facts.shared)
    local = sum(facts.local_lines.values())
    direct = [a for a in facts.accesses if a.path != "bulk"]
    awaited = awaited_loads(facts, machine)
    again = sum(reread_bytes(a, facts, machine) for a in facts.accesses)
    tensors = tensor_dram_bytes(facts) + again
    swept = sum(swept_bytes(a, facts, machine) for a in facts.accesses)
    awaited_swept = sum(swept_bytes(a, facts, machine) for a in awaited)
    return Work(
        dram_bytes=tensors + swept + local_dram_bytes(facts, machine),
        l2_bytes=sum(map(l2_bytes, facts.accesses)) + local_l2_bytes(facts, machine),
        l1_wavefronts=sum(a.executions * a.lines for a in direct) + shared + local,
        pipes=pipes,
        tensor_s=tensor_seconds(facts, machine),
        atomic_s=atomic_seconds(facts, machine),
        waits=facts.waits,
        awaited_dram_bytes=min(tensors, again + sum(map(dram_bytes, awaited))) + awaited_swept,
        awaited_l2_bytes=sum(map(l2_bytes, awaited)),
        request_s=sum(request_s(a, machine) for a in direct if a.path == "registers"),
        blocks=max(1, facts.occupancy.blocks),
        warps=max(1, facts.occupancy.warps),
        programs=facts.programs,
    )


# One program


@dataclass(frozen=True, slots=True)
class ProgramTime:
    """Seconds that one program takes from its begin to its end, whatever runs beside it.

    Attributes:
        waiting: the time of waits for memory, in a warp.
        computing: instructions, and a warp's waits between them on its multiprocessor; as
            long as the busiest unit of all its warps at least.
        moving: the data that it waits for, at its share of the bandwidth.
        overlapped: the part that its warps do at the same time: warps of a program without barriers
            are at different places.
    """

    waiting: float
    computing: float
    moving: float
    overlapped: float

    @property
    def total(self) -> float:
        """Seconds of all parts without the overlap, and of a block's setup."""
        return self.waiting + self.computing + self.moving - self.overlapped + _BLOCK_S


def program_time(work: Work, machine: Machine, busy_sms: float | None = None) -> ProgramTime:
    """The time of one program that has a multiprocessor for itself.

    Args:
        work: the work of the launch.
        machine: the GPU.
        busy_sms: multiprocessors that share the bandwidth; None for all of them.
    """
    programs, clock_hz = max(1, work.programs), machine.clock_hz
    waiting = sum(wait.cycles for wait in work.waits if wait.cause in _OF_MEMORY) / clock_hz
    on_chip = sum(wait.cycles for wait in work.waits) / clock_hz - waiting
    issued = work.pipes.get("issue", 0.0) / (programs * work.warps_of_program) / clock_hz
    busy = max(_busy_cycles(work, machine).values(), default=0.0)
    computing = max(
        issued + on_chip,
        busy / programs / clock_hz,
        work.l1_wavefronts / programs / clock_hz,
        work.tensor_s * machine.sms / programs,
    )
    share = machine.dram_bytes_per_s * MEMORY_SHARE / (busy_sms or machine.sms)
    port = clock_hz * _SM_BYTES_PER_CYCLE
    moving = max(
        work.awaited_dram_bytes / programs / min(share, port),
        work.awaited_l2_bytes / programs / port,
    )
    overlapped = 0.0
    if not any(wait.cause == "barrier" for wait in work.waits):
        # The waits and the work of a single warp are one after the other.
        least = max(waiting + issued + on_chip, computing, moving)
        together = waiting + computing + moving - least
        overlapped = together * (1 - 1 / work.warps_of_program)
    return ProgramTime(waiting, computing, moving, overlapped)


# A grid that fills the GPU


def resource_seconds(work: Work, machine: Machine) -> dict[str, float]:
    """The time of each resource if it were the only one and the grid endless."""
    cycles = machine.cycles_per_s
    times = {
        "memory": work.dram_bytes / (machine.dram_bytes_per_s * MEMORY_SHARE),
        "L2 cache": work.l2_bytes / machine.l2_bytes_per_s,
        "L1 and shared memory": work.l1_wavefronts / cycles,
        "tensor cores": work.tensor_s,
        "atomics": work.atomic_s,
        "latency": work.programs / (machine.sms * work.blocks) * program_time(work, machine).total,
        "requests in flight": work.request_s / (machine.sms * _REQUESTS_IN_FLIGHT),
    }
    for pipe, busy in _busy_cycles(work, machine).items():
        times[f"{_PIPES.get(pipe, pipe)} instructions"] = busy / cycles
    return times


# Names that people read.
_PIPES = {"alu": "ALU", "imad": "integer multiply"}


def _busy_cycles(work: Work, machine: Machine) -> dict[str, float]:
    """Cycles that each pipe is busy if one multiprocessor executes all instructions."""
    pipes = dict(work.pipes)
    # Products of integers run on one half of the units that add and multiply fp32.
    pipes["fp32"] = pipes.get("fp32", 0.0) + pipes.get("imad", 0.0)
    rates = machine.warps_per_cycle
    return {pipe: count / rates[pipe] for pipe, count in pipes.items() if pipe in rates}


def together(times: Mapping[str, float]) -> float:
    """The time of resources that overlap: the norm of their times, of order `_POWER`."""
    largest = max(times.values(), default=0.0)
    if largest <= 0:
        return 0.0
    total: float = sum((t / largest) ** _POWER for t in times.values())
    return largest * float(total ** (1 / _POWER))


def steady_s(work: Work, machine: Machine) -> float:
    """Time of the launch's work as a part of a grid that fills the GPU."""
    return together(resource_seconds(work, machine))


# The grid as it is

_OF_SMS = ("L1 and shared memory", "tensor cores")


def grid_seconds(work: Work, machine: Machine, balanced: bool = False) -> dict[str, float]:
    """The time of each resource for the grid as it is; if `balanced`, with divisible programs."""
    times = resource_seconds(work, machine)
    share = work.programs / machine.sms
    rounds = max(1.0, share) if balanced else math.ceil(share)
    for name in times:
        if name in _OF_SMS or name.endswith("instructions"):
            times[name] *= rounds / share
    busy_sms = min(machine.sms, work.programs)
    times["latency"] = max(1.0, rounds / work.blocks) * program_time(work, machine, busy_sms).total
    times["bytes of a multiprocessor"] = work.l2_bytes / (
        busy_sms * machine.clock_hz * _SM_BYTES_PER_CYCLE
    )
    return times


def grid_s(work: Work, machine: Machine, balanced: bool = False) -> float:
    """Time of the launch for the grid as it is; if `balanced`, with divisible programs."""
    return together(grid_seconds(work, machine, balanced))


def longest(times: Mapping[str, float]) -> tuple[str, float]:
    """The resource that takes longest, and its share of the predicted time."""
    name = max(times, key=lambda n: times[n])
    total = together(times)
    return name, times[name] / total if total else 0.0


# Changes that rules make


def without_waits(work: Work, share: Callable[[WaitFacts], float]) -> Work:
    """The work with shorter waits, each by its given share."""
    left = [(wait, 1 - share(wait)) for wait in work.waits]
    return replace(
        work,
        waits=tuple(
            wait if kept == 1 else replace(wait, cycles=wait.cycles * kept)
            for wait, kept in left
            if kept > 0
        ),
    )


# Shares of lines


def line_shares(facts: KernelFacts, work: Work, machine: Machine) -> dict[Frame, float]:
    """Return the share of each line in the launch's predicted time; they add up to 1.

    Empty if the model attributes time to no line.
    """
    times = grid_seconds(work, machine)
    largest = max(times.values(), default=0.0)
    shares: dict[Frame, float] = {}
    for resource, seconds in times.items():
        weight = (seconds / largest) ** _POWER if largest else 0.0
        uses = _uses(resource, facts, machine)
        total = sum(uses.values())
        if weight and total:
            for frame, use in uses.items():
                shares[frame] = shares.get(frame, 0.0) + weight * use / total
    whole = sum(shares.values())
    return {frame: share / whole for frame, share in shares.items()} if whole else {}


def _uses(resource: str, facts: KernelFacts, machine: Machine) -> Mapping[Frame, float]:
    """Return by line how much it uses of a resource, in whatever unit."""
    match resource:
        case "memory":
            return _summed(facts.accesses, lambda one: (one.frame, dram_bytes(one)))
        case "L2 cache" | "bytes of a multiprocessor":
            return _summed(facts.accesses, lambda one: (one.frame, l2_bytes(one)))
        case "L1 and shared memory":
            uses = _summed(facts.accesses, lambda one: (one.frame, one.executions * one.lines))
            for shared in facts.shared:
                uses[shared.frame] = uses.get(shared.frame, 0.0) + shared.wavefronts
            for frame, lines in facts.local_lines.items():
                uses[frame] = uses.get(frame, 0.0) + lines
            return uses
        case "tensor cores":
            dots = (dot for dot in facts.dots if dot.unit != "fma")
            return _summed(dots, lambda dot: (dot.frame, float(dot.flops * dot.passes)))
        case "atomics":
            atomics = (one for one in facts.accesses if one.kind == "atomic")
            return _summed(atomics, lambda one: (one.frame, float(one.elements)))
        case "requests in flight":
            return _summed(facts.accesses, lambda one: (one.frame, request_s(one, machine)))
        case "latency":
            return _cycles(facts)
    pipe = resource.removesuffix(_OF_CODE)
    pipe = _PIPE_NAMES.get(pipe, pipe)
    return _summed(facts.code, lambda line: (line.frame, line.by_pipe.get(pipe, 0.0)))


def _cycles(facts: KernelFacts) -> dict[Frame, float]:
    """Return the cycles of one program by line: a warp's waits, and what its warps issue."""
    cycles = _summed(facts.waits, lambda wait: (wait.frame, wait.cycles))
    warps = max(1, facts.programs * facts.num_warps)
    for line in facts.code:
        issued = line.by_pipe.get("issue", 0.0) / warps
        cycles[line.frame] = cycles.get(line.frame, 0.0) + issued
    return cycles


def _summed(items: Iterable[_T], part: Callable[[_T], tuple[Frame, float]]) -> dict[Frame, float]:
    sums: dict[Frame, float] = {}
    for item in items:
        frame, amount = part(item)
        sums[frame] = sums.get(frame, 0.0) + amount
    return sums
