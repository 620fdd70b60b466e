"""The race check where programs put each other in order: what is ordered, and what is not."""

from functools import partial

import order_kernels as kernels
import pytest
import torch
from differential import run
from marked_lines import line_of

from tkdebug.interpreter.checks.races import access_history
from tkdebug.knobs import scope

line = partial(line_of, kernels)
WIDTH = 4
BUDGETS = pytest.mark.parametrize("budget", [None, 4096, 64], ids=["whole", "batches", "single"])


@pytest.fixture(autouse=True)
def checked():
    with scope(checks=("race",)):
        yield


def ints(*shape):
    return torch.zeros(*shape, dtype=torch.int32)


def assert_reported(faults, tensor, markers, hint):
    """All races of `tensor` are at one of the marked lines, and the first has that hint."""
    assert {fault.kind for fault in faults} == {"race"}, faults
    races = [fault for fault in faults if fault.tensor == tensor]
    assert races, faults
    assert {fault.line for fault in races} <= {line(marker) for marker in markers}
    assert hint in races[0].hint


# The last one to arrive


def split_k(bug, budget=None, rows=3, splits=5):
    x, out = torch.rand(rows, splits, WIDTH), torch.zeros(rows, WIDTH)
    scratch = torch.zeros(rows, splits, WIDTH), ints(rows)
    sizes = dict(BUG=bug, SPLITS=splits, BLOCK=WIDTH)
    faults = run(kernels.split_k, (rows, splits), x, *scratch, out, **sizes, budget=budget)
    return faults, x, scratch, out


@BUDGETS
def test_the_last_program_to_arrive_adds_the_parts(budget):
    faults, x, scratch, out = split_k("", budget)
    assert not faults
    torch.testing.assert_close(out, x.sum(1))
    # What another launch has stored is in order with everything in this one.
    sizes = dict(BUG="", SPLITS=5, BLOCK=WIDTH)
    assert not run(kernels.split_k, (3, 5), x + 1, *scratch, out, **sizes, budget=budget)
    torch.testing.assert_close(out, x.sum(1) + 5)


@BUDGETS
@pytest.mark.parametrize(
    ("bug", "hint"),
    [
        ("counted first", "comes after line {COUNT}, from where other programs go on"),
        ("relaxed", 'line {COUNT} has sem="relaxed", which does not release'),
        ("acquire only", 'line {COUNT} has sem="acquire", which does not release'),
        ("release only", 'line {COUNT} has sem="release", which does not acquire'),
        ("cta", 'line {COUNT} has scope="cta" and orders nothing between programs'),
        ("not counted", "make it two launches"),
        ("one too early", "neither program waits until the other is done with it"),
    ],
)
def test_the_last_program_to_arrive_is_reported_wrongly(bug, hint, budget):
    faults = split_k(bug, budget)[0]
    count = line(f"COUNT split_k {bug}" if bug != "one too early" else "COUNT split_k")
    store = f"STORE split_k {bug}" if bug != "one too early" else "STORE split_k"
    assert_reported(faults, "parts", ["LOAD split_k", store], hint.replace("{COUNT}", str(count)))


def test_a_race_is_reported_at_the_load_with_the_store():
    fault = next(f for f in split_k("counted first")[0] if f.tensor == "parts")
    assert fault.line == line("LOAD split_k")
    assert fault.program_id == (0, 4, 0)
    stored = line("STORE split_k counted first")
    assert f"which program (0, 0, 0) writes at line {stored}, in no certain order" in fault.message
    # Four others' parts of four elements in each of three rows.
    assert fault.count == 48


def test_many_programs_that_count_in_several_batches():
    assert not split_k("", 4096, rows=2, splits=64)[0]
    assert split_k("counted first", 4096, rows=2, splits=64)[0][0].tensor == "parts"


# Locks


def locked_sum(bug, programs=6):
    x, out = torch.rand(programs, WIDTH), torch.zeros(WIDTH)
    faults = run(kernels.locked_sum, (programs,), x, ints(2), out, BUG=bug, BLOCK=WIDTH)
    return faults, x, out


@pytest.mark.parametrize("how", ["", "exchange", "acquire and release"])
def test_plain_accesses_under_a_lock_are_ordered(how):
    faults, x, out = locked_sum(how)
    assert not faults
    torch.testing.assert_close(out, x.sum(0))


@pytest.mark.parametrize(
    ("bug", "tensor", "load", "hint"),
    [
        (
            "loaded outside",
            "out",
            "LOAD locked_sum loaded outside",
            "before its program has waited",
        ),
        ("relaxed", "out", "LOAD locked_sum", 'sem="relaxed", which does not release'),
        ("two locks", "out", "LOAD locked_sum", "neither program waits"),
        ("unlocked first", "out", "LOAD locked_sum", "from where other programs go on"),
        ("unlocked plainly", "lock", "LOCK locked_sum", "use an atomic in both places"),
    ],
)
def test_locks_that_do_not_lock(bug, tensor, load, hint):
    faults = locked_sum(bug)[0]
    assert {fault.tensor for fault in faults} == {tensor}
    store = "UNLOCK locked_sum unlocked plainly" if tensor == "lock" else "STORE locked_sum"
    assert_reported(faults, tensor, [load, store], hint)


