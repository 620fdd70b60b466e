"""Rules about waiting: loads that do not run ahead, serial loops, few warps, atomics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tkdebug.advice.facts import AccessFacts, KernelFacts
from tkdebug.advice.findings import (
    Finding,
    Launch,
    accesses_by_line,
    also_in,
    of_program,
    of_tensors,
    share_of_program,
    without,
)
from tkdebug.advice.machines import LINE_BYTES, SECTOR_BYTES, Machine
from tkdebug.advice.model import (
    ON_CHIP,
    Work,
    atomic_seconds,
    dram_bytes,
    grid_s,
    l2_bytes,
    meeting,
    steady_s,
    without_waits,
)
from tkdebug.errors import Frame

# Copies of an address that every program adds to once.
_COPIES = 32
# Fewer atomics on an address are the partial results of a few programs.
_MEETING = 128
# Iterations that a loop's loads run ahead unless another number is asked for.
_USUAL_AHEAD = 2
# The fewest bytes of an asynchronous copy. Source: PTX ISA, "cp.async".
_LEAST_COPY = 4
_ONE_STAGE = "num_stages is 1"
_SECTORS_OF_LINE = LINE_BYTES / SECTOR_BYTES
# Iterations of a serial loop that one tile of an associative scan does at once, and the fewest for
# which a scan is worth it.
_AT_ONCE, _FEWEST_ROUNDS = 16, 8
# The share of waits at barriers that is named though the model promises little.
_LARGE_SHARE = 0.15
# The gain that more blocks have to promise for products: iterations of products alone gain up to
# 1.2, those with more work between products than a lone warpgroup can overlap 1.3 to 1.6.
_LEAST_OF_PRODUCTS = 1.3
# A shorter launch begins and ends too soon for occupancy to matter.
_SHORT_S = 2e-6


def pipelining(launch: Launch) -> Iterator[Finding]:
    """Report loads in loops that do not run ahead of their use."""
    yield from _waiting_products(launch)
    yield from _dependent_loads(launch)
    if not launch.facts.dots:
        yield from _waiting_loops(launch)


def _waiting_loops(launch: Launch) -> Iterator[Finding]:
    """Report loops without products whose loads do not run ahead, each once for each reason."""
    facts = launch.facts
    together: dict[tuple[int, str], list[AccessFacts]] = {}
    for access in facts.accesses:
        may_run_ahead = not access.loop_depends and _runs(access) >= _LEAST_COPY
        if may_run_ahead and _is_waited_for(access) and _rounds(facts, access) >= 2:
            loop = next((n for n, one in enumerate(facts.loops) if access.op_id in one.op_ids), -1)
            reason = facts.why_not_pipelined.get(access.op_id, _NOT_ASKED)
            together.setdefault((loop, reason), []).append(access)
    for (_, reason), loads in together.items():
        work = _ahead(launch, loads, 1 - 1 / max(_USUAL_AHEAD, facts.num_stages - 1))
        for access in loads:
            work = _widened(work, access, launch.machine)
        message = (
            f"load{of_tensors(*loads)}: each round of the loop waits for it, because {reason}"
            f"{also_in((a.frame for a in loads), loads[0].frame)}"
        )
        yield Finding(loads[0].frame, "not-pipelined", message, work)


_NOT_ASKED = (
    "only loads for tl.dot run ahead by themselves; tl.range(…, num_stages=3) asks for others"
)


def _runs(access: AccessFacts) -> int:
    """Return the bytes that a thread's copy could have: those that follow each other in memory."""
    return max(access.width_bytes, access.thread_bytes)


def _rounds(facts: KernelFacts, access: AccessFacts) -> float:
    """Return how often an average program makes an access."""
    return access.executions / facts.programs


def _is_waited_for(access: AccessFacts) -> bool:
    return access.in_loop and access.kind == "load" and access.path == "registers"


