"""How long a launch takes, predicted: work by resource, over what a GPU does of it in a second.

The model is simple on purpose, and `docs/advise.md` has all of it. Each resource has a time of its
own; they overlap, the largest counts most (a sum of fourth powers). Remarks are made by changing
the work that one cause adds, and asking again.

Invariant: predictions are for steady state (`steady_s`) unless the grid is what is looked at, so
that a small test problem gets the remarks of the large one it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tkdebug.advice.facts import AccessFacts, KernelFacts
from tkdebug.advice.machines import (
    LINE_BYTES,
    MEMORY_SHARE,
    SECTOR_BYTES,
    TENSOR_SHARE,
    Machine,
)

_POWER = 4
# Blocks begin and end: registers and shared memory are set up, arguments are read.
_BLOCK_S = 300e-9
# Instructions in flight that keep the four schedulers of a multiprocessor busy.
_BUSY_WARPS = 12
# Atomics on one address follow each other so far apart: two cycles of the cache or so; measured.
ATOMIC_S = 1.2e-9
# What one multiprocessor gets of the second-level cache.
_SM_BYTES_PER_CYCLE = 64
# What one of its slices moves.
_SLICE_BYTES_PER_CYCLE = 64
# Requests on their way that a multiprocessor keeps track of.
_REQUESTS_IN_FLIGHT = 300
_LONE_SECTOR = 3
_CACHED_BYTES = 20 << 20


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch asks of each resource.

    Attributes:
        dram_bytes: moved from and to memory, each sector once, and spills that no cache holds.
        l2_bytes: moved from and to the second-level cache.
        l1_wavefronts: of 128 bytes, through the first-level cache and shared memory.
        pipes: instructions of warps by pipe; "issue" is all of them.
        tensor_s: that tensor cores take at their peak, all of them busy.
        atomic_s: that the most used address takes.
        waits: for memory, of one program after the other.
        serial_s: of one program, what it moves and multiplies between such waits: in a loop with
            nothing ahead of it, a round's transfer and product begin when the wait is over.
        requests: to memory.
        blocks: of a multiprocessor at a time.
        warps: of a multiprocessor at a time.
        programs: of the launch.
    """

    dram_bytes: float
    l2_bytes: float
    l1_wavefronts: float
    pipes: Mapping[str, float]
    tensor_s: float
    atomic_s: float
    waits: float
    requests: float
    blocks: int
    warps: int
    programs: int
    serial_s: float = 0.0


def tensor_seconds(facts: KernelFacts, machine: Machine) -> float:
    """What the products take on tensor cores at the share of their peak that is reached."""
    total = 0.0
    for dot in facts.dots:
        if dot.unit == "fma":
            continue
        peak = machine.tensor_flops.get(dot.bits) or machine.tensor_flops[16] * 16 / dot.bits
        share = 1.0 if dot.unit == "wgmma" else machine.mma_share
        total += dot.flops * dot.passes / (peak * share * TENSOR_SHARE)
    return total


def waited_for(facts: KernelFacts) -> list[AccessFacts]:
    """Loads of loops with products of which a pass says why nothing runs ahead of them."""
    return [
        a
        for a in facts.accesses
        if facts.dots
        and a.kind == "load"
        and a.in_loop
        and a.path == "registers"
        and a.op_id in facts.why_not_pipelined
    ]


def _serial_seconds(facts: KernelFacts, machine: Machine) -> float:
    """Of one program that has a multiprocessor for itself, in loops that wait for their loads."""
    waited = waited_for(facts)
    if not waited:
        return 0.0
    moved = sum(map(l2_bytes, waited)) / (machine.clock_hz * _SM_BYTES_PER_CYCLE)
    return (moved + tensor_seconds(facts, machine) * machine.sms) / facts.programs


def atomic_seconds(
    facts: KernelFacts, machine: Machine, is_combined: Callable[[AccessFacts], bool] | None = None
) -> float:
    """What atomics that meet take: those on the most used address, or all of them over the slices.

    A slice of the second-level cache moves 64 bytes a cycle, so there are as many as its bandwidth
    needs. Source: NVIDIA A100 white paper, "A100 L2 cache": 5120 bytes a cycle; the same address
    once a cycle at most: Kepler GK110 white paper, "Atomic operations".

    Args:
        facts: of the launch.
        machine: the GPU.
        is_combined: of which accesses each program first adds up what is for one address.
    """
    slices = machine.l2_bytes_per_s / (machine.clock_hz * _SLICE_BYTES_PER_CYCLE)
    longest = again = 0.0
    for access in facts.accesses:
        if access.kind != "atomic":
            continue
        if is_combined is not None and is_combined(access):
            longest = max(longest, access.same_address / meeting(access))
        else:
            longest = max(longest, access.same_address)
            again += max(0.0, access.turns - access.sectors) * access.executions
    return ATOMIC_S * max(longest, again / slices)


def meeting(access: AccessFacts) -> float:
    """Atomics of one execution for each address that it has."""
    each = access.elements / max(1, access.executions)
    return max(1.0, each / access.addresses) if access.addresses else 1.0


def l2_bytes(access: AccessFacts) -> float:
    """Through the second-level cache: an execution's sectors, of which the first has copies.

    Sectors without their neighbours cost more: measured on columns of a matrix.
    """
    alone = access.sectors > 2 * access.needed_sectors
    scale = _LONE_SECTOR if alone else 1
    return access.executions * access.program_sectors * SECTOR_BYTES * scale


