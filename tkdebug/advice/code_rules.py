"""Rules about machine code: slow operations, work that is repeated, spills, shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tkdebug.advice.facts import GATHER, AccessFacts, KernelFacts, LineCode, WaitFacts
from tkdebug.advice.findings import (
    Finding,
    Launch,
    also_in,
    least,
    of_program,
    of_tensors,
    share_of_program,
    without,
)
from tkdebug.advice.model import (
    ON_CHIP,
    Work,
    grid_s,
    l2_bytes,
    local_dram_bytes,
    local_l2_bytes,
    request_s,
    reread_bytes,
    steady_s,
    swept_bytes,
    without_waits,
)
from tkdebug.errors import Frame

# Instructions an element: more than a fast function takes, and as many as one takes.
_SLOW_INSTRUCTIONS, _FAST_INSTRUCTIONS = 7, 2
# The share that narrower index arithmetic takes: a sum of 64 bits takes two instructions, a product
# four or so.
_NARROW_SHARE = 0.45
_SLOW = {
    "integer-division": (
        "integer division by a value that is known at run time only takes {:.0f} instructions an "
        "element; make the divisor a tl.constexpr, or divide by powers of two"
    ),
    "fp64": "fp64 arithmetic: compute in fp32 where that is precise enough, and look for float64 "
    "scalars and constants that widen it",
    "slow-function": "a function of {:.0f} instructions an element: a cheaper form (tl.exp2, x * x "
    "for pow, tl.math.rsqrt, fast_…) takes fewer",
    "int64-arithmetic": "64-bit integers for each element of a tile, which take two to four "
    "instructions each; add what needs 64 bits to the pointer as a scalar, and compute offsets "
    "within a tile in int32",
    "reduction-in-loop": "each round of the loop reduces a tile only to add the result up, for "
    "which warps wait for each other; add up tiles, element by element, and reduce once after it",
}
# Arithmetic that is for addresses as a rule, and so comes before the loads that hide it elsewhere.
_OF_INDICES = ("integer-division", "int64-arithmetic")
_REPEATED, _IN_LOOP = "repeated-work", "reduction-in-loop"
# Causes that are named with their share of a program's time.
_SHARED_OUT = (*_OF_INDICES, _IN_LOOP)
_ACROSS_WARPS = ("barrier", "shared", "shuffle")
# LLVM and ptxas unroll loops of loads so far; measured on sums of rows.
_ROUNDS_TOGETHER = 4
_MOST_LINES = 4


def slow_arithmetic(launch: Launch) -> Iterator[Finding]:
    """Report instructions that slow ops are lowered to, one finding for all lines of a cause."""
    for cause, text in _SLOW.items():
        found = [
            (line, share)
            for line in launch.facts.code
            if cause in line.by_cause and (share := _removable(line, cause)) > 0
        ]
        if not found:
            continue
        work = launch.work
        for line, share in found:
            work = _without_code(work, line, cause, share)
        if cause == _IN_LOOP:
            work = _loads_together(launch, work)
        worst = max((line for line, _ in found), key=lambda line: line.by_cause[cause]["issue"])
        share = share_of_program(launch, work) if cause in _SHARED_OUT else 0.0
        message = (
            f"{text.format(worst.per_element.get(cause, 1.0))}"
            f"{also_in((one.frame for one, _ in found), worst.frame)}{of_program(share)}"
        )
        if cause == "integer-division":
            yield _with_split_accesses(launch, Finding(worst.frame, cause, message, work, share))
        else:
            yield Finding(worst.frame, cause, message, work, share)


def _with_split_accesses(launch: Launch, finding: Finding) -> Finding:
    """Return the finding on divisions, with the cost of the accesses that divisions make narrow.

    Neighbours in memory are unknown then: a thread loads one by one what is adjacent in the tile.
    """
    split = [
        replace(
            a,
            sectors=min(a.sectors, a.program_sectors),
            lines=min(a.lines, max(a.requests, a.program_sectors / 4)),
        )
        for a in launch.facts.accesses
        if a.is_divided and a.width_bytes < a.held_bytes
    ]
    symptoms = {"narrow-access": frozenset(a.frame for a in split)}
    better = least(launch.work, finding.better, [launch.with_accesses(split)])
    return replace(finding, better=better, symptoms=symptoms)


def _loads_together(launch: Launch, work: Work) -> Work:
    """The work if loops with reductions made their loads for several iterations at once."""
    reduced = {wait.op_id for wait in launch.facts.waits if _IN_LOOP in wait.removable}
    ids = frozenset().union(
        *(loop.op_ids for loop in launch.facts.loops if not reduced.isdisjoint(loop.op_ids))
    )
    return without_waits(
        work, lambda w: 1 - 1 / _ROUNDS_TOGETHER if w.cause == "load" and w.op_id in ids else 0.0
    )


def _removable(line: LineCode, cause: str) -> float:
    """The share of a cause's instructions that a line would be without."""
    per_element = line.per_element.get(cause, 1.0)
    match cause:
        case _ if cause == _IN_LOOP:
            return 1.0
        case "int64-arithmetic":
            return 1 - _NARROW_SHARE
        case "fp64":
            # Functions and division of fp64 are sequences of instructions; special-function units
            # take fp32 alone (CUDA C++ Programming Guide, "Arithmetic Instructions").
            return max(1e-9, 1 - _SLOW_INSTRUCTIONS / per_element)
        case _ if per_element < _SLOW_INSTRUCTIONS:
            return 0.0
        case _:
            return 1 - _FAST_INSTRUCTIONS / per_element


