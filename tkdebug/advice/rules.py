"""The rules: each names a cause at a line, and the launch's time without it.

The rules about accesses to memory and about tiles that do not fit are here; others are in the
modules `code_rules`, `product_rules` and `waiting_rules`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tkdebug.advice.code_rules import (
    bank_conflicts,
    conversions,
    loads_again,
    loads_of_other_programs,
    repeated_work,
    slow_arithmetic,
    spills,
)
from tkdebug.advice.facts import AccessFacts, KernelFacts
from tkdebug.advice.findings import (
    Finding,
    Launch,
    Rule,
    accesses_by_line,
    also_in,
    of_tensors,
    without,
)
from tkdebug.advice.machines import SECTOR_BYTES, Machine
from tkdebug.advice.model import ON_CHIP, request_s, without_waits, work_of
from tkdebug.advice.product_rules import broadcasting, small_products, tensor_cores, upcasts
from tkdebug.advice.waiting_rules import atomics, barriers, occupancy, pipelining, serial_loops

# A next power of two may leave up to half of a tile masked off.
MASKED_SHARE = 0.5
_WARP = 32
# Sectors of an access that masks leave next to nothing of.
_ANY = 1e-9
# The sectors of neighbours, of those that their bytes need: they may begin and end anywhere.
_DENSE = 1.1
# Programs, each of several small ones put together, that make small tiles worth a remark.
_FEWEST_TOGETHER = 16

_SORT = "sort or group the indices, or gather whole rows of 32 bytes or more"
_ALONG = "let the last axis of the tile run along the stride of 1, or lay the tensor out so"
_SEVERAL = (
    "give a program neighbours, too, as a tile of two axes whose last runs along the stride of 1, "
    "or lay the tensor out so"
)


def coalescing(launch: Launch) -> Iterator[Finding]:
    """Report requests that touch more sectors than they need, a finding for tiles of one form."""

    def wastes(access: AccessFacts) -> bool:
        return access.sectors > 1.5 * access.needed_sectors and not access.is_split

    by_form: dict[tuple[object, ...], list[AccessFacts]] = {}
    for access in filter(wastes, launch.facts.accesses):
        if access.executions:
            # Masks leave rows of one form a little apart.
            waste = round(math.log2(access.sectors / max(_ANY, access.needed_sectors)))
            form = access.tile_elems, access.element_bytes, waste, access.is_gather
            by_form.setdefault(form, []).append(access)
    for accesses in by_form.values():
        worst = max(accesses, key=lambda a: a.executions * a.sectors)
        verb = " and ".join(dict.fromkeys(a.kind for a in accesses))
        per = worst.sectors / worst.requests
        ideal = max(1.0, worst.needed_sectors / worst.requests)
        gather = worst.is_gather
        what = "addresses come from memory" if gather else "neighbouring lanes are not neighbours"
        help_ = _SORT if gather else _ALONG if worst.tile_axes > 1 else _SEVERAL
        message = (
            f"{verb}{of_tensors(*accesses)}: a warp's request touches {per:.3g} sectors of "
            f"{SECTOR_BYTES} bytes where {ideal:.2g} would do, because {what}; {help_}"
            f"{also_in((a.frame for a in accesses), worst.frame)}"
        )
        work = launch.with_accesses(map(_without_gaps, accesses))
        kind = "gather" if gather else "uncoalesced"
        yield Finding(worst.frame, kind, message, work)


def _without_gaps(access: AccessFacts) -> AccessFacts:
    needed = min(access.sectors, access.needed_sectors)
    return replace(
        access,
        sectors=needed,
        program_sectors=min(access.program_sectors, needed),
        lines=min(access.lines, max(access.requests, needed / 4)),
        overfetch_bytes=0,
    )


def narrow_accesses(launch: Launch) -> Iterator[Finding]:
    """Accesses of a thread that could be wider."""

    def is_narrow(access: AccessFacts) -> bool:
        return (
            access.path == "registers"
            and access.kind != "atomic"
            and access.tile_elems >= 128
            and access.width_bytes < access.possible_bytes
            and (access.is_split or (is_small(access) and is_dense(access)))
        )

    def is_small(access: AccessFacts) -> bool:
        # Rows that quotients and remainders lead to begin and end anywhere.
        return not access.is_divided and access.width_bytes < min(4, access.possible_bytes)

    def is_dense(access: AccessFacts) -> bool:
        return access.sectors <= 1.5 * access.needed_sectors + access.requests

    for (frame, verb), accesses in accesses_by_line(launch, is_narrow).items():
        access = accesses[0]
        # Only neighbours in memory can be accessed together.
        may_widen = access.program_sectors <= _DENSE * access.needed_sectors + 1
        wide = access.possible_bytes / access.width_bytes if may_widen else 1.0
        count = sum(a.requests * a.executions for a in accesses)
        fewer = count * (1 - 1 / wide)
        # Wide ones fill the lines that they touch; split ones come back to each line.
        again = sum(
            max(0.0, a.lines - max(a.needed_sectors / 4, a.requests / wide)) * a.executions
            for a in accesses
            if a.is_split
        )
        work = replace(
            launch.work,
            request_s=launch.work.request_s
            - (1 - 1 / wide) * sum(request_s(a, launch.machine) for a in accesses),
            l1_wavefronts=launch.work.l1_wavefronts - max(fewer, again),
            pipes=without(launch.work.pipes, {"lsu": fewer, "issue": 2 * fewer}),
        )
        why = f", because {access.why_narrow}" if access.why_narrow else ""
        message = (
            f"{verb}{of_tensors(*accesses)}: {_bytes(access.width_bytes)} a thread where "
            f"{access.possible_bytes} are possible{why}"
        )
        yield Finding(frame, "narrow-access", message, work)


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def small_tiles(launch: Launch) -> Iterator[Finding]:
    """Programs that have fewer elements than threads."""
    facts, work = launch.facts, launch.work
    threads = facts.num_warps * _WARP
    elements = facts.widest_tile
    if not elements or elements >= threads:
        return
    times = threads / elements
    rounds = max((a.executions for a in facts.accesses), default=0) / facts.programs
    if facts.programs * max(1.0, rounds) < _FEWEST_TOGETHER * times:
        return  # so little that there is nothing to put together
    # Iterations that need each other's results stay one after the other.
    is_split = rounds >= times and not any(map(_is_chain, facts.accesses))
    is_split &= all(loop.needs_before is None for loop in facts.loops)
    better = replace(
        work,
        pipes={pipe: count / times for pipe, count in work.pipes.items()},
        l1_wavefronts=work.l1_wavefronts / times,
        request_s=work.request_s / times,
        programs=work.programs if is_split else max(1, round(work.programs / times)),
    )
    warps = elements // _WARP
    if is_split and warps:
        # Programs of fewer warps, of which more fit.
        most = facts.occupancy.limits.get("blocks", work.blocks)
        blocks = max(work.blocks, min(most, round(work.blocks * times)))
        better = replace(better, blocks=blocks, warps=blocks * warps)
    elif is_split:
        better = without_waits(better, lambda _: 1 - 1 / times)
    holds = f"{elements} elements" if elements > 1 else "single values"
    fewer = f", or num_warps={warps}," if warps else ""
    message = (
        f"a program has {holds} for its {threads} threads, so most of them repeat what others do "
        f"or do nothing; a larger block, or several rows a program{fewer} gives each its own"
    )
    symptoms = ("narrow-access", "barriers", "reduction-in-loop", "not-pipelined")
    yield Finding(facts.frame, "small-tiles", message, better, 0.0, dict.fromkeys(symptoms))


def _is_chain(access: AccessFacts) -> bool:
    """Whether each iteration loads the address that the next one loads from."""
    return access.in_loop and access.op_id in access.address_loads


def widest_access(facts: KernelFacts) -> AccessFacts | None:
    """Return the access with most elements, masked ones included; None if none is known."""
    known = [a for a in facts.accesses if a.tile_elems > 1 and a.exact]
    return max(known, key=lambda a: a.executions * a.tile_elems, default=None)


def masked_off(launch: Launch) -> Iterator[Finding]:
    """Tiles that are mostly masked off, and products that are discarded."""
    facts, work = launch.facts, launch.work
    widest = widest_access(facts)
    if widest is not None:
        share = widest.on_share
        if share < MASKED_SHARE:
            kept = min(1.0, 2 * share)
            less = without_waits(work, lambda w: 1 - kept if w.cause in ON_CHIP else 0.0)
            less = replace(
                less,
                pipes={pipe: n * kept for pipe, n in work.pipes.items()},
                l1_wavefronts=work.l1_wavefronts * kept,
                tensor_s=work.tensor_s * kept,
            )
            message = (
                f"{widest.kind}{of_tensors(widest)}: masks leave {100 * share:.2g} % of its "
                f"{widest.tile_elems} elements; a smaller block, or a loop or grid that ends "
                "where the data does, does no work for the others"
            )
            full = ("spill", "low-occupancy-registers", "barriers")
            yield Finding(widest.frame, "masked-off", message, less, 0.0, dict.fromkeys(full))
    for discarded in facts.discarded:
        if discarded.share < 0.1:
            continue
        left = 1 - discarded.share
        less = replace(
            without_waits(work, lambda _: discarded.share),  # noqa: B023
            tensor_s=work.tensor_s * left,
            pipes={pipe: n * left for pipe, n in work.pipes.items()},
            l1_wavefronts=work.l1_wavefronts * left,
            l2_bytes=work.l2_bytes * left,
        )
        message = (
            f"{100 * discarded.share:.2g} % of the products are masked out in whole; end the loop "
            "where the mask does"
        )
        yield Finding(discarded.frame, "masked-off", message, less)


RULES: tuple[Rule, ...] = (
    coalescing,
    narrow_accesses,
    pipelining,
    serial_loops,
    tensor_cores,
    upcasts,
    broadcasting,
    small_products,
    small_tiles,
    slow_arithmetic,
    repeated_work,
    loads_again,
    loads_of_other_programs,
    spills,
    bank_conflicts,
    conversions,
    occupancy,
    barriers,
    masked_off,
    atomics,
)


def look_at(facts: KernelFacts, machine: Machine) -> Launch:
    """The launch for rules: its facts, the GPU, and its work."""
    return Launch(facts, machine, work_of(facts, machine))
