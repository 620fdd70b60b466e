"""Rules about the grid: too few programs, and programs that do not divide over the GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tkdebug.advice.findings import Finding, Launch
from tkdebug.advice.model import grid_s, program_s, steady_s

# Programs that take less are over before a grid that is too small matters.
_LONG_PROGRAM_S = 4e-6
# Launching alone takes a good part of a launch that is shorter.
_SHORT_LAUNCH_S = 12e-6
# A grid this small against the GPU is no small test problem; of products, whose tiles are large,
# test problems have few.
_FEW, _FEW_PRODUCTS = 1 / 6, 1 / 16
_MOST_ROUNDS = 8


def grid_findings(launch: Launch) -> Iterator[tuple[Finding, float, float]]:
    """What the grid costs: findings, each with the time as it is and as it would be."""
    facts, machine, work = launch.facts, launch.machine, launch.work
    now_s, full_s = grid_s(work, machine), steady_s(work, machine)
    programs = facts.programs
    if now_s < _SHORT_LAUNCH_S or program_s(work, machine) < _LONG_PROGRAM_S:
        return
    few = _FEW_PRODUCTS if facts.dots else _FEW
    if programs <= few * machine.sms:
        message = (
            f"a grid of {programs} on {machine.sms} multiprocessors, each program long; split the "
            "work of a program over several (by blocks of its loop), and combine their results"
        )
        yield Finding(facts.frame, "small-grid", message, work), now_s, full_s
        return
    share = programs / machine.sms
    rounds = math.ceil(share)
    if not 1 < share <= _MOST_ROUNDS or rounds == share:
        return
    even_s = grid_s(work, machine, balanced=True)
    left = programs - (rounds - 1) * machine.sms
    message = (
        f"{programs} programs on {machine.sms} multiprocessors: {left} of them get {rounds}, the "
        f"others {rounds - 1}, and wait; {share:.2f} waves take as long as {rounds}; another tile "
        "size, or a persistent kernel, evens that out"
    )
    yield Finding(facts.frame, "wave-quantisation", message, work), now_s, even_s
