"""Causes with symptoms: how they are judged, and which of them ranks first."""

from dataclasses import replace

import pytest
from made_facts import DEF, LOAD, STORE, streaming

from tkdebug.advice.facts import DotFacts, LineCode
from tkdebug.advice.findings import Finding, Launch, least, without_symptoms
from tkdebug.advice.judging import judge
from tkdebug.advice.machines import MACHINES
from tkdebug.advice.model import reread_bytes, work_of

H100 = MACHINES["sm_90a"]


def launch_of(facts):
    return Launch(facts, H100, work_of(facts, H100))


def kinds(facts):
    return [(remark.kind, remark.line) for remark in judge(facts, H100, 1).remarks]


def split(facts, is_divided):
    """The facts with loads of 1 byte, of which a thread has 16 side by side."""
    (load,) = facts.accesses
    one_by_one = replace(
        load,
        element_bytes=1,
        width_bytes=1,
        held_bytes=16,
        requests=512.0,
        sectors=16 * load.sectors,
        lines=16 * load.lines,
        is_divided=is_divided,
    )
    return replace(facts, accesses=(one_by_one,))


def with_divisions(facts, instructions):
    pipes = {"issue": instructions, "alu": instructions}
    line = LineCode(STORE, pipes, {"integer-division": pipes}, {"integer-division": 20.0})
    return replace(facts, code=(*facts.code, line))


def test_accesses_that_divisions_make_narrow_are_a_symptom_of_them():
    facts = split(with_divisions(streaming(2640, blocks=8), 1e7), is_divided=True)
    assert kinds(facts)[:2] == [("integer-division", STORE.line), ("narrow-access", LOAD.line)]


def test_accesses_that_are_narrow_for_another_reason_rank_by_their_own_gain():
    facts = split(with_divisions(streaming(2640, blocks=8), 1e7), is_divided=False)
    assert kinds(facts)[:1] == [("narrow-access", LOAD.line)]


def test_a_cause_is_judged_without_its_symptoms_which_are_not_counted_twice():
    launch = launch_of(streaming(2640))
    work = launch.work
    less = replace(work, l2_bytes=0.6 * work.l2_bytes, tensor_s=1.0)
    symptom = Finding(LOAD, "spill", "", replace(work, l2_bytes=0.5 * work.l2_bytes, blocks=4))
    cause = Finding(DEF, "masked-off", "", less, symptoms={"spill": frozenset({LOAD})})
    elsewhere = replace(symptom, frame=STORE, better=replace(work, l2_bytes=0.0))
    better = without_symptoms(launch, [cause, symptom, elsewhere])[0].better
    assert better.l2_bytes == pytest.approx(0.5 * work.l2_bytes)
    assert (better.blocks, better.tensor_s) == (4, 1.0)
    assert better.waits == least(work, work, []).waits


def test_loads_again_of_one_tensor_are_one_remark_at_the_first():
    (one,) = of_loads_again(4, STORE, DEF)
    assert one.line == STORE.line
    assert f"(also in line {DEF.line})" in one.message


@pytest.mark.parametrize(("rounds", "is_named"), [(4, True), (128, False)])
def test_what_no_program_holds_may_be_loaded_twice(rounds, is_named):
    assert bool(of_loads_again(rounds, STORE)) == is_named
    assert of_loads_again(rounds, STORE, DEF)


def of_loads_again(rounds, *frames):
    """Remarks on rows that are loaded again at some lines."""
    facts = streaming(2640, rounds=rounds, blocks=8)
    (load,) = facts.accesses
    again = [replace(load, op_id=n, frame=f, loaded_by=1) for n, f in enumerate(frames, 5)]
    facts = replace(facts, accesses=(load, *again))
    found = judge(facts, H100, 1).remarks
    return [remark for remark in found if remark.kind == "redundant-load"]


@pytest.mark.parametrize(("rounds", "is_kept"), [(2, True), (128, False)])
def test_rows_that_the_cache_does_not_hold_are_read_from_memory_again(rounds, is_kept):
    facts = streaming(2640, rounds=rounds, blocks=8)
    (load,) = facts.accesses
    again = replace(load, op_id=5, frame=STORE, loaded_by=1)
    facts = replace(facts, accesses=(load, again))
    assert (reread_bytes(again, facts, H100) == 0) == is_kept
    assert reread_bytes(load, facts, H100) == 0