def _without_code(work: Work, line: LineCode, cause: str, share: float) -> Work:
    """The work without a share of the instructions that a line has for a cause."""
    removed = {pipe: count * share for pipe, count in line.by_cause[cause].items()}
    gone = share
    if cause == "fp64":
        # Arithmetic takes as many instructions on another pipe; conversions are gone.
        doubles = line.by_cause[cause].get("fp64", 0.0)
        removed["fp64"] = doubles
        removed["convert"] = line.by_cause[cause].get("convert", 0.0)
        removed["fp32"] = removed.get("fp32", 0.0) - (1 - share) * doubles
        gone = 1.0

    def waits_gone(wait: WaitFacts) -> float:
        if wait.frame != line.frame:
            return 0.0
        if cause == _IN_LOOP and wait.cause in _ACROSS_WARPS:
            return 1.0
        return gone * wait.removable.get(cause, 0.0)

    return replace(without_waits(work, waits_gone), pipes=without(work.pipes, removed))


# Repeated work


def repeated_work(launch: Launch) -> Iterator[Finding]:
    """Report loads and computed values that are the same in each iteration of a loop."""
    facts = launch.facts
    loads = {a.op_id: rounds for a in facts.accesses if (rounds := _rounds(launch, a)) >= 2}
    lines = [line for line in facts.code if _REPEATED in line.by_cause]
    of_loads = _without_loads(launch, launch.work, loads)
    work = of_loads
    for line in lines:
        work = _without_code(work, line, _REPEATED, 1.0)
    only_code = launch.work
    for line in lines:
        only_code = _without_code(only_code, line, _REPEATED, 1.0)
    machine, share = launch.machine, share_of_program(launch, work)
    repeating = [a for a in facts.accesses if a.op_id in loads]
    if repeating and steady_s(of_loads, machine) <= steady_s(only_code, machine):
        worst = max(repeating, key=lambda a: a.executions * a.program_sectors)
        message = (
            f"load{of_tensors(worst)}: the same elements in each of {loads[worst.op_id]:.4g} "
            f"rounds of the loop{_and_more(lines, worst)}{of_program(share)}; load them before it"
        )
        yield Finding(worst.frame, "redundant-load", message, work, share, _of_loads(repeating))
    elif lines:
        first = max(lines, key=lambda line: line.by_cause[_REPEATED]["issue"])
        message = (
            "what is computed here is the same in each round of a loop around it"
            f"{also_in((line.frame for line in lines), first.frame)}; compute it before that "
            f"loop, and keep the result{of_program(share)}"
        )
        yield Finding(first.frame, _REPEATED, message, work, share)


def _rounds(launch: Launch, access: AccessFacts) -> float:
    """Return how many times a program loads the same elements by an access; 1 for once."""
    if access.kind != "load" or not access.in_loop or not access.executions:
        return 1.0
    if access.repeated > 0.9:
        return access.executions / launch.facts.programs
    return access.again


