"""The model of a launch's time: overlap by blocks, grids without cliffs, what is at the roof."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from made_facts import FACTS, LOAD, STORE, streaming

from tkdebug.advice.facts import LineCode, LoopFacts, WaitFacts
from tkdebug.advice.judging import judge
from tkdebug.advice.machines import MACHINES
from tkdebug.advice.model import (
    grid_s,
    program_time,
    steady_s,
    swept_bytes,
    without_waits,
    work_of,
)
from tkdebug.advice.records import FILLED, LAUNCH

H100 = MACHINES["sm_90a"]


def grid_of(facts):
    return grid_s(work_of(facts, H100), H100)


def remarks_on(facts):
    return {remark.kind: remark for remark in judge(facts, H100, 1).remarks}


def test_one_program_more_is_no_cliff():
    # Up to one program for each multiprocessor, a launch takes as long as one program.
    times = [grid_of(streaming(programs)) for programs in range(1, H100.sms + 1)]
    steps = [after / before for before, after in pairwise(times)]
    assert max(steps) < 1.02
    assert min(steps) > 0.99


@pytest.mark.parametrize("programs", [22, 23, 40])
def test_a_grid_that_leaves_multiprocessors_idle_is_named(programs):
    found = remarks_on(streaming(programs))
    small = found["small-grid"]
    assert small.judged == LAUNCH
    # As many times as fast as multiprocessors are idle, less what memory and combining take.
    assert 1.3 < small.predicted_ns / small.better_ns < H100.sms / programs
    assert judge(streaming(programs), H100, 1).remarks[0].kind == "small-grid"


@pytest.mark.parametrize(("line", "is_split"), [(LOAD, True), (STORE, False)])
def test_waits_of_no_op_are_split_with_the_loop_in_whose_lines_they_are(line, is_split):
    facts = streaming(22)
    (loop,) = facts.loops
    loops = (replace(loop, frames=frozenset({LOAD})),)
    waits = (*facts.waits, WaitFacts("dependency", line, None, 128 * 2000.0))
    small = remarks_on(replace(facts, loops=loops, waits=waits)).get("small-grid")
    assert (small is not None and small.predicted_ns > 2 * small.better_ns) is is_split


def test_masks_that_a_test_leaves_are_none_in_a_grid_that_fills_the_gpu():
    facts = streaming(16, rounds=1, blocks=8)
    (load,) = facts.accesses
    slow = {"issue": 70_000.0, "fp32": 70_000.0}
    code = (LineCode(STORE, slow, {"slow-function": slow}, {"slow-function": 20.0}),)
    half = replace(load, elements=load.elements // 2, footprint_bytes=load.footprint_bytes // 2)
    whole = replace(facts, accesses=(load,), code=code)
    masked = replace(facts, accesses=(half,), code=code, read_bytes=facts.read_bytes // 2)
    gains = [
        one.filled_ns / one.filled_better_ns
        for one in (remarks_on(whole)["slow-function"], remarks_on(masked)["slow-function"])
    ]
    assert gains[1] == pytest.approx(gains[0], rel=0.1)


def test_rounds_that_need_each_other_are_not_split_over_programs():
    facts = streaming(22)
    (loop,) = facts.loops
    serial = replace(facts, loops=(replace(loop, needs_before=LOAD),))
    found = remarks_on(serial)
    assert "small-grid" not in found
    assert "serial-loop" in found


def test_a_full_grid_is_not_called_small():
    assert "small-grid" not in remarks_on(streaming(H100.sms * 8, blocks=8))


def test_memory_time_overlaps_with_computing_only_as_far_as_there_are_blocks():
    times = [steady_s(work_of(streaming(5280, blocks=b), H100), H100) for b in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)
    memory_s = 5280 * 128 * (16 << 10) / (H100.dram_bytes_per_s * 0.92)
    assert times[0] > 1.8 * memory_s
    assert times[-1] < 1.1 * memory_s


def test_warps_that_no_barrier_keeps_in_step_overlap_within_a_program():
    work = work_of(streaming(132), H100)
    apart = without_waits(work, lambda wait: 1.0 if wait.cause == "barrier" else 0.0)
    in_step, free = program_time(work, H100), program_time(apart, H100)
    assert in_step.overlapped == 0
    assert free.overlapped > 0
    # A warp's own waits and instructions still follow each other.
    assert free.total > free.waiting


def test_barriers_and_occupancy_are_named_with_their_share_where_one_block_fits():
    facts = streaming(1056)
    found = remarks_on(facts)
    assert "% of a program's time" in found["barriers"].message
    assert "1 block (4 of 64 warps)" in found["low-occupancy-registers"].message


def test_spills_are_named_with_their_share_though_memory_hides_them():
    facts = streaming(5280, blocks=8)
    issued = facts.code[0].by_pipe["issue"]
    spilling = replace(
        facts,
        spill_bytes=256,
        local_bytes=128,
        local_lines={LOAD: 0.05 * issued},
        waits=(*facts.waits, WaitFacts("spill", LOAD, 3, 0.05 * 128 * 1000)),
    )
    spill = remarks_on(spilling)["spill"]
    assert spill.predicted_ns / spill.better_ns < 1.05
    assert "% of a program's time" in spill.message


def test_spills_and_the_blocks_that_they_keep_out_are_one_remark():
    facts = streaming(5280)
    issued = facts.code[0].by_pipe["issue"]
    full = replace(
        facts, registers=255, spill_bytes=64, local_bytes=64, local_lines={LOAD: 0.001 * issued}
    )
    found = remarks_on(full)
    assert "so that 1 block and 4 of 64 warps fit" in found["spill"].message
    assert "low-occupancy-registers" not in found


@pytest.mark.parametrize(("each", "is_named"), [(16, False), (512, True)])
def test_atomics_of_a_small_launch_that_meet_are_named(each, is_named):
    facts = streaming(each, rounds=1, blocks=8)
    (load,) = facts.accesses
    adds = replace(
        load,
        kind="atomic",
        elements=each,
        requests=1.0,
        same_address=each,
        same_sector=each,
        sectors=1.0,
        needed_sectors=1.0,
        program_sectors=1.0,
        lines=1.0,
        footprint_bytes=32,
    )
    found = remarks_on(replace(facts, accesses=(adds,), waits=(), code=(), read_bytes=4096))
    assert ("atomic-contention" in found) == is_named


def test_what_a_loop_does_again_is_named_though_a_full_gpu_hides_it():
    facts = streaming(16, rounds=4, blocks=16)
    (load,) = facts.accesses
    again = replace(load, again=4.0, executions=64, footprint_bytes=16 << 14)
    remark = remarks_on(replace(facts, accesses=(again,)))["redundant-load"]
    assert remark.judged == LAUNCH
    assert remark.predicted_ns < 12e3
    assert remark.predicted_ns / remark.better_ns > 1.3


def test_a_short_launch_is_judged_as_if_its_like_filled_the_gpu():
    # 16 programs of a round: over before it matters how they wait; but each request is wasteful.
    facts = streaming(16, rounds=1, blocks=8)
    (load,) = facts.accesses
    wide = replace(load, sectors=8 * load.sectors, program_sectors=8 * load.program_sectors)
    remark, *_ = judge(replace(facts, accesses=(wide,)), H100, 1).remarks
    assert (remark.kind, remark.judged) == ("uncoalesced", FILLED)
    assert remark.filled_ns / remark.filled_better_ns > 2
    assert "in a grid that fills" in remark.message
    assert "as it is" in remark.message


def test_both_judgements_are_there_for_a_long_launch_of_few_programs():
    found = remarks_on(streaming(22))
    waiting = found["not-pipelined"]
    assert waiting.judged == LAUNCH
    assert waiting.predicted_ns / waiting.better_ns > 1.3
    assert waiting.filled_ns > 0


def test_serial_rounds_are_what_a_launch_of_them_takes():
    rounds, each = 4096, 1000.0
    facts = replace(
        FACTS,
        grid=(132, 1, 1),
        code=(LineCode(LOAD, {"issue": 132 * 4 * rounds * 20.0}),),
        waits=(WaitFacts("load", LOAD, 1, rounds * each),),
        loops=(LoopFacts(LOAD, frozenset({1}), 132, rounds, LOAD),),
    )
    assert grid_of(facts) == pytest.approx(rounds * each / H100.clock_hz, rel=0.1)


def sweeping(grid, axes):
    """Programs of a grid that read 16 KB each, the same along axes that addresses are free of."""
    facts = streaming(grid[0] * grid[1], rounds=1, blocks=8)
    (load,) = facts.accesses
    read = (16 << 10) * math.prod(grid[axis] for axis in axes)
    one = replace(load, axes=frozenset(axes), footprint_bytes=read)
    return replace(facts, grid=(*grid, 1), accesses=(one,), read_bytes=read)


def test_what_no_cache_keeps_until_a_later_axis_of_the_grid_comes_from_memory_again():
    facts = sweeping((16 << 10, 16), axes=(0,))
    once = sweeping((16 << 10, 16), axes=(0, 1)).read_bytes / 16
    (load,) = facts.accesses
    # 256 MB are read 16 times, but for the fifth that the cache still has.
    assert swept_bytes(load, facts, H100) == pytest.approx(15 * once * (1 - 50 / 256), rel=0.01)
    remark = judge(facts, H100, 1).remarks[0]
    assert remark.kind == "redundant-load"
    assert "programs along axis 1 of the grid read the same 268 MB" in remark.message


@pytest.mark.parametrize(
    ("grid", "axes"),
    [
        ((16 << 10, 16), (0, 1)),  # each its own
        ((16, 16 << 10), (1,)),  # neighbours read the same
        ((1 << 10, 256), (0,)),  # 16 MB fit the cache
        ((528, 2), (0,)),  # all run at the same time
    ],
)
def test_what_a_cache_keeps_is_read_once(grid, axes):
    facts = sweeping(grid, axes)
    assert swept_bytes(facts.accesses[0], facts, H100) == 0


@pytest.mark.parametrize(("programs", "is_named"), [(21120, True), (132, False)])
def test_few_blocks_of_short_programs_are_named_if_the_launch_is_long(programs, is_named):
    facts = streaming(programs, rounds=1)
    assert program_time(work_of(facts, H100), H100).total < 2e-6
    limits = {"shared memory": 1, "warps": 16}
    fits = replace(facts.occupancy, limits=limits, limited_by=("shared memory",))
    found = remarks_on(replace(facts, occupancy=fits, shared_bytes=200_000))
    assert ("low-occupancy-shared" in found) is is_named
