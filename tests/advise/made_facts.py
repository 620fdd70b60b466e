"""Facts of launches by hand."""

from __future__ import annotations

from dataclasses import replace

from tkdebug.advice.facts import AccessFacts, KernelFacts, LineCode, LoopFacts, WaitFacts
from tkdebug.errors import Frame
from tkdebug.linemap.parts import Occupancy

DEF, LOAD, STORE = (Frame("k.py", line, "k") for line in (3, 6, 8))
FACTS = KernelFacts(
    kernel="k",
    kernel_hash="hash",
    frame=DEF,
    target="sm_90a",
    grid=(1, 1, 1),
    num_warps=4,
    num_stages=3,
    occupancy=Occupancy(1, 4, 64, {}, ()),
    registers=32,
    spill_bytes=0,
    shared_bytes=0,
    accesses=(),
    dots=(),
    shared=(),
    code=(),
    waits=(),
    why_not_pipelined={},
    read_bytes=0,
    written_bytes=0,
    flops=0,
)
# Of a round: a load of 16 KB from memory, some arithmetic, a barrier.
_ROUND_BYTES, _ROUND_ISSUED = 16 << 10, 200
_LATENCY = 1000.0


def streaming(programs: int, rounds: int = 128, blocks: int = 1) -> KernelFacts:
    """Programs that each read so many rounds of a tile, which they wait for and add up."""
    read = programs * rounds * _ROUND_BYTES
    sectors = _ROUND_BYTES // 32
    load = AccessFacts(
        op_id=1,
        frame=LOAD,
        kind="load",
        path="registers",
        tensor="x",
        element_bytes=4,
        executions=programs * rounds,
        tile_elems=4096,
        elements=programs * rounds * 4096,
        requests=32.0,
        sectors=sectors,
        needed_sectors=sectors,
        lines=sectors / 4,
        program_sectors=sectors,
        width_bytes=16,
        possible_bytes=16,
        in_loop=True,
        footprint_bytes=read,
    )
    issued = float(programs * rounds * FACTS.num_warps * _ROUND_ISSUED)
    limits = {"registers": blocks, "warps": 16}
    return replace(
        FACTS,
        grid=(programs, 1, 1),
        occupancy=Occupancy(blocks, 4 * blocks, 64, limits, ("registers",)),
        accesses=(load,),
        code=(LineCode(LOAD, {"issue": issued, "fp32": issued / 2}),),
        waits=(
            WaitFacts("load", LOAD, 1, rounds * _LATENCY),
            WaitFacts("barrier", LOAD, 2, rounds * 30.0),
        ),
        read_bytes=read,
        loops=(LoopFacts(LOAD, frozenset({1, 2}), programs, rounds, None),),
    )