def _dependent_loads(launch: Launch) -> Iterator[Finding]:
    """Report loads whose addresses the same loop loads, one finding for those of one index."""
    together: dict[tuple[int, ...], list[AccessFacts]] = {}
    for access in launch.facts.accesses:
        if access.loop_depends and _is_waited_for(access):
            together.setdefault(access.address_loads, []).append(access)
    for loads in together.values():
        yield _dependent(launch, loads)


def _dependent(launch: Launch, loads: list[AccessFacts]) -> Finding:
    """Return the finding on loads whose address the loop loads: an iteration waits for both."""
    facts, access = launch.facts, loads[0]
    by_id = {a.op_id: a for a in facts.accesses if a.in_loop and a.kind == "load"}
    indices = [by_id[i] for i in access.address_loads if i in by_id and i != access.op_id]
    symptoms = {"not-pipelined": frozenset(a.frame for a in indices)}
    # An order of elements in which addresses are known has neighbours, too.
    chain = next((a for a in loads if a.op_id in a.address_loads), None)
    if not indices or chain is not None:
        access = access if chain is None else chain
        symptoms["gather"] = frozenset(a.frame for a in loads)
        work = _ahead(launch, [access], 1 - 1 / 4)
        message = (
            f"load{of_tensors(access)}: its address is what the round before has loaded, so each "
            "round waits for the one before it; walk several such chains in one program, or lay "
            "the elements out so that their addresses are known"
        )
    else:
        work = _ahead(launch, indices, 1.0)
        work = _ahead(replace(launch, work=work), loads, 1 - 1 / _USUAL_AHEAD)
        lines = " and ".join(sorted({str(a.frame.line) for a in indices}))
        message = (
            f"load{of_tensors(*loads)}: its address comes from the load{of_tensors(*indices)} in "
            f"line {lines}, so each round waits twice, once after the other; load the indices of "
            "all rounds, or of the next one, ahead of the round that needs them"
        )
    share = share_of_program(launch, work)
    message += also_in((a.frame for a in loads), access.frame) + of_program(share)
    return Finding(access.frame, "dependent-loads", message, work, share, symptoms)


def _waiting_products(launch: Launch) -> Iterator[Finding]:
    """Report loops with products whose loads do not run ahead, once for each reason."""
    facts = launch.facts
    reasons = {
        a.op_id: reason
        for a in facts.accesses
        if facts.dots and _is_waited_for(a) and not a.loop_depends
        if (reason := _why_waited_for(facts, a))
    }
    loads = [a for a in facts.accesses if a.op_id in reasons]
    for reason in dict.fromkeys(reasons.values()):
        alike = [a for a in loads if reasons[a.op_id] == reason]
        rounds = max(a.executions for a in alike) / facts.programs
        if rounds < 2 or (reason == _ONE_STAGE and not _stages_fit(facts, alike)):
            continue
        work = _ahead(launch, alike, 1 - 1 / rounds)
        for access in alike:
            work = _widened(work, access, launch.machine)
        help_ = f"; num_stages={_USUAL_AHEAD + 1} loads {_USUAL_AHEAD} rounds ahead"
        message = (
            f"load{of_tensors(*alike)}: each round of the loop waits for it before its product "
            f"begins, because {reason}{help_ if reason == _ONE_STAGE else _odd(alike)}"
        )
        symptoms = {"narrow-access": frozenset(a.frame for a in alike if a.is_split)}
        yield Finding(alike[0].frame, "not-pipelined", message, work, 0.0, symptoms)


def _why_waited_for(facts: KernelFacts, access: AccessFacts) -> str:
    """Return why a load in a loop does not run ahead of products; "" if unknown."""
    loop = next((one for one in facts.loops if access.op_id in one.op_ids), None)
    if loop is not None and not loop.is_counted:
        return "the rounds of a `while` are not known ahead; `for` over a range has them"
    return facts.why_not_pipelined.get(access.op_id, "")


