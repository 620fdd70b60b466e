"""Predicted times by line: a launch's time shared out by the resources that make it.

The model's time is the fourth root of a sum of fourth powers, one for each resource; so each has a
share of it. A resource's share goes to lines as they use the resource: bytes, instructions, cycles.
What belongs to no line, such as a block's setup, is spread as the rest is, so that the lines' times
add up to the launch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from tkdebug.advice.facts import KernelFacts
from tkdebug.advice.machines import Machine
from tkdebug.advice.model import (
    Work,
    dram_bytes,
    grid_seconds,
    l2_bytes,
    request_s,
)
from tkdebug.errors import Frame

_POWER = 4
_T = TypeVar("_T")
_OF_CODE = " instructions"
_PIPE_NAMES = {"ALU": "alu", "integer multiply": "imad"}


def line_shares(facts: KernelFacts, work: Work, machine: Machine) -> dict[Frame, float]:
    """Return the share of each line in the launch's predicted time; they add up to 1.

    Empty where the model knows of no line that takes any.
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
