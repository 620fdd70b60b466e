"""Rules about the grid: too few programs, and programs that do not divide over the GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tkdebug.advice.findings import Finding, Launch
from tkdebug.advice.model import Work, grid_s, steady_s, without_waits
from tkdebug.advice.records import TINY_NS

# Launching alone takes a good part of a launch that is shorter.
_SHORT_LAUNCH_S = 12e-6
# With next to nothing to do, a launch is a test's unless it takes so many times as long.
_TINY_FACTOR = 3
# What it takes to combine the results of programs that share the work of one: half a launch.
_COMBINING_S = 3e-6
# Of what the parts of a grid rule promise.
_LEAST_SPLIT, _LEAST_EVEN = 1.3, 1.07
_MOST_ROUNDS = 8


def grid_findings(launch: Launch) -> Iterator[tuple[Finding, float, float]]:
    """Find what the grid costs, each time with the time as it is and as it would be."""
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
    """The work if each program were several, that share the rounds of its loops.

    Rounds that need each other's results stay together.
    """
    loops = [loop for loop in launch.facts.loops if loop.needs_before is None]
    most = max((loop.rounds for loop in loops), default=1.0)
    parts = max(1.0, min(parts, most))
    ids = frozenset().union(*(loop.op_ids for loop in loops))
    work = without_waits(launch.work, lambda w: 1 - 1 / parts if w.op_id in ids else 0.0)
    return replace(work, programs=max(1, round(work.programs * parts)))
