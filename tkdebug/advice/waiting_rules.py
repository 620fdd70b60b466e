"""Rules about waiting: loads that nothing runs ahead of, atomics that take turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tkdebug.advice.facts import AccessFacts, KernelFacts
from tkdebug.advice.findings import Finding, Launch, accesses_by_line, of_tensors, without
from tkdebug.advice.model import Work, atomic_seconds, meeting, waited_for
from tkdebug.errors import Frame

# Of an address that every program adds to once.
_COPIES = 32
# Rounds that loads of a loop run ahead where nothing else is asked for.
_USUAL_AHEAD = 2
_ONE_STAGE = "num_stages is 1"


def pipelining(launch: Launch) -> Iterator[Finding]:
    """Loads in loops that nothing runs ahead of."""
    facts = launch.facts
    yield from _waiting_products(launch)
    rounds = {a.op_id: a for a in facts.accesses if a.in_loop and a.kind == "load"}
    seen: set[Frame] = set()
    for op_id, access in rounds.items():
        if access.path != "registers" or access.frame in seen:
            continue
        reason = facts.why_not_pipelined.get(op_id)
        if facts.dots and reason is not None and not access.loop_depends:
            continue
        if reason is None and access.loop_depends:
            reason = "its address depends on what the loop has loaded before"
        elif reason is None and not facts.dots:
            reason = (
                "only loads for tl.dot run ahead by themselves; "
                "tl.range(…, num_stages=3) asks for others"
            )
        if reason is None:
            continue
        seen.add(access.frame)
        per_program = access.executions / facts.programs
        ahead = max(1, facts.num_stages - 1) if not access.loop_depends else 4
        saved = per_program * (1 - 1 / ahead)
        work = replace(launch.work, waits=max(0.0, launch.work.waits - saved))
        message = f"load{of_tensors(access)}: each round of the loop waits for it, because {reason}"
        yield Finding(access.frame, "not-pipelined", message, _widened(work, access))


def _waiting_products(launch: Launch) -> Iterator[Finding]:
    """Loops with products whose loads do not run ahead; those of one reason are one cause."""
    facts = launch.facts
    loads = [a for a in waited_for(facts) if not a.loop_depends]
    reasons = {a.op_id: facts.why_not_pipelined[a.op_id] for a in loads}
    ahead = max(_USUAL_AHEAD, facts.num_stages - 1)
    for reason in dict.fromkeys(reasons.values()):
        alike = [a for a in loads if reasons[a.op_id] == reason]
        rounds = max(a.executions for a in alike) / facts.programs
        if rounds < 2 or (reason == _ONE_STAGE and not _stages_fit(facts, alike)):
            continue
        # What still waits for another reason keeps the round from overlapping.
        serial_s = launch.work.serial_s * (1 - len(alike) / len(waited_for(facts)))
        waits = max(0.0, launch.work.waits - rounds * (1 - 1 / ahead))
        work = replace(launch.work, waits=waits, serial_s=serial_s)
        for access in alike:
            work = _widened(work, access)
        help_ = f"; num_stages={_USUAL_AHEAD + 1} loads {_USUAL_AHEAD} rounds ahead"
        message = (
            f"load{of_tensors(*alike)}: each round of the loop waits for it before its product "
            f"begins, because {reason}{help_ if reason == _ONE_STAGE else _odd(alike)}"
        )
        yield Finding(alike[0].frame, "not-pipelined", message, work)


def _odd(accesses: list[AccessFacts]) -> str:
    """Which arguments keep them from being wider, behind the reason."""
    known = dict.fromkeys(access.odd for access in accesses if access.odd)
    return f": {'; '.join(known)}" if known else ""


def _stages_fit(facts: KernelFacts, loads: list[AccessFacts]) -> bool:
    """Whether shared memory holds the tiles of a round and of those ahead of it."""
    limit = facts.occupancy.limits.get("shared memory")
    if not limit or not facts.shared_bytes:
        return True
    stage_bytes = sum(a.tile_elems * a.element_bytes for a in loads)
    return facts.shared_bytes + _USUAL_AHEAD * stage_bytes <= limit * facts.shared_bytes


def _widened(work: Work, access: AccessFacts) -> Work:
    """Copies that run ahead are wide, too."""
    if access.width_bytes >= 4:
        return work
    fewer = access.requests * access.executions * (1 - access.width_bytes / 16)
    removed = {"lsu": fewer, "issue": 4 * fewer, "int": 2 * fewer}
    return replace(
        work,
        requests=work.requests - fewer,
        l1_wavefronts=max(0.0, work.l1_wavefronts - fewer),
        pipes=without(work.pipes, removed),
    )


def atomics(launch: Launch) -> Iterator[Finding]:
    """Atomics that meet at one address."""

    def meets(access: AccessFacts) -> bool:
        return access.kind == "atomic" and (access.same_address > 1000 or meeting(access) >= 2)

    for (frame, _), accesses in accesses_by_line(launch, meets).items():
        access = max(accesses, key=lambda a: a.same_address)
        each = meeting(access)
        if each < 2:
            better_s = launch.work.atomic_s / _COPIES
        else:
            better_s = atomic_seconds(launch.facts, launch.machine, lambda a: a.frame == frame)  # noqa: B023
        work = replace(launch.work, atomic_s=better_s)
        in_program = f" ({each:.4g} of each program)" if each >= 2 else ""
        message = (
            f"atomic{of_tensors(access)}: {access.same_address} of them on one address"
            f"{in_program}, one after the other; combine them in the program first (tl.sum, "
            "tl.max), or spread them over copies"
        )
        yield Finding(frame, "atomic-contention", message, work)