def _ahead(launch: Launch, loads: list[AccessFacts], share: float) -> Work:
    """The work if a share of the executions of some loads ran ahead of their uses."""
    ids = {access.op_id for access in loads}
    work = without_waits(
        launch.work, lambda w: share if w.cause == "load" and w.op_id in ids else 0.0
    )
    return replace(
        work,
        awaited_dram_bytes=max(0.0, work.awaited_dram_bytes - share * sum(map(dram_bytes, loads))),
        awaited_l2_bytes=max(0.0, work.awaited_l2_bytes - share * sum(map(l2_bytes, loads))),
    )


def _odd(accesses: list[AccessFacts]) -> str:
    """Return a text of the arguments that keep accesses from being wider; "" if none does."""
    known = dict.fromkeys(access.odd for access in accesses if access.odd)
    return f": {'; '.join(known)}" if known else ""


def _stages_fit(facts: KernelFacts, loads: list[AccessFacts]) -> bool:
    """Whether shared memory holds the tiles of an iteration and of those ahead of it."""
    limit = facts.occupancy.limits.get("shared memory")
    if not limit or not facts.shared_bytes:
        return True
    stage_bytes = sum(a.tile_elems * a.element_bytes for a in loads)
    return facts.shared_bytes + _USUAL_AHEAD * stage_bytes <= limit * facts.shared_bytes


def _widened(work: Work, access: AccessFacts, machine: Machine) -> Work:
    """The work with an access as wide copies, if its elements follow each other in memory.

    Copies need not follow the layout of a product's operands: each request fills its lines.
    """
    if access.is_split and access.width_bytes >= _LEAST_COPY:
        again = max(0.0, access.lines - access.needed_sectors / _SECTORS_OF_LINE)
        wavefronts = max(0.0, work.l1_wavefronts - again * access.executions)
        return replace(work, l1_wavefronts=wavefronts)
    if access.width_bytes >= _LEAST_COPY or _runs(access) < _LEAST_COPY:
        return work
    fewer = access.requests * access.executions * (1 - access.width_bytes / 16)
    removed = {"lsu": fewer, "issue": 4 * fewer, "alu": 2 * fewer}
    return replace(
        work,
        request_s=work.request_s - fewer * machine.memory_latency_s,
        l1_wavefronts=max(0.0, work.l1_wavefronts - fewer),
        pipes=without(work.pipes, removed),
    )


def serial_loops(launch: Launch) -> Iterator[Finding]:
    """Report loops of many iterations, each of which needs the result of the one before."""
    facts, machine = launch.facts, launch.machine
    for loop in facts.loops:
        if loop.needs_before is None or loop.rounds < _FEWEST_ROUNDS or facts.dots:
            continue

        gone = 1 - 1 / min(_AT_ONCE, loop.rounds)
        loads = [a for a in facts.accesses if a.op_id in loop.op_ids and a.kind == "load"]
        work = without_waits(
            _ahead(launch, loads, gone),
            lambda w: gone if loop.has(w) and w.cause != "load" else 0.0,  # noqa: B023
        )
        cycles = sum(wait.cycles for wait in facts.waits if loop.has(wait)) * facts.programs
        each_ns = cycles / (loop.rounds * loop.entries) / machine.clock_hz * 1e9
        message = (
            f"each of {loop.rounds:.4g} rounds of the loop needs what the one before has computed "
            f"here, and takes {each_ns:.3g} ns, however many programs there are; do several rounds "
            "at once as a tile (tl.associative_scan, or a product for each chunk), and carry the "
            "state from tile to tile"
        )
        lines = frozenset(load.frame for load in loads)
        symptoms = {"not-pipelined": lines, "reduction-in-loop": None, "barriers": None}
        yield Finding(loop.needs_before, "serial-loop", message, work, 0.0, symptoms)