@pytest.mark.parametrize(("tensor", "is_kept"), [("x", True), ("y", False)])
def test_what_programs_write_takes_room_from_what_they_read_again(tensor, is_kept):
    facts = streaming(2640, rounds=2, blocks=8)
    (load,) = facts.accesses
    again = replace(load, op_id=5, frame=STORE, loaded_by=1)
    # 33 MB are read by the programs that run, as much is written: in place, or beside them.
    store = replace(load, op_id=6, kind="store", tensor=tensor)
    facts = replace(facts, accesses=(load, again, store))
    assert (reread_bytes(again, facts, H100) == 0) == is_kept


@pytest.mark.parametrize("width_bytes", [8, 16])
def test_loads_that_are_split_for_a_product_rank_after_the_one_stage_that_keeps_them(width_bytes):
    facts = streaming(2640)
    (load,) = facts.accesses
    dot = DotFacts(2, STORE, 1 << 30, "wgmma", 16, "f16", "", 1, (64, 64, 64), (1, None))
    parts = replace(
        load,
        held_bytes=32,
        sectors=2 * load.sectors,
        lines=8 * load.lines,
        width_bytes=width_bytes,
    )
    one_stage = replace(
        facts, accesses=(parts,), dots=(dot,), why_not_pipelined={1: "num_stages is 1"}
    )
    found = kinds(one_stage)
    assert found[0] == ("not-pipelined", LOAD.line)
    # There is no wider access than 16 bytes.
    assert ("narrow-access" in dict(found)) is (width_bytes == 8)


def test_tiles_of_one_form_with_gaps_are_one_remark():
    facts = streaming(2640, blocks=8)
    (load,) = facts.accesses
    wide = replace(load, sectors=4096.0, program_sectors=4096.0, lines=4096.0)
    store = replace(wide, op_id=5, frame=STORE, kind="store", tensor="y", executions=1)
    found = judge(replace(facts, accesses=(wide, store)), H100, 1).remarks
    (one,) = (remark for remark in found if remark.kind == "uncoalesced")
    assert one.line == LOAD.line
    assert "load and store of `x` and `y`" in one.message
    assert f"(also in line {STORE.line})" in one.message


def test_columns_of_which_masks_leave_unlike_shares_are_one_remark():
    facts = streaming(2640, blocks=8)
    (load,) = facts.accesses
    column = replace(load, sectors=32 * 32.0, program_sectors=1024.0, needed_sectors=64.0)
    shorter = replace(column, op_id=3, frame=STORE, sectors=1021.0)
    found = [kind for kind, _ in kinds(replace(facts, accesses=(column, shorter)))]
    assert found.count("uncoalesced") == 1


def test_a_load_that_only_the_first_of_many_rounds_repeats_is_not_made_again():
    facts = streaming(2640)
    load = replace(facts.accesses[0], footprint_bytes=2640 * 4096 * 4)
    first = replace(load, op_id=7, frame=STORE, executions=2640, in_loop=False)
    once = replace(facts, accesses=(first, replace(load, loaded_by=7)))
    assert "redundant-load" not in dict(kinds(once))
    always = replace(first, executions=load.executions)
    assert dict(kinds(replace(once, accesses=(always, once.accesses[1]))))["redundant-load"]


def test_lists_that_are_followed_do_not_become_shorter_by_larger_tiles():
    facts = streaming(2640)
    (load,) = facts.accesses
    single = replace(load, tile_elems=1, tile_axes=0, loop_depends=True, address_loads=(1,))
    followed = replace(facts, widest_tile=1, accesses=(single,))
    found = [kind for kind, _ in kinds(followed)]
    assert found[0] == "dependent-loads"
    assert "small-tiles" not in found[:1]


@pytest.mark.parametrize(("thread_bytes", "is_named"), [(8, True), (2, False)])
def test_only_loads_of_which_a_copy_could_be_made_may_run_ahead(thread_bytes, is_named):
    facts = streaming(2640)
    (load,) = facts.accesses
    halves = replace(load, element_bytes=2, width_bytes=2, thread_bytes=thread_bytes)
    assert ("not-pipelined" in dict(kinds(replace(facts, accesses=(halves,))))) is is_named


def test_parts_of_a_tile_wait_as_often_as_the_whole():
    facts = streaming(1056)
    patient = replace(facts, waits=tuple(w for w in facts.waits if w.cause == "load"))
    remarks = {r.kind: r for r in judge(facts, H100, 1).remarks}
    assert remarks["low-occupancy-registers"].predicted_ns > 0
    assert "low-occupancy-registers" not in dict(kinds(patient))