def _without_loads(launch: Launch, work: Work, rounds: Mapping[int, float]) -> Work:
    """The work if some loads were made once; `rounds` has how often, by op."""
    loads = [a for a in launch.facts.accesses if a.op_id in rounds]
    gone = {a.op_id: 1 - 1 / rounds[a.op_id] for a in loads}
    requests = sum(a.executions * a.requests * gone[a.op_id] for a in loads)
    awaited = {w.op_id for w in work.waits if w.cause == "load"}
    work = without_waits(work, lambda w: gone.get(w.op_id, 0.0) if w.op_id is not None else 0.0)
    return replace(
        work,
        dram_bytes=work.dram_bytes
        - sum(reread_bytes(a, launch.facts, launch.machine) * gone[a.op_id] for a in loads),
        l2_bytes=work.l2_bytes - sum(l2_bytes(a) * gone[a.op_id] for a in loads),
        awaited_l2_bytes=max(
            0.0,
            work.awaited_l2_bytes
            - sum(l2_bytes(a) * gone[a.op_id] for a in loads if a.op_id in awaited),
        ),
        l1_wavefronts=work.l1_wavefronts
        - sum(a.executions * a.lines * gone[a.op_id] for a in loads),
        request_s=work.request_s - sum(request_s(a, launch.machine) * gone[a.op_id] for a in loads),
        pipes=without(work.pipes, {"lsu": requests, "issue": requests}),
    )


def _and_more(lines: list[LineCode], load: AccessFacts) -> str:
    others = sorted({line.frame.line for line in lines if line.frame.line != load.frame.line})
    if not others:
        return ""
    return f", and what is computed of them in line{'s' if len(others) > 1 else ''} " + ", ".join(
        map(str, others[:_MOST_LINES])
    )


def loads_again(launch: Launch) -> Iterator[Finding]:
    """Report loads of what an earlier load of a program has read, a finding for each such load."""
    by_id = {a.op_id: a for a in launch.facts.accesses}
    again: dict[int, list[AccessFacts]] = {}
    for access in launch.facts.accesses:
        first = by_id.get(access.loaded_by) if access.loaded_by is not None else None
        if first is None or first is access or first.frame == access.frame:
            continue
        # Iterations of a loop that go on elsewhere load only once what was loaded before it.
        if _elements(first) < _MOSTLY * _elements(access):
            continue
        # Loops of one iteration, as in tests, do not show what larger ones could keep.
        once = access.in_loop and first.in_loop and access.executions <= launch.facts.programs
        if not once:
            again.setdefault(first.op_id, []).append(access)
    for op_id, made in again.items():
        first = by_id[op_id]
        kept = first.footprint_bytes / first.element_bytes / launch.facts.programs
        # A tile that no program can hold has to be loaded twice if all of it decides on its use.
        loads = made if kept <= _MOST_KEPT else made[:-1]
        if not loads:
            continue
        work = _without_loads(launch, launch.work, {a.op_id: _ALL for a in loads})
        load = loads[0]
        message = (
            f"load{of_tensors(load)}: a program loads here again what line "
            f"{first.frame.line} has loaded{also_in((a.frame for a in made), load.frame)}; "
            "keep the tile, or compute what needs it in fewer passes"
        )
        yield Finding(load.frame, "redundant-load", message, work, 0.0, _of_loads(loads))


def _elements(access: AccessFacts) -> int:
    """Elements of all executions, masked ones included."""
    return access.executions * access.tile_elems


def loads_of_other_programs(launch: Launch) -> Iterator[Finding]:
    """Report loads that programs far apart in the grid repeat, one finding for each tensor."""
    facts, machine, work = launch.facts, launch.machine, launch.work
    tensors: dict[tuple[str, frozenset[int]], list[AccessFacts]] = {}
    for access in facts.accesses:
        if swept_bytes(access, facts, machine):
            tensors.setdefault((access.tensor, access.axes), []).append(access)
    for (_, axes), loads in tensors.items():
        load = loads[0]
        swept = sum(swept_bytes(one, facts, machine) for one in loads)
        better = replace(
            work,
            dram_bytes=work.dram_bytes - swept,
            awaited_dram_bytes=max(0.0, work.awaited_dram_bytes - swept),
        )
        size = sum(one.footprint_bytes for one in loads)
        axis = next(a for a in (1, 2) if a not in axes and facts.grid[a] > 1)
        message = (
            f"load{of_tensors(load)}: programs along axis {axis} of the grid read the same "
            f"{size / 1e6:.3g} MB, but run so far apart that it comes from memory "
            f"{1 + swept / size:.3g} times; let them follow each other (an earlier axis), or do "
            f"the work of several in one program{also_in((one.frame for one in loads), load.frame)}"
        )
        yield Finding(load.frame, "redundant-load", message, better)


