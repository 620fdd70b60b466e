"""Remarks of a run: their order, whose times weigh them, and what is at the roof."""

import json
import sqlite3
from dataclasses import replace

import pytest

from tkdebug.advice.judging import machine_of
from tkdebug.advice.records import FILLED, LAUNCH, LaunchCost, Remark, ranked
from tkdebug.instrument.analyses.advice import (
    AT_THE_ROOF,
    PREDICTED,
    TKDEBUG,
    TRITON,
    Times,
    _launch_bound,
    _Weight,
    advice_of,
    compiled_by,
    launch_costs,
    times_of,
    what_bounds,
)
from tkdebug.instrument.device_records import GpuState
from tkdebug.instrument.home.model import model_of
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.renderers.advice_formats import advice_json, advice_text
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.home.kernels import finding_row, next_steps
from tkdebug.tui.home.sheet import RunIndex

COST = LaunchCost(
    kernel="k",
    kernel_hash="h",
    launch_id=1,
    file="k.py",
    line=3,
    grid=(97, 1, 1),
    target="sm_90a",
    machine="H100 SXM",
    ceilings="by its data sheet",
    read_bytes=1000,
    written_bytes=500,
    l2_bytes=1500,
    flops=0,
    tensor_flops=0,
    predicted_ns=50_000.0,
    grid_ns=50_000.0,
    roof_ns=48_000.0,
    bound="memory",
    bound_share=0.96,
    occupancy_percent=100.0,
    limited_by=("warps",),
    is_exact=True,
    resources_ns={"memory": 48_000.0, "latency": 20_000.0},
    launched_bound="memory",
    launched_share=0.96,
)
REMARK = Remark("k", "h", 1, "k.py", 7, "uncoalesced", "columns", 40_000.0, 20_000.0)


def remark(kind, line, launched, filled, judged, filled_ns=2_000.0):
    return replace(
        REMARK,
        kind=kind,
        line=line,
        predicted_ns=40_000.0,
        better_ns=40_000.0 / launched,
        filled_ns=filled_ns,
        filled_better_ns=filled_ns / filled,
        judged=judged,
    )


@pytest.fixture
def recorded(tmp_path):
    def record(*records, name="run.tkd"):
        path = tmp_path / name
        with Recorder(path, script="k.py", output=False):
            for one in records:
                HOOKS.record(one)
        return path

    return record


def advice(path, times=None):
    with Session.open(path) as session:
        return advice_of(session, times)


def test_a_launch_that_takes_what_its_bytes_take_is_at_the_roof(recorded):
    (one,) = advice(recorded(COST))
    assert one.kind == AT_THE_ROOF
    assert "memory takes 96 % of the predicted 50 us" in one.message


def test_a_grid_that_takes_longer_than_its_bytes_is_not_at_the_roof(recorded):
    small = replace(COST, grid_ns=100_000.0, launched_bound="latency", launched_share=0.9)
    assert advice(recorded(small)) == ()
    text = what_bounds(small)
    assert "bound by latency, 90 % of its predicted time" in text
    assert "in a grid that fills the GPU by memory, 96 % of it, which is the roof" in text


@pytest.mark.parametrize(("measured_ns", "is_at_roof"), [(55_000.0, True), (90_000.0, False)])
def test_the_measured_time_has_to_be_at_the_roof_too(recorded, measured_ns, is_at_roof):
    times = Times({"k": measured_ns}, {"k": TRITON})
    found = advice(recorded(COST), times)
    assert [one.kind for one in found] == [AT_THE_ROOF] * is_at_roof
    for one in found:
        assert "87 % of the 55 us that Triton's code took" in one.message
        assert one.times == TRITON


@pytest.mark.parametrize(
    ("names", "machine"),
    [
        (("NVIDIA H200",), "H200 SXM"),
        (("NVIDIA H200", "NVIDIA H100 PCIe"), "H100 SXM"),
        ((), "H100 SXM"),
        (("NVIDIA of tomorrow",), "H100 SXM"),
    ],
)
def test_predictions_are_for_the_gpu_whose_times_weigh_kernels(recorded, names, machine):
    states = [
        GpuState(f"GPU-{n}", name, False, 1980, 3201, 0, 0, 41, 128_158)
        for n, name in enumerate(names)
    ]
    with (
        Session.open(recorded(COST, *states)) as session,
        KNOBS.scope(advise_gpu=times_of(session).gpu),
    ):
        assert machine_of("sm_90a").name == machine
        assert machine_of("sm_89").name == "L40S"