def local_l2_bytes(facts: KernelFacts, machine: Machine) -> float:
    """Of local memory, through the second-level cache: what the first has no room for."""
    blocks = max(1, facts.occupancy.blocks)
    threads = blocks * facts.num_warps * 32
    room = max(0, machine.l1_bytes - blocks * facts.shared_bytes)
    held = threads * facts.local_bytes
    if held <= room:
        return 0.0
    return sum(facts.local_lines.values()) * LINE_BYTES * (1 - room / held)


def local_dram_bytes(facts: KernelFacts, machine: Machine) -> float:
    """Of local memory, from and to memory: what the second-level cache has no room for."""
    threads = max(1, facts.occupancy.blocks) * facts.num_warps * 32
    held = machine.sms * threads * facts.local_bytes
    if held <= machine.l2_bytes:
        return 0.0
    return local_l2_bytes(facts, machine) * (1 - machine.l2_bytes / held)


def tensor_dram_bytes(facts: KernelFacts) -> float:
    """Of tensors, from and to memory; operands of products that fit a cache lie there."""
    moved = facts.read_bytes + facts.written_bytes
    return 0 if facts.dots and moved < _CACHED_BYTES else moved


def work_of(facts: KernelFacts, machine: Machine) -> Work:
    """The work of a launch."""
    pipes: dict[str, float] = {}
    for line in facts.code:
        for pipe, count in line.by_pipe.items():
            pipes[pipe] = pipes.get(pipe, 0.0) + count
    shared = sum(s.wavefronts for s in facts.shared)
    local = sum(facts.local_lines.values())
    direct = [a for a in facts.accesses if a.path != "bulk"]
    return Work(
        dram_bytes=tensor_dram_bytes(facts) + local_dram_bytes(facts, machine),
        l2_bytes=sum(map(l2_bytes, facts.accesses)) + local_l2_bytes(facts, machine),
        l1_wavefronts=sum(a.executions * a.lines for a in direct) + shared + local,
        pipes=pipes,
        tensor_s=tensor_seconds(facts, machine),
        atomic_s=atomic_seconds(facts, machine),
        waits=facts.chain + facts.pipelined_chain,
        requests=sum(a.executions * a.requests for a in direct if a.path == "registers"),
        blocks=max(1, facts.occupancy.blocks),
        warps=max(1, facts.occupancy.warps),
        programs=facts.programs,
        serial_s=_serial_seconds(facts, machine),
    )


def resource_seconds(work: Work, machine: Machine) -> dict[str, float]:
    """The time of each resource, were there nothing else and the grid endless."""
    cycles = machine.cycles_per_s
    busy = min(1.0, work.warps / _BUSY_WARPS)
    times = {
        "memory": work.dram_bytes / (machine.dram_bytes_per_s * MEMORY_SHARE),
        "L2 cache": work.l2_bytes / machine.l2_bytes_per_s,
        "L1 and shared memory": work.l1_wavefronts / cycles,
        "tensor cores": work.tensor_s,
        "atomics": work.atomic_s,
        "latency": work.programs
        / (machine.sms * work.blocks)
        * (work.waits * machine.memory_latency_s + work.serial_s + _BLOCK_S),
        "requests in flight": work.requests
        * machine.memory_latency_s
        / (machine.sms * _REQUESTS_IN_FLIGHT),
    }
    for pipe, count in work.pipes.items():
        rate = machine.warps_per_cycle.get(pipe)
        if rate is not None:
            times[f"{pipe} instructions"] = count / (rate * cycles * busy)
    return times


def together(times: Mapping[str, float]) -> float:
    """Times that overlap."""
    largest = max(times.values(), default=0.0)
    if largest <= 0:
        return 0.0
    total: float = sum((t / largest) ** _POWER for t in times.values())
    return largest * float(total ** (1 / _POWER))


def steady_s(work: Work, machine: Machine) -> float:
    """Time of the launch's work on a GPU that is full of it."""
    return together(resource_seconds(work, machine))


# The grid against the GPU

_OF_SMS = ("L1 and shared memory", "tensor cores", "latency")


def grid_s(work: Work, machine: Machine, balanced: bool = False) -> float:
    """Time of the launch as its grid fills the GPU; `balanced`: were programs divisible."""
    times = resource_seconds(work, machine)
    share = work.programs / machine.sms
    imbalance = max(1.0, 1 / share) if balanced else math.ceil(share) / share
    for name in times:
        if name in _OF_SMS or name.endswith("instructions"):
            times[name] *= imbalance
    waves = work.programs / (machine.sms * work.blocks)
    times["latency"] = max(1.0, waves) * (
        work.waits * machine.memory_latency_s + work.serial_s + _BLOCK_S
    )
    busy = min(machine.sms, work.programs)
    times["bytes of a multiprocessor"] = work.l2_bytes / (
        busy * machine.clock_hz * _SM_BYTES_PER_CYCLE
    )
    return together(times)


def program_s(work: Work, machine: Machine) -> float:
    """Time of one program that has a multiprocessor for itself."""
    alone = replace(work, warps=max(1, work.warps // work.blocks), blocks=1)
    times = resource_seconds(alone, machine)
    scale = machine.sms / max(1, work.programs)
    return together({name: t * scale for name, t in times.items()})


def bound_of(work: Work, machine: Machine) -> tuple[str, float]:
    """The resource that takes longest, and its share of the predicted time."""
    times = resource_seconds(work, machine)
    name = max(times, key=lambda n: times[n])
    total = together(times)
    return name, times[name] / total if total else 0.0


def wavefronts_of(bytes_: float) -> float:
    """Wavefronts that so many bytes take without gaps."""
    return bytes_ / LINE_BYTES
