"""The rules: each names a cause at a line, and what the launch would take without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tkdebug.advice.facts import GATHER, AccessFacts, KernelFacts, LineCode
from tkdebug.advice.findings import Finding, Launch, Rule, accesses_by_line, of_tensors, without
from tkdebug.advice.machines import SECTOR_BYTES, Machine
from tkdebug.advice.model import l2_bytes, local_dram_bytes, local_l2_bytes, steady_s, work_of
from tkdebug.advice.product_rules import broadcasting, small_products, tensor_cores
from tkdebug.advice.tile_rules import small_tiles
from tkdebug.advice.waiting_rules import atomics, pipelining
from tkdebug.errors import Frame

# A next power of two may leave up to half of a tile masked off.
_MASKED_SHARE = 0.5
# What is shorter begins and ends too soon for occupancy to matter.
_SHORT_S = 2e-6
# Instructions an element: more than a fast function takes, and what one takes.
_SLOW_INSTRUCTIONS, _FAST_INSTRUCTIONS = 7, 2

_SORT = "sort or group the indices, or gather whole rows of 32 bytes or more"
_ALONG = "let the last axis of the tile run along the stride of 1, or lay the tensor out so"
_SEVERAL = (
    "give a program neighbours, too, as a tile of two axes whose last runs along the stride of 1, "
    "or lay the tensor out so"
)


def coalescing(launch: Launch) -> Iterator[Finding]:
    """Requests that touch more sectors than their bytes need."""

    def wastes(access: AccessFacts) -> bool:
        return access.sectors > 1.5 * access.needed_sectors and not _is_split(access)

    for (frame, verb), accesses in accesses_by_line(launch, wastes).items():
        worst = max(accesses, key=lambda a: a.executions * a.sectors)
        per = worst.sectors / worst.requests
        ideal = max(1.0, worst.needed_sectors / worst.requests)
        gather = worst.is_gather
        what = "addresses come from memory" if gather else "neighbouring lanes are not neighbours"
        help_ = _SORT if gather else _ALONG if worst.tile_axes > 1 else _SEVERAL
        message = (
            f"{verb}{of_tensors(*accesses)}: a warp's request touches {per:.3g} sectors of "
            f"{SECTOR_BYTES} bytes where {ideal:.2g} would do, because {what}; {help_}"
        )
        work = launch.work
        for access in accesses:
            needed = min(access.sectors, access.needed_sectors)
            least = min(access.program_sectors, needed)
            work = replace(
                work,
                dram_bytes=max(0.0, work.dram_bytes - access.overfetch_bytes),
                l2_bytes=work.l2_bytes
                - l2_bytes(access)
                + least * access.executions * SECTOR_BYTES,
                l1_wavefronts=work.l1_wavefronts
                - max(0.0, access.lines - max(access.requests, needed / 4)) * access.executions,
            )
        yield Finding(frame, "gather" if gather else "uncoalesced", message, work)


def _is_split(access: AccessFacts) -> bool:
    """Whether neighbours in memory are a thread's own, and taken one by one.

    Each of its requests then leaves gaps that the next ones fill.
    """
    return (
        access.width_bytes < min(4, access.thread_bytes)
        and access.program_sectors <= 1.5 * access.needed_sectors
    )


def narrow_accesses(launch: Launch) -> Iterator[Finding]:
    """Accesses of a thread that could be wider."""

    def is_narrow(access: AccessFacts) -> bool:
        return (
            access.path == "registers"
            and access.kind != "atomic"
            and access.width_bytes < min(4, access.possible_bytes)
            and (
                access.sectors <= 1.5 * access.needed_sectors + access.requests or _is_split(access)
            )
            and access.tile_elems >= 128
        )

    for (frame, verb), accesses in accesses_by_line(launch, is_narrow).items():
        access = accesses[0]
        wide = access.possible_bytes / access.width_bytes
        count = sum(a.requests * a.executions for a in accesses)
        fewer = count * (1 - 1 / wide)
        # Wide ones fill the lines that they touch; split ones come back to each line.
        again = sum(
            max(0.0, a.lines - a.needed_sectors / 4) * a.executions
            for a in accesses
            if _is_split(a)
        )
        work = replace(
            launch.work,
            requests=launch.work.requests - fewer,
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


_SLOW = {
    "integer-division": (
        "integer division by a value that is known at run time only takes {:.0f} instructions an "
        "element; make the divisor a tl.constexpr, or divide by powers of two"
    ),
    "fp64": "fp64 arithmetic: compute in fp32 where that is precise enough, and look for float64 "
    "scalars and constants that widen it",
    "slow-function": "a function of {:.0f} instructions an element: a cheaper form (tl.exp2, x * x "
    "for pow, tl.math.rsqrt, fast_…) takes fewer",
}


def slow_arithmetic(launch: Launch) -> Iterator[Finding]:
    """Instructions that slow operations are lowered to: the lines of one cause together."""
    lines: dict[str, list[tuple[LineCode, Mapping[str, float]]]] = {}
    for line in launch.facts.code:
        for cause in line.by_cause:
            removed = _removed(line, cause)
            if removed:
                lines.setdefault(cause, []).append((line, removed))
    for cause, found in lines.items():
        pipes: Mapping[str, float] = launch.work.pipes
        for _, removed in found:
            pipes = without(pipes, removed)
        worst = max(found, key=lambda f: f[0].by_cause[cause])[0]
        message = _SLOW[cause].format(worst.per_element.get(cause, 1.0))
        others = sorted({f.frame.line for f, _ in found if f.frame.line != worst.frame.line})
        if others:
            message += f" (also in {_line_numbers(others)})"
        yield Finding(worst.frame, cause, message, replace(launch.work, pipes=pipes))


def _removed(line: LineCode, cause: str) -> Mapping[str, float]:
    """Instructions by pipe that a line would be without; none where they are few."""
    per_element = line.per_element.get(cause, 1.0)
    if cause != "fp64" and per_element < _SLOW_INSTRUCTIONS:
        return {}
    share = line.by_cause[cause] / max(1.0, line.by_pipe["issue"])
    # Functions and division of fp64 are sequences of instructions; special-function units take
    # fp32 alone (CUDA C++ Programming Guide, "Arithmetic Instructions").
    fewest = _SLOW_INSTRUCTIONS if cause == "fp64" else _FAST_INSTRUCTIONS
    kept = min(1.0, fewest / per_element)
    removed = {pipe: number * share * (1 - kept) for pipe, number in line.by_pipe.items()}
    if cause == "fp64":
        # Arithmetic takes as many instructions on another pipe; conversions are gone.
        doubles = line.by_pipe.get("fp64", 0.0)
        removed["fp64"] = doubles
        removed["convert"] = line.by_pipe.get("convert", 0.0)
        removed["fp32"] = removed.get("fp32", 0.0) - kept * doubles
    return removed


_MOST_LINES = 4


def _line_numbers(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_LINES]))
    more = f" and {len(numbers) - _MOST_LINES} more" if len(numbers) > _MOST_LINES else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"


def spills(launch: Launch) -> Iterator[Finding]:
    """Registers that went to memory."""
    facts = launch.facts
    total = sum(facts.local_lines.values())
    if not facts.spill_bytes or not total:
        return
    frame = max(facts.local_lines, key=lambda f: facts.local_lines[f])
    work = replace(
        launch.work,
        l1_wavefronts=launch.work.l1_wavefronts - total,
        l2_bytes=launch.work.l2_bytes - local_l2_bytes(facts, launch.machine),
        dram_bytes=launch.work.dram_bytes - local_dram_bytes(facts, launch.machine),
        pipes=without(launch.work.pipes, {"lsu": total, "issue": total}),
    )
    message = (
        f"{facts.spill_bytes} bytes a thread are spilled to memory ({facts.registers} registers), "
        f"most of it here; smaller tiles or more warps than {facts.num_warps} hold less a thread"
    )
    yield Finding(frame, "spill", message, work)


_OTHER_SHAPE = "another tile shape or order of axes"
_OTHER_INDICES = (
    "indices of a warp's tl.gather meet in the same banks: tl.reshape and tl.trans where the order "
    "is a fixed one, or another order,"
)


def bank_conflicts(launch: Launch) -> Iterator[Finding]:
    """Shared memory that is accessed by turns."""
    lines: dict[Frame, list[float]] = {}
    for shared in launch.facts.shared:
        both = lines.setdefault(shared.frame, [0.0, 0.0])
        both[0] += shared.wavefronts
        both[1] += shared.needed
    for frame, (wavefronts, needed) in lines.items():
        if wavefronts < 1.5 * needed:
            continue
        work = replace(launch.work, l1_wavefronts=launch.work.l1_wavefronts - wavefronts + needed)
        is_gather = any(s.frame == frame and s.what == GATHER for s in launch.facts.shared)
        message = (
            f"shared memory: {wavefronts / needed:.2g} wavefronts where 1 would do "
            f"(bank conflicts); {_OTHER_INDICES if is_gather else _OTHER_SHAPE} spreads them"
        )
        yield Finding(frame, "bank-conflict", message, work)


def occupancy(launch: Launch) -> Iterator[Finding]:
    """Registers or shared memory that keep blocks out."""
    facts, fits = launch.facts, launch.facts.occupancy
    by = [name for name in fits.limited_by if name in ("registers", "shared memory")]
    if not by or fits.percent > 40 or steady_s(launch.work, launch.machine) < _SHORT_S:
        return
    others = min(n for name, n in fits.limits.items() if name not in by)
    blocks = min(others, max(2 * fits.blocks, 1))
    if blocks <= fits.blocks:
        return
    per_block = fits.warps // max(1, fits.blocks)
    work = replace(launch.work, blocks=blocks, warps=blocks * per_block)
    what = (
        f"{facts.registers} registers a thread"
        if by[0] == "registers"
        else f"{facts.shared_bytes} bytes of shared memory a block"
    )
    ways = (
        f"more warps than {facts.num_warps} to hold a tile, smaller tiles or maxnreg"
        if by[0] == "registers"
        else "smaller tiles or fewer stages"
    )
    message = (
        f"occupancy {fits.percent:.0f} %: {what} let {_blocks(fits.blocks)} "
        f"({fits.warps} of {fits.max_warps} warps) on a multiprocessor; {ways}, for "
        f"{_blocks(blocks)}"
    )
    kind = "low-occupancy-registers" if by[0] == "registers" else "low-occupancy-shared"
    yield Finding(facts.frame, kind, message, work)


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"


def masked_off(launch: Launch) -> Iterator[Finding]:
    """Tiles of which masks leave little, and products that are thrown away."""
    facts = launch.facts
    known = [a for a in facts.accesses if a.tile_elems > 1 and a.exact]
    if known:
        widest = max(known, key=lambda a: a.executions * a.tile_elems)
        share = widest.on_share
        if share < _MASKED_SHARE:
            kept = min(1.0, 2 * share)
            work = replace(
                launch.work,
                pipes={pipe: n * kept for pipe, n in launch.work.pipes.items()},
                l1_wavefronts=launch.work.l1_wavefronts * kept,
                tensor_s=launch.work.tensor_s * kept,
            )
            message = (
                f"{widest.kind}{of_tensors(widest)}: masks leave {100 * share:.2g} % of its "
                f"{widest.tile_elems} elements; a smaller block, or a loop or grid that ends "
                "where the data does, does no work for the others"
            )
            yield Finding(widest.frame, "masked-off", message, work)
    for discarded in facts.discarded:
        if discarded.share < 0.1:
            continue
        kept = 1 - discarded.share
        work = replace(
            launch.work,
            tensor_s=launch.work.tensor_s * kept,
            pipes={pipe: n * kept for pipe, n in launch.work.pipes.items()},
            l1_wavefronts=launch.work.l1_wavefronts * kept,
            l2_bytes=launch.work.l2_bytes * kept,
            waits=launch.work.waits * kept,
        )
        message = (
            f"{100 * discarded.share:.2g} % of the products are masked out in whole; end the loop "
            "where the mask does"
        )
        yield Finding(discarded.frame, "masked-off", message, work)


def redundant_loads(launch: Launch) -> Iterator[Finding]:
    """Loads that get the same in each round."""

    def repeats(access: AccessFacts) -> bool:
        return access.kind == "load" and access.repeated > 0.9 and access.in_loop

    for (frame, _), accesses in accesses_by_line(launch, repeats).items():
        access = accesses[0]
        rounds = access.executions / launch.facts.programs
        if rounds < 2:
            continue
        gone = (1 - 1 / rounds) * access.executions
        work = replace(
            launch.work,
            l2_bytes=launch.work.l2_bytes - l2_bytes(access) * (1 - 1 / rounds),
            l1_wavefronts=launch.work.l1_wavefronts - gone * access.lines,
            requests=launch.work.requests - gone * access.requests,
            pipes=without(
                launch.work.pipes, {"lsu": gone * access.requests, "issue": gone * access.requests}
            ),
        )
        message = (
            f"load{of_tensors(access)}: the same elements in each of {rounds:.4g} rounds of the "
            "loop; load them before it"
        )
        yield Finding(frame, "redundant-load", message, work)


RULES: tuple[Rule, ...] = (
    coalescing,
    narrow_accesses,
    pipelining,
    tensor_cores,
    broadcasting,
    small_products,
    small_tiles,
    slow_arithmetic,
    spills,
    bank_conflicts,
    occupancy,
    masked_off,
    redundant_loads,
    atomics,
)


def look_at(facts: KernelFacts, machine: Machine) -> Launch:
    """A launch with its work."""
    return Launch(facts, machine, work_of(facts, machine))