@pytest.mark.parametrize("bug", ["", "never waits"])
def test_ticket_lock(bug):
    x = torch.zeros(WIDTH, dtype=torch.int64)
    faults = run(kernels.ticket_lock, (5,), ints(1), ints(1), x, BUG=bug, BLOCK=WIDTH)
    if bug:
        assert_reported(faults, "x", ["RACE ticket_lock"], "elements of its own")
    else:
        assert not faults


@pytest.mark.parametrize(("bug", "most"), [("", 1), ("", 2), ("shared", 1), ("shared", 2)])
def test_semaphores(bug, most):
    x, out = torch.rand(5, WIDTH), torch.zeros(5, WIDTH)
    sizes = dict(BUG=bug, MOST=most, BLOCK=WIDTH)
    faults = run(kernels.bounded, (5,), ints(1), x, out, **sizes)
    if bug and most > 1:
        assert_reported(faults, "out", ["RACE bounded shared"], "let them wait for it")
    else:
        assert not faults


# Barriers of the grid


def grid_barrier(bug, programs=5, phases=3):
    x = torch.zeros(phases + 1, programs, WIDTH)
    x[0] = torch.rand(programs, WIDTH)
    return run(kernels.grid_barrier, (programs,), ints(1), x, phases, BUG=bug, BLOCK=WIDTH)


@pytest.mark.parametrize("how", ["", "relaxed poll, then acquire", "volatile", "fence"])
def test_what_is_before_a_barrier_of_the_grid_is_ordered(how):
    assert not grid_barrier(how)


@pytest.mark.parametrize(
    ("bug", "hint"),
    [
        ("arrives first", "from where other programs go on"),
        ("relaxed arrival", 'sem="relaxed", which does not release'),
        ("relaxed poll", 'sem="relaxed", which does not acquire'),
        ("does not wait", "make it two launches"),
        ("waits for too few", "neither program waits"),
    ],
)
def test_barriers_that_let_programs_through(bug, hint):
    assert_reported(grid_barrier(bug), "x", ["LOAD grid_barrier", "STORE grid_barrier"], hint)


@pytest.mark.parametrize("bug", ["", "no barrier"])
def test_plain_loads_of_what_relaxed_atomics_counted(bug):
    x = torch.randint(0, 8, (5, WIDTH), dtype=torch.int32)
    sizes = dict(BUG=bug, BINS=8, BLOCK=WIDTH)
    faults = run(kernels.histogram, (5,), x, ints(8), ints(1), ints(5, 8), **sizes)
    if bug:
        assert_reported(faults, "bins", ["RACE histogram"], "use an atomic in both places")
    else:
        assert not faults


# Flags


@pytest.mark.parametrize("bug", ["", "flag first", "wrong slot"])
def test_scan_that_looks_back(bug):
    x, out = torch.rand(7, WIDTH), torch.zeros(7, WIDTH)
    sizes = dict(BUG=bug, BLOCK=WIDTH)
    faults = run(kernels.look_back, (7,), x, out, torch.zeros(7, 2), ints(7), **sizes)
    if bug:
        marker = "RACE look_back wrong slot" if bug == "wrong slot" else "RACE look_back"
        assert_reported(faults, "sums", [marker], "from where other programs go on")
    else:
        assert not faults
        torch.testing.assert_close(out.reshape(-1), x.reshape(-1).cumsum(0))


def test_scan_whose_flags_hold_the_sums_needs_no_order():
    x, out = torch.arange(28, dtype=torch.int32).reshape(7, WIDTH), ints(7, WIDTH)
    assert not run(kernels.packed_look_back, (7,), x, out, ints(7), BLOCK=WIDTH)
    assert torch.equal(out.reshape(-1).long(), x.reshape(-1).cumsum(0))


def hand_over(bug):
    sizes = dict(BUG=bug, BLOCK=WIDTH)
    return run(kernels.hand_over, (5,), ints(2), ints(WIDTH), ints(5, WIDTH), **sizes)


@pytest.mark.parametrize("how", ["", "another flag", "volatile poll", "uncached poll"])
def test_what_is_stored_before_a_flag_is_ordered(how):
    assert not hand_over(how)


