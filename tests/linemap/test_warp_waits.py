"""Waits of a warp, by the schedule in its code."""

from __future__ import annotations

import pytest

from tkdebug.linemap.line_table import Instruction
from tkdebug.linemap.warp_waits import Rounds, Step, Wait, Way, executed, waits

MEMORY = 500.0
NONE = 7


def instruction(
    text: str, write: int = NONE, waits_for: int = 0, stall: int = 1, read: int = NONE
) -> Instruction:
    control = stall | write << 5 | read << 8 | waits_for << 11
    return Instruction(0, text, None, None, (), control=control)


LOAD = instruction("LDG.E R4, desc[UR4][R2.64]", write=0)
USE = instruction("FADD R5, R4, R4", waits_for=1)
OTHER_LOAD = instruction("LDG.E R6, desc[UR4][R2.64]", write=1)
USE_BOTH = instruction("FADD R5, R4, R6", waits_for=3)


def of(code: list[Instruction], way: Way) -> dict[tuple[str, int], float]:
    found: tuple[Wait, ...] = waits(code, way, lambda _: MEMORY)
    return {(wait.cause, wait.made_by): wait.cycles for wait in found}


def line(count: int) -> Way:
    return tuple(map(Step, range(count)))


def test_a_result_is_waited_for_where_it_is_needed() -> None:
    assert of([LOAD, USE], line(2)) == {("load", 0): MEMORY - 1}


def test_loads_on_their_way_together_are_waited_for_once() -> None:
    waited = of([LOAD, OTHER_LOAD, USE_BOTH], line(3))
    assert sum(waited.values()) == MEMORY - 1


def test_what_is_done_meanwhile_is_not_waited_for() -> None:
    between = [instruction("FMUL R9, R9, R9")] * 100
    assert of([LOAD, *between, USE], line(102)) == {("load", 0): MEMORY - 101}


def test_fixed_times_of_arithmetic_are_dependencies() -> None:
    assert of([instruction("FADD R1, R1, R1", stall=5)], line(1)) == {("dependency", 0): 4}


def test_rounds_add_up_and_are_followed_for_a_few_only() -> None:
    way = (Rounds(1000.0, line(2)),)
    assert of([LOAD, USE], way) == {("load", 0): pytest.approx(1000 * (MEMORY - 1))}
    assert dict(executed(way)) == {0: 1000, 1: 1000}


def test_a_load_for_the_next_round_is_hidden_by_this_one() -> None:
    # The value that was loaded in the round before is used first.
    work = [instruction("FMUL R9, R9, R9")] * 600
    code = [LOAD, USE, LOAD, *work]
    way = (Step(0), Rounds(50.0, tuple(Step(at) for at in range(1, len(code)))))
    # The first round alone waits: for what was loaded before the loop.
    assert of(code, way) == {("load", 0): MEMORY - 1}


def test_half_of_the_programs_wait_half_as_long() -> None:
    way = (Step(0, 0.5), Step(1, 0.5))
    waited = of([LOAD, USE], way)
    assert 0 < waited["load", 0] < MEMORY / 2


def test_groups_of_copies_may_be_left_on_their_way() -> None:
    copy = instruction("LDGSTS.E.BYPASS.128 [R9], desc[UR4][R2.64]")
    commit = instruction("LDGDEPBAR", write=0)
    wait_for = {left: instruction(f"DEPBAR.LE SB0, 0x{left}") for left in (0, 1, 2)}
    begun = [copy, commit, copy, commit]
    assert of([*begun, wait_for[2]], line(5)) == {}
    (older,) = of([*begun, wait_for[1]], line(5)).values()
    (newer,) = of([*begun, wait_for[0]], line(5)).values()
    assert MEMORY - 10 < older < newer < MEMORY


def test_products_of_a_warpgroup_run_one_after_the_other() -> None:
    product = instruction("HGMMA.64x128x16.F32 R24, gdesc[UR8], R24")
    last = instruction("HGMMA.64x128x16.F32 R24, gdesc[UR8], R24, gsb0")
    done = instruction("WARPGROUP.DEPBAR.LE gsb0, 0x0")
    (waited,) = of([product, product, product, last, done], line(5)).values()
    assert 4 * 64 < waited < 4 * 64 + 70


def test_bulk_copies_are_waited_for_stage_by_stage() -> None:
    announce = instruction("SYNCS.ARRIVE.TRANS64 RZ, [UR4], R3")
    copy = instruction("UTMALDG.2D [UR8], [UR4]")
    look = instruction("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2")
    code = [announce, copy, announce, copy, look, look]
    waited = of(code, line(6))
    assert waited["copy", 1] == pytest.approx(MEMORY - 3)
    assert waited["copy", 3] < 5


def test_barriers_cost_something_and_spills_are_told_apart() -> None:
    reload = instruction("LDL R4, [R1]", write=0)
    waited = of([reload, USE, instruction("BAR.SYNC.DEFER_BLOCKING 0x0")], line(3))
    assert set(waited) == {("spill", 0), ("barrier", 2)}


def test_nothing_is_said_of_code_whose_schedule_is_not_known() -> None:
    unknown = Instruction(0, "LDG.E R4, desc[UR4][R2.64]", None, None, ())
    assert waits([unknown], line(1), lambda _: MEMORY) == ()