def _of_loads(loads: list[AccessFacts]) -> Mapping[str, frozenset[Frame]]:
    """Kinds of findings that go with removed loads, each with the loads' lines."""
    kinds = ("not-pipelined", "uncoalesced", "narrow-access", "gather", "repeated-work")
    return dict.fromkeys(kinds, frozenset(load.frame for load in loads))


_ALL = 1e9
# The share of a load's elements that an earlier one has loaded.
_MOSTLY = 0.9
# Elements that a program may hold as one tile.
_MOST_KEPT = 32 << 10


# Values outside of registers


def spills(launch: Launch) -> Iterator[Finding]:
    """Registers that went to memory."""
    facts, work = launch.facts, launch.work
    total = sum(facts.local_lines.values())
    if not facts.spill_bytes or not total:
        return
    frame = max(facts.local_lines, key=lambda f: facts.local_lines[f])
    kept = replace(
        without_waits(work, lambda wait: 1.0 if wait.cause == "spill" else 0.0),
        l1_wavefronts=work.l1_wavefronts - total,
        l2_bytes=work.l2_bytes - local_l2_bytes(facts, launch.machine),
        dram_bytes=work.dram_bytes - local_dram_bytes(facts, launch.machine),
        pipes=without(work.pipes, {"lsu": total, "issue": total}),
    )
    share = share_of_program(launch, kept)
    is_full = "registers" in facts.occupancy.limited_by
    if is_full and (share >= _FULL_SHARE or not facts.dots):
        # Smaller tiles leave room for other programs, too; a product's sums are best kept.
        kept = replace(kept, blocks=2 * kept.blocks, warps=2 * kept.warps)
    # Programs of smaller tiles are more, and each has less to do.
    parts = 2 ** math.ceil(math.log2(1 + facts.local_bytes / (4 * facts.registers)))
    split = replace(
        without_waits(kept, lambda w: 1 - 1 / parts if w.cause in ON_CHIP else 0.0),
        programs=kept.programs * parts,
    )
    better = min(kept, split, key=lambda work: grid_s(work, launch.machine))
    message = (
        f"{facts.spill_bytes} bytes a thread are spilled to memory ({facts.registers} registers"
        f"{_few_blocks(facts) if is_full else ''}), most of it here{of_program(share)}; smaller "
        f"tiles or more warps than {facts.num_warps} hold less a thread"
    )
    symptoms = dict.fromkeys(("low-occupancy-registers", "barriers"))
    yield Finding(frame, "spill", message, better, share, symptoms)


def _few_blocks(facts: KernelFacts) -> str:
    fits = facts.occupancy
    blocks = "1 block" if fits.blocks == 1 else f"{fits.blocks} blocks"
    return f", so that {blocks} and {fits.warps} of {fits.max_warps} warps fit"


# The share of a program's time: products with so many spills keep other programs out, too.
_FULL_SHARE = 0.05
_OTHER_SHAPE = "another tile shape or order of axes"
_OTHER_INDICES = (
    "indices of a warp's tl.gather meet in the same banks: tl.reshape and tl.trans where the order "
    "is a fixed one, or another order,"
)
_CONVERSION = "conversion between layouts"


def bank_conflicts(launch: Launch) -> Iterator[Finding]:
    """Accesses to shared memory that banks serve one after the other."""
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


def conversions(launch: Launch) -> Iterator[Finding]:
    """Report layout conversions: tiles that threads exchange through shared memory."""
    lines: dict[Frame, float] = {}
    for shared in launch.facts.shared:
        if shared.what == _CONVERSION:
            lines[shared.frame] = lines.get(shared.frame, 0.0) + shared.wavefronts
    for frame, wavefronts in lines.items():
        work = without_waits(
            launch.work,
            lambda w: 1.0 if w.frame == frame and w.cause in ("shared", "barrier") else 0.0,  # noqa: B023
        )
        work = replace(
            work,
            l1_wavefronts=max(0.0, work.l1_wavefronts - wavefronts),
            pipes=without(work.pipes, {"lsu": wavefronts, "issue": wavefronts}),
        )
        message = (
            "threads exchange a tile through shared memory here, because what is done with it "
            "next needs it in another order; load it in that order, or turn it (tl.trans) once"
        )
        yield Finding(frame, "layout-conversion", message, work)