@pytest.mark.parametrize(
    ("bug", "tensor", "markers", "hint"),
    [
        ("flag first", "data", ["LOAD hand_over", "STORE hand_over"], "after line {TOLD}, from"),
        ("stale", "data", ["LOAD hand_over", "STORE hand_over stale"], "after line {TOLD}, from"),
        ("relaxed flag", "data", ["LOAD hand_over"], 'line {TOLD} has sem="relaxed"'),
        ("waits afterwards", "data", ["LOAD hand_over waits afterwards"], "has waited at line"),
        (
            "plain flag",
            "flags",
            ["FLAG hand_over plain flag", "POLL hand_over"],
            "an atomic in both",
        ),
        ("plain poll", "flags", ["POLL hand_over plain poll"], "volatile=True"),
    ],
)
def test_flags_that_order_nothing(bug, tensor, markers, hint):
    faults = hand_over(bug)
    assert {fault.tensor for fault in faults} == {tensor}
    if "{TOLD}" in hint:
        hint = hint.replace("{TOLD}", str(line(f"TOLD hand_over {bug}")))
    assert_reported(faults, tensor, markers, hint)


# Work that is fetched


@pytest.mark.parametrize("bug", ["", "neighbour"])
def test_programs_that_fetch_tiles(bug):
    x, out = torch.rand(10, WIDTH), torch.rand(10 * WIDTH + 1)
    sizes = dict(BUG=bug, BLOCK=WIDTH)
    faults = run(kernels.persistent, (3,), x, out, ints(1), 10, **sizes)
    if bug:
        markers = ["RACE persistent neighbour", "STORE persistent neighbour"]
        assert_reported(faults, "out", markers, "let them wait for it")
    else:
        assert not faults
        torch.testing.assert_close(out[:-1], 2 * x.reshape(-1))


@pytest.mark.parametrize("bug", ["", "no flag"])
def test_stream_k_whose_tiles_later_programs_finish(bug):
    total, programs, tiles = 35, 6, 5
    x = torch.rand(total, WIDTH)
    partial, out = torch.zeros(programs, WIDTH), torch.zeros(tiles, WIDTH)
    arguments = x, partial, ints(programs), out, 7, -(-total // programs), total
    faults = run(kernels.stream_k, (programs,), *arguments, BUG=bug, BLOCK=WIDTH)
    if bug:
        markers = ["LOAD stream_k", "STORE stream_k no flag"]
        assert_reported(faults, "partial", markers, "")
    else:
        assert not faults
        torch.testing.assert_close(out, x.reshape(tiles, 7, WIDTH).sum(1))


def test_programs_that_initialise_the_same_and_read_it_do_not_race():
    assert not run(kernels.all_clear_then_read, (4,), ints(8) + 1, ints(4, 8), BLOCK=8)


def test_programs_that_clear_what_others_add_to():
    faults = run(kernels.all_clear_then_add, (4,), ints(1), ints(4))
    assert_reported(faults, "x", ["CLEAR all_clear_then_add", "ADD all_clear_then_add"], "atomic")


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("bug", [False, True])
def test_long_loops_are_kept_in_few_records(scattered, bug, monkeypatch):
    logs = []
    monkeypatch.setattr(access_history, "_MANY_RECORDS", 8)
    monkeypatch.setattr(access_history, "_MANY_ELEMENTS", 128)
    add = access_history.AccessLog.add

    def spy(log, record):
        add(log, record)
        logs.append(len(log.records))

    monkeypatch.setattr(access_history.AccessLog, "add", spy)
    index = torch.randperm(4 * WIDTH).to(torch.int32)
    sizes = dict(SCATTERED=scattered, BUG=bug, BLOCK=WIDTH)
    faults = run(kernels.again_and_again, (4,), ints(4 * WIDTH), index, 200, **sizes)
    assert max(logs) < 32
    assert len(logs) >= 200
    if bug:
        assert faults[0].kind == "race"
        assert faults[0].line == line("RACE again_and_again")
    else:
        assert not faults


@pytest.mark.parametrize("bug", ["", "counted first"])
def test_elements_that_are_compared_piece_by_piece(bug, monkeypatch):
    reported = {(fault.line, fault.tensor, fault.count) for fault in split_k(bug)[0]}
    monkeypatch.setattr(access_history, "_MOST_ELEMENTS", 7)
    assert {(fault.line, fault.tensor, fault.count) for fault in split_k(bug)[0]} == reported


@pytest.mark.parametrize("bug", ["", "counted first", "relaxed", "cta"])
def test_merged_records_tell_the_same(bug, monkeypatch):
    reported = [(fault.line, fault.tensor, fault.hint) for fault in split_k(bug, 64)[0]]
    monkeypatch.setattr(access_history, "_MANY_RECORDS", 0)
    monkeypatch.setattr(access_history, "_MANY_ELEMENTS", 0)
    assert [(fault.line, fault.tensor, fault.hint) for fault in split_k(bug, 64)[0]] == reported
