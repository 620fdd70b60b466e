"""Rules about how much a program has to do for its threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tkdebug.advice.findings import Finding, Launch

_WARP = 32


def small_tiles(launch: Launch) -> Iterator[Finding]:
    """Programs that have fewer elements than threads."""
    facts, machine, work = launch.facts, launch.machine, launch.work
    threads = facts.num_warps * _WARP
    elements = facts.widest_tile
    if not elements or elements >= threads:
        return
    times = threads / elements
    rounds = max((a.executions for a in facts.accesses), default=0) / facts.programs
    if facts.programs * max(1.0, rounds) < times * machine.sms:
        return  # so little that there is nothing to put together
    better = replace(
        work,
        pipes={pipe: count / times for pipe, count in work.pipes.items()},
        l1_wavefronts=work.l1_wavefronts / times,
        requests=work.requests / times,
        waits=work.waits / times if rounds >= times else work.waits,
        programs=work.programs if rounds >= times else max(1, round(work.programs / times)),
    )
    holds = f"{elements} elements" if elements > 1 else "single values"
    warps = elements // _WARP
    fewer = f", or num_warps={warps}," if warps else ""
    message = (
        f"a program has {holds} for its {threads} threads, so most of them repeat what others do "
        f"or do nothing; a larger block, or several rows a program{fewer} gives each its own"
    )
    yield Finding(facts.frame, "small-tiles", message, better)