def test_a_share_has_one_wording_and_one_order_in_all_places(recorded):
    first = remark("uncoalesced", 7, 1.0, 4.0, FILLED, filled_ns=50_000.0)
    second = remark("barriers", 9, 2.0, 2.0, LAUNCH, filled_ns=50_000.0)
    with Session.open(recorded(COST, second, first)) as session:
        found = advice_of(session)
        text = "".join(advice_text(found, session.source_line))
        index = RunIndex(model_of(session))
    shares = {7: "75 % on a full GPU", 9: "50 %"}
    assert {one.line: one.saved for one in found} == shares
    assert [one.line for one in found] == [7, 9]
    assert f"saves {shares[7]}\n" in text
    next_row = next_steps(index, 300)[0].plain
    assert next_row.index(f"saves {shares[7]}") < next_row.index(f"saves {shares[9]}")
    listed = [finding_row(index, one, False, 60).plain for one in index.findings]
    assert [row.rstrip().rpartition(":")[2] for row in listed] == ["7 75 %*", "9 50 %"]


@pytest.mark.parametrize(
    ("launched_ns", "filled_ns", "count", "is_named"),
    [
        (2_000.0, 100.0, 200, True),  # few programs, which one launch would have with all others
        (2_000.0, 1_900.0, 200, False),  # one launch of all would take as long
        (2_000.0, 100.0, 20, False),
        (9_000.0, 100.0, 200, False),
    ],
)
def test_many_launches_that_end_before_the_next_one_begins_are_named(
    launched_ns, filled_ns, count, is_named
):
    cost = replace(COST, grid_ns=launched_ns, predicted_ns=filled_ns)
    weight = _Weight(count * launched_ns, count)
    found = _launch_bound([cost], {("h", 1): weight}, weight.total_ns)
    assert [one.kind for one in found] == ["launch-bound"] * is_named
    for one in found:
        # 2.5 us each, or one launch and the work of all of them.
        assert one.speedup == pytest.approx(200 * 2.5 / (2.5 + 20))


def test_what_holds_of_a_larger_grid_comes_before_the_grid_of_a_test(recorded):
    grid = remark("small-grid", 3, 20.0, 1.0, LAUNCH)
    columns = remark("uncoalesced", 7, 1.1, 4.0, FILLED)
    waiting = remark("not-pipelined", 9, 1.8, 1.0, LAUNCH)
    assert [one.kind for one in ranked([waiting, grid, columns])] == [
        "uncoalesced",
        "small-grid",
        "not-pipelined",
    ]
    kinds = [one.kind for one in advice(recorded(COST, waiting, grid, columns))]
    assert kinds.index("uncoalesced") < kinds.index("small-grid")


def test_the_grid_comes_first_where_there_is_much_to_do():
    grid = remark("small-grid", 3, 20.0, 1.0, LAUNCH, 15_000.0)
    columns = remark("uncoalesced", 7, 1.1, 4.0, FILLED, 15_000.0)
    assert [one.kind for one in ranked([columns, grid])] == ["small-grid", "uncoalesced"]


def test_json_has_both_judgements_and_says_whose_code_and_times(recorded):
    path = recorded(COST, remark("uncoalesced", 7, 1.1, 4.0, FILLED))
    with Session.open(path) as session:
        found, costs = advice_of(session), launch_costs(session)
    data = json.loads(advice_json(found, costs))
    (one,) = data["remarks"]
    assert one["judged"] == "filled"
    assert (one["speedup"], one["speedup_filled"]) == (4.0, 4.0)
    assert one["speedup_launched"] == pytest.approx(1.1)
    assert (one["code"], one["times"]) == ("tkdebug", "predicted")
    assert data["launch_costs"][0]["launched_bound"] == "memory"


def test_text_says_whose_times_weigh_kernels(recorded):
    path = recorded(COST, REMARK)
    found = advice(path, Times({"k": 70_000.0}, {"k": TRITON}))
    assert found[0].times == TRITON
    head = next(advice_text(found, lambda file, line: None))
    assert head == (
        "Kernels are weighed by times of Triton's code; remarks are about tkdebug's code.\n"
    )
    plain = advice(path)
    assert plain[0].times == PREDICTED
    assert "weighed" not in next(advice_text(plain, lambda file, line: None))


def test_whose_code_it_is_follows_from_its_stages():
    assert compiled_by(("source", "ttir", "ttgir", "ptx")) == TRITON
    assert compiled_by(("source", "tile-ir", "gpu-ir", "ptx")) == TKDEBUG


def test_sessions_from_before_fields_were_added_are_read_with_their_defaults(recorded):
    path = recorded(COST, REMARK)
    connection = sqlite3.connect(path)
    for name in ("filled_ns", "filled_better_ns", "judged"):
        connection.execute(f"ALTER TABLE remarks DROP COLUMN {name}")
    for name in ("launched_bound", "launched_share", "program_ns"):
        connection.execute(f"ALTER TABLE launch_costs DROP COLUMN {name}")
    connection.commit()
    connection.close()
    with Session.open(path) as session:
        (cost,) = launch_costs(session)
        (one,) = advice_of(session)
    assert (cost.launched_bound, cost.program_ns) == ("", {})
    assert (one.kind, one.judged, one.speedup) == ("uncoalesced", "", 2.0)
    assert "bound by memory, 96 %" in what_bounds(cost)