def occupancy(launch: Launch) -> Iterator[Finding]:
    """Registers or shared memory that keep blocks out."""
    facts, fits = launch.facts, launch.facts.occupancy
    by = [name for name in fits.limited_by if name in ("registers", "shared memory")]
    if not by or fits.percent > 40 or grid_s(launch.work, launch.machine) < _SHORT_S:
        return
    others = min(n for name, n in fits.limits.items() if name not in by)
    blocks = min(others, max(2 * fits.blocks, 1))
    if blocks <= fits.blocks:
        return
    per_block = fits.warps // max(1, fits.blocks)
    work = replace(launch.work, blocks=blocks, warps=blocks * per_block)
    is_of_registers = by[0] == "registers"
    if is_of_registers:
        # Parts of a tile are programs of their own, which have less to do and wait as often.
        parts = blocks / max(1, fits.blocks)
        work = without_waits(work, lambda w: 1 - 1 / parts if w.cause in ON_CHIP else 0.0)
        work = replace(work, programs=round(work.programs * parts))
    what = (
        f"{facts.registers} registers a thread"
        if is_of_registers
        else f"{facts.shared_bytes} bytes of shared memory a block"
    )
    if is_of_registers and facts.spill_bytes:
        return  # one cause, which the remark on spills names
    if facts.dots:
        # A product's sums are best kept in registers, and its stages in shared memory.
        faster = steady_s(launch.work, launch.machine) / steady_s(work, launch.machine)
        if is_of_registers or faster < _LEAST_OF_PRODUCTS:
            return
    frame = (facts.fullest if is_of_registers else _largest_copy(facts)) or facts.frame
    ways = (
        f"a loop over parts of the tile of {facts.widest_tile} elements, which is in registers "
        f"here, or more warps than {facts.num_warps} to hold it"
        if is_of_registers
        else "smaller tiles or fewer stages"
    )
    message = (
        f"occupancy {fits.percent:.0f} %: {what} let {_blocks(fits.blocks)} "
        f"({fits.warps} of {fits.max_warps} warps) on a multiprocessor, so that little else runs "
        f"while a program waits; {ways}, for {_blocks(blocks)}"
    )
    kind = "low-occupancy-registers" if is_of_registers else "low-occupancy-shared"
    yield Finding(frame, kind, message, work)


def _largest_copy(facts: KernelFacts) -> Frame | None:
    """Return the line of the copy that most of shared memory is for, or None if there is none."""
    copies = [a for a in facts.accesses if a.kind == "load" and a.path != "registers"]
    worst = max(copies, key=lambda a: a.tile_elems * a.element_bytes, default=None)
    return None if worst is None else worst.frame


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"


def barriers(launch: Launch) -> Iterator[Finding]:
    """Report barriers that keep the warps of a program in step, so that no work overlaps."""
    facts = launch.facts
    waits = [wait for wait in facts.waits if wait.cause == "barrier"]
    # Iterations with products need theirs, for operands in shared memory.
    if not waits or facts.num_warps == 1 or facts.dots:
        return
    lines: dict[Frame, float] = {}
    for wait in waits:
        lines[wait.frame] = lines.get(wait.frame, 0.0) + wait.cycles
    frame = max(lines, key=lambda f: lines[f])
    work = without_waits(launch.work, lambda w: 1.0 if w.cause == "barrier" else 0.0)
    share = share_of_program(launch, work)
    message = (
        f"barriers keep the {facts.num_warps} warps of a program in step, so that they load and "
        f"compute by turns{of_program(share)}; fewer reductions across warps, fewer warps, or "
        "smaller programs, of which several fit on a multiprocessor"
    )
    # Where several programs fit, each fills the gaps of the others.
    is_certain = launch.work.blocks == 1 and share >= _LARGE_SHARE
    yield Finding(frame, "barriers", message, work, share if is_certain else 0.0)


def atomics(launch: Launch) -> Iterator[Finding]:
    """Atomics that meet at one address."""

    def meets(access: AccessFacts) -> bool:
        often = access.same_address >= _MEETING
        return access.kind == "atomic" and (often or meeting(access) >= 2)

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
