"""Rules about matrix products: slower units, sums of products that are no `tl.dot`, small tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tkdebug.advice.facts import AccessFacts, DotFacts, KernelFacts
from tkdebug.advice.findings import Finding, Launch, also_in, without
from tkdebug.advice.machines import TENSOR_SHARE, TF32_BITS
from tkdebug.advice.model import ON_CHIP, Work, l2_bytes, request_s, without_waits
from tkdebug.errors import Frame

# The least extents that tl.dot takes along its result's axes and along the sum.
_LEAST_SIDE, _LEAST_SUM = 16, 16
# The sectors of a warp's widest request, 16 bytes a thread.
_SECTORS_OF_REQUEST = 16
# Tiles with such sides ask little of the second-level cache for their products.
_LARGE_SIDE = 128
# Causes that come from a product's operands in shared memory.
_OF_SHARED = ("bank-conflict", "layout-conversion")
# Warpgroup instructions take so many rows. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix".
_WGMMA_ROWS = 64


def tensor_cores(launch: Launch) -> Iterator[Finding]:
    """Products that a better unit could compute."""
    machine = launch.machine
    for frame, dots in _dots_by_line(launch.facts).items():
        dot = max(dots, key=lambda d: d.flops)
        if not dot.why or not dot.flops:
            continue
        flops = sum(d.flops * d.passes for d in dots)
        bits = dot.bits if dot.bits <= 16 else 19
        if dot.operands == "f64" or _has_few_rows(launch.facts, dot):
            continue
        peak = machine.tensor_flops.get(bits, machine.tensor_flops[16])
        best = flops / (peak * TENSOR_SHARE)
        pipes, frames, now = launch.work.pipes, {frame}, 0.0
        if dot.unit == "fma":
            kind = "no-tensor-cores"
            fma = flops / 64
            pipes = without(pipes, {"fp32": fma, "issue": fma})
            message = f"dot: computed by FMA units, because {dot.why}"
            if dot.operands == "f32":
                message += '; input_precision="tf32" or "tf32x3", or 16-bit operands, use them'
            # FMA units take operands in layouts of their own.
            frames = _operand_frames(launch.facts, dots)
        else:
            kind = "no-wgmma"
            now = flops / (peak * machine.mma_share * TENSOR_SHARE)
            message = f"dot: computed by mma.sync and not by wgmma, because {dot.why}"
            pipes = without(pipes, {"issue": _products(launch.facts, frame)})
        shared = sum(s.wavefronts for s in launch.facts.shared if s.frame in frames)
        beside = sum(s.wavefronts for s in launch.facts.shared if s.frame in frames - {frame})
        loads = _shared_loads(launch.facts, frame)
        work = without_waits(
            launch.work,
            lambda w: 1.0 if w.frame in frames and w.cause in ON_CHIP else 0.0,  # noqa: B023
        )
        work = replace(
            work,
            tensor_s=launch.work.tensor_s - now + best,
            pipes=without(pipes, {"lsu": loads + beside, "issue": loads + beside}),
            l1_wavefronts=max(0.0, launch.work.l1_wavefronts - shared - loads),
        )
        yield Finding(frame, kind, message, work)


def _has_few_rows(facts: KernelFacts, dot: DotFacts) -> bool:
    """Whether the whole product has too few rows for wgmma, whatever the tile."""
    columns = next((a for a in facts.accesses if a.op_id == dot.loads[1]), None)
    if dot.unit != "mma" or columns is None or dot.tile[0] >= _WGMMA_ROWS:
        return False
    tiles = _read_again({columns.op_id: columns}, columns.op_id)
    return dot.tile[0] * tiles < _WGMMA_ROWS


def _operand_frames(facts: KernelFacts, dots: list[DotFacts]) -> set[Frame]:
    """The lines of products and of the loads of their operands."""
    by_id = {a.op_id: a for a in facts.accesses}
    loads = {by_id[op].frame for d in dots for op in d.loads if op in by_id}
    return {dot.frame for dot in dots} | loads


def upcasts(launch: Launch) -> Iterator[Finding]:
    """Report products whose operands are cast to fp32, though tensor cores take their own type."""
    facts = launch.facts
    dots = [d for d in facts.dots if d.widened and d.operands == "f32" and d.flops]
    if not dots:
        return
    dot = max(dots, key=lambda d: d.flops)
    unit = "FMA units" if dot.unit == "fma" else "tensor cores as tf32"
    message = (
        f"dot: its operands are fp32, cast from {_NAMES.get(dot.widened, dot.widened)}, "
        f"and computed by {unit}; tl.dot of the type that was loaded adds up in fp32, "
        "too, at twice the rate and with half of the shared memory"
        f"{also_in((d.frame for d in dots), dot.frame)}"
    )
    frames = frozenset(_operand_frames(facts, dots))
    symptoms: dict[str, frozenset[Frame] | None] = dict.fromkeys(_OF_SHARED, frames)
    symptoms["low-occupancy-shared"] = None
    symptoms["no-wgmma"] = frozenset(d.frame for d in dots)
    yield Finding(dot.frame, "upcast-operands", message, _as_loaded(launch, dots), 0.0, symptoms)


def _as_loaded(launch: Launch, dots: list[DotFacts]) -> Work:
    """The work if products took their operands as they were loaded.

    Operands then go to shared memory without passing registers, with half the bytes.
    """
    facts, machine, work = launch.facts, launch.machine, launch.work
    # Operands that are cast have a type of 16 bits at most; fp8 may lack a product of its own.
    rate = machine.tensor_flops[16] * machine.mma_share * TENSOR_SHARE
    tensor_s, pipes = work.tensor_s, work.pipes
    for dot in dots:
        flops = dot.flops * dot.passes
        if dot.unit == "fma":
            pipes = without(pipes, {"fp32": flops / 64, "issue": flops / 64})
            tensor_s += flops / rate
            continue
        peak = machine.tensor_flops.get(dot.bits, machine.tensor_flops[16])
        share = 1.0 if dot.unit == "wgmma" else machine.mma_share
        now = flops / (peak * share * TENSOR_SHARE)
        tensor_s += min(flops / rate, now) - now
    frames = _operand_frames(facts, dots)
    shared = sum(s.wavefronts - s.needed / 2 for s in facts.shared if s.frame in frames)
    moves = sum(_shared_loads(facts, one) for one in frames) / 2
    work = without_waits(work, lambda w: 0.5 if w.frame in frames and w.cause in ON_CHIP else 0.0)
    return replace(
        work,
        tensor_s=max(0.0, tensor_s),
        pipes=without(pipes, {"lsu": moves, "issue": moves}),
        l1_wavefronts=max(0.0, work.l1_wavefronts - shared),
    )


_NAMES = {"f16": "fp16", "bf16": "bf16"}


def _shared_loads(facts: KernelFacts, frame: Frame) -> float:
    return sum(c.by_pipe.get("lsu", 0.0) for c in facts.code if c.frame == frame)


def _products(facts: KernelFacts, frame: Frame) -> float:
    """Instructions of tensor cores at a line."""
    return sum(c.by_pipe.get("tensor", 0.0) for c in facts.code if c.frame == frame)


def _dots_by_line(facts: KernelFacts) -> Mapping[Frame, list[DotFacts]]:
    found: dict[Frame, list[DotFacts]] = {}
    for dot in facts.dots:
        found.setdefault(dot.frame, []).append(dot)
    return found


def broadcasting(launch: Launch) -> Iterator[Finding]:
    """Sums of products of broadcast tiles, which are matrix products."""
    facts, machine = launch.facts, launch.machine
    for found in facts.broadcast_products:
        rows, columns, depth = found.tile
        if min(rows, columns) < _LEAST_SIDE or found.bits > 32 or not found.flops:
            continue
        peak = machine.tensor_flops.get(16 if found.bits <= 16 else TF32_BITS)
        if peak is None:
            continue
        pipes: Mapping[str, float] = launch.work.pipes
        for line in facts.code:
            if line.frame in found.frames:
                pipes = without(pipes, line.by_pipe)
        shared = sum(s.wavefronts for s in facts.shared if s.frame in found.frames)
        tensor_s = found.flops / (peak * machine.mma_share * TENSOR_SHARE)
        work = without_waits(
            launch.work,
            lambda w: 1.0 if w.frame in found.frames and w.cause in ON_CHIP else 0.0,  # noqa: B023
        )
        if found.loop_ops:
            # An iteration with tl.dot takes as many elements of the sums, with one wait for them.
            work = without_waits(
                work,
                lambda w: 1 - 1 / _LEAST_SUM if w.op_id in found.loop_ops else 0.0,  # noqa: B023
            )
            work = _loaded_as_tiles(launch, work, found.loop_ops)
        work = replace(
            work,
            pipes=pipes,
            l1_wavefronts=max(0.0, work.l1_wavefronts - shared),
            tensor_s=work.tensor_s + tensor_s,
        )
        what = "added up round by round" if found.loop_ops else "of broadcast tiles, summed up"
        longer = "" if depth >= _LEAST_SUM else f", of {_LEAST_SUM} elements along the sum at least"
        message = (
            f"products {what}: a matrix product of {rows}x{columns}, {depth} along the sum, "
            "computed by FMA units, because only tl.dot uses tensor cores; "
            f"tl.dot of the two tiles{longer}, computes it"
        )
        symptoms: dict[str, frozenset[Frame] | None] = dict.fromkeys(
            ("spill", "low-occupancy-registers", "not-pipelined", "barriers")
        )
        symptoms |= dict.fromkeys(("reduction-in-loop", *_OF_SHARED), frozenset(found.frames))
        yield Finding(found.frame, "no-tensor-cores", message, work, 0.0, symptoms)


def _loaded_as_tiles(launch: Launch, work: Work, ops: frozenset[int]) -> Work:
    """The work if the loads of some ops were of whole tiles, which no warp loads twice."""
    requests_s = lines = 0.0
    for load in launch.facts.accesses:
        if load.op_id in ops and load.path == "registers" and load.requests:
            needed = min(1.0, load.needed_sectors / _SECTORS_OF_REQUEST / load.requests)
            requests_s += request_s(load, launch.machine) * (1 - needed)
            lines += max(0.0, load.lines - load.needed_sectors / 4) * load.executions
    return replace(
        work,
        request_s=max(0.0, work.request_s - requests_s),
        l1_wavefronts=max(0.0, work.l1_wavefronts - lines),
    )


def small_products(launch: Launch) -> Iterator[Finding]:
    """Products of small tiles, whose operands are read again by many programs."""
    facts = launch.facts
    loads = {a.op_id: a for a in facts.accesses if a.in_loop}
    for dots in _dots_by_line(facts).values():
        dot = max(dots, key=lambda d: d.flops)
        taller, wider = _growth(dot, loads, facts.programs / launch.machine.sms)
        if dot.unit == "fma" or taller * wider == 1:
            continue
        rows, columns, _ = dot.tile
        message = (
            f"dot: a tile of {rows}x{columns} reads its operands again in so many programs that "
            f"the cache is busy with them; {rows * taller}x{columns * wider} reads "
            f"{_bytes_ratio(dot, loads, taller, wider):.2g}x less for the same product"
        )
        work = _of_larger_tiles(launch, dots, loads, taller, wider)
        yield Finding(dot.frame, "small-product-tiles", message, work)


def _growth(dot: DotFacts, loads: Mapping[int, AccessFacts], waves: float) -> tuple[int, int]:
    """Return the factors by which a tile could have more rows, and more columns.

    They are limited by the programs that read the same operand, and by a program for each
    multiprocessor.
    """
    rows, columns, _ = dot.tile
    sides = {"rows": rows, "columns": columns}
    again = {"rows": _read_again(loads, dot.loads[1]), "columns": _read_again(loads, dot.loads[0])}
    grown = {"rows": 1, "columns": 1}
    while True:
        can = [
            side
            for side in sides
            if sides[side] * grown[side] * 2 <= _LARGE_SIDE and grown[side] * 2 <= again[side]
        ]
        if not can or waves < 2 * grown["rows"] * grown["columns"]:
            return grown["rows"], grown["columns"]
        grown[min(can, key=lambda side: sides[side] * grown[side])] *= 2


def _read_again(loads: Mapping[int, AccessFacts], op_id: int | None) -> float:
    """Return how many programs read each element of an operand."""
    load = loads.get(op_id) if op_id is not None else None
    if load is None or not load.footprint_bytes:
        return 1.0
    return load.elements * load.element_bytes / load.footprint_bytes / max(1.0, load.again)


def _kept(dot: DotFacts, taller: int, wider: int) -> Iterator[tuple[int, float]]:
    """Yield a product's loads, each with the share of its reads that larger tiles still make.

    Rows are read once for each tile in their row of tiles, and columns for each in theirs.
    """
    for op_id, times in zip(dot.loads, (wider, taller), strict=True):
        if op_id is not None:
            yield op_id, 1 / times


def _bytes_ratio(dot: DotFacts, loads: Mapping[int, AccessFacts], taller: int, wider: int) -> float:
    kept = [(l2_bytes(loads[op]), share) for op, share in _kept(dot, taller, wider) if op in loads]
    return sum(size for size, _ in kept) / sum(size * share for size, share in kept)


def _of_larger_tiles(
    launch: Launch, dots: list[DotFacts], loads: Mapping[int, AccessFacts], taller: int, wider: int
) -> Work:
    """The work with larger tiles: fewer copies, and fewer moves of operands to products."""
    facts, machine, work = launch.facts, launch.machine, launch.work
    dot = max(dots, key=lambda d: d.flops)
    fewer = 1 - 1 / _bytes_ratio(dot, loads, taller, wider)
    saved = {op: 1 - share for op, share in _kept(dot, taller, wider) if op in loads}
    frames = {dot.frame, *(loads[op].frame for op in saved)}
    removed: dict[str, float] = {}
    for line in facts.code:
        if line.frame in frames:
            moves = {p: n * fewer for p, n in line.by_pipe.items() if p in ("alu", "imad", "lsu")}
            for pipe, count in (*moves.items(), ("issue", sum(moves.values()))):
                removed[pipe] = removed.get(pipe, 0.0) + count
    tensor_s = work.tensor_s
    if dot.unit == "mma" and dot.tile[0] < _WGMMA_ROWS <= dot.tile[0] * taller:
        flops = sum(d.flops * d.passes for d in dots)
        peak = machine.tensor_flops.get(dot.bits, machine.tensor_flops[16]) * TENSOR_SHARE
        tensor_s -= flops / peak * (1 / machine.mma_share - 1)
    return replace(
        work,
        l2_bytes=work.l2_bytes - sum(l2_bytes(loads[op]) * share for op, share in saved.items()),
        l1_wavefronts=work.l1_wavefronts
        - sum(loads[op].lines * loads[op].executions * share for op, share in saved.items()),
        pipes=without(work.pipes, removed),
        tensor_s=tensor_s,
    )
