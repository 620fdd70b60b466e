"""The model of a run: joined by one key, bounded in size, and what to look at next."""

import contextlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launching import compiled, enter, fault, launch

from tkdebug.advice.records import LineCost, LineTime, Remark
from tkdebug.errors import Frame
from tkdebug.instrument.home.json_text import plain
from tkdebug.instrument.home.launches import MOST_BUCKETS, MOST_LISTED, Sparkline, Totals
from tkdebug.instrument.home.line_facts import LineRecords, line_facts
from tkdebug.instrument.home.model import model_of, short_names
from tkdebug.instrument.home.pictures import index_of, mismatch_picture
from tkdebug.instrument.home.records import Place
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.lock import lock_path
from tkdebug.records.events import FaultExtent, LoopRound
from tkdebug.records.hook_chain import HOOKS
from tkdebug.watches.records import WatchedValue

DOCS = Path(__file__).parents[2] / "docs"
EXTENT = FaultExtent(
    shape=(260, 500),
    strides=(500, 1),
    element_type="float16",
    first_elem=0,
    allocation_elems=130_000,
    low=130_000,
    high=143_999,
    tile=(32, 64),
    tile_start=128_000,
    tile_steps=(500, 1),
    boxes=(((4, 32), (0, 64)),),
    is_exact=True,
    bad_elems=1792,
    programs=((0, 4, 1792),),
    bad_programs=4,
    rounds=(LoopRound("k", 256, 8, 2),),
    mask="offs_n[None, :] < N",
    mask_axes=(1,),
)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("def add_kernel():\n    for k in range(9):\n        x = load(p)\n")
    return path


@pytest.fixture
def recorded(tmp_path, script):
    path = tmp_path / "run.tkd"
    with Recorder(path, script="k.py", argv=("7",), output=False):
        HOOKS.compiled(compiled(script, source=script.read_text(), hash="interpreted"))
        native = {"source": "", "tile-ir": "tt.func @add", "ptx": "ret;"}
        options = {"num_warps": 4, "arch": "sm_90a"}
        HOOKS.compiled(
            compiled(
                script,
                source=script.read_text(),
                hash="compiled",
                options=options,
                artifacts=native,
                op_lines={"ptx": {1: (Frame(str(script), 3, "add_kernel"),)}},
            )
        )
        one = launch(kernel_hash="interpreted", grid=(4, 1, 1), duration_ns=300)
        launch(kernel_hash="interpreted", grid=(4, 1, 1), duration_ns=100)
        frames = (Frame(str(script), 3, "add_kernel"),)
        HOOKS.fault(
            replace(
                fault(script, launch_id=one.id),
                frames=frames,
                tensor="b_ptr",
                index=130_000,
                lane=(4, 0),
                program_id=(0, 0, 0),
                extent=EXTENT,
            )
        )
    return path


def model(path, **changes):
    with Session.open(path) as session:
        return model_of(session, **changes)


def test_builds_of_one_specialisation_are_one_variant_with_one_key(recorded):
    (kernel,) = model(recorded).kernels
    (variant,) = kernel.variants
    assert variant.hashes == ("interpreted", "compiled")
    assert variant.launches == kernel.launches == 2
    assert variant.target == "sm_90a"
    with Session.open(recorded) as session:
        report = json.loads("".join(render(session, "json")))
    keys = {one["variant"] for one in (*report["launches"], *report["faults"])}
    assert keys == {variant.key}
    assert [one["id"] for one in report["launches"]] == sorted(
        one["id"] for one in report["launches"]
    )


def test_a_fault_is_named_by_its_index_and_drawn_in_three_pictures(recorded):
    (found,) = model(recorded).faults
    assert (found.at, found.of) == ("b_ptr[260, 0]", "260 \N{MULTIPLICATION SIGN} 500")
    assert found.replay == "tkdebug debug -c 'b k.py:3, k == 256' -c c k.py 7"
    assert [picture.kind for picture in found.pictures] == ["tensor", "tile", "grid"]
    captions = [picture.caption for picture in found.pictures]
    assert captions == [
        "Rows 260 to 287 are past its end.",
        "28 of 32 rows are outside: 4 to 31.",
        "All 4 programs, first in round 9 of the loop (k = 256).",
    ]


def test_a_line_is_one_record_of_all_that_is_known_of_it(recorded, script):
    (kernel,) = model(recorded).kernels
    lines = {line.place: line for line in kernel.variants[0].lines}
    line = lines[Place(str(script), 3)]
    assert line.faults == (0,)
    assert line.rows == {"ptx": 1}


def test_the_model_is_what_its_schema_says(recorded):
    schema = json.loads((DOCS / "model.schema.json").read_text())
    with Session.open(recorded) as session:
        data = json.loads("".join(render(session, "model")))
    jsonschema.validate(data, schema)
    # What is empty is left out, and only that.
    assert "argv" in data["run"]
    assert "left_out" not in data


def test_the_schema_in_the_docs_is_that_of_the_records():
    from runpy import run_path

    made = run_path(str(DOCS / "model_schema.py"))["text"]()
    assert (DOCS / "model.schema.json").read_text() == made, "run python docs/model_schema.py"


def test_a_clean_run_says_so_and_a_killed_one_too(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, script="k.py", output=False):
        launch()
        running = model(path)
    assert (running.verdict.level, running.verdict.text) == ("clean", "running: no findings so far")
    clean = model(path)
    assert (clean.verdict.level, clean.verdict.text, clean.steps) == ("clean", "no findings", ())
    with contextlib.closing(sqlite3.connect(path)) as changes, changes:
        changes.execute("UPDATE run SET end_ns = NULL")
    # A copy has no lock, which only a killed run leaves.
    assert model(path).verdict.text == "running or killed: no findings"
    lock_path(path).touch()
    killed = model(path)
    assert (killed.verdict.level, killed.verdict.text) == ("fault", "killed: no findings")


def test_steps_begin_with_a_comparison_that_failed_and_end_with_advice(tmp_path, script):
    path = tmp_path / "run.tkd"
    with Recorder(path, script="k.py", output=False):
        one = launch()
        HOOKS.fault(fault(script, launch_id=one.id))
        HOOKS.fault(fault(script, launch_id=one.id, kind="mismatch"))
        HOOKS.fault(fault(script, launch_id=one.id, severity="warning", kind="coverage"))
        HOOKS.record(
            Remark(
                "add_kernel", "", 0, str(script), 3, "spill", "why", 2.0, 1.0, 2.0, 1.0, "launch"
            )
        )
    found = model(path)
    assert [step.kind for step in found.steps] == ["mismatch", "fault", "warning"]
    assert found.verdict.text == "1 comparison failed, 1 fault"


def test_many_launches_are_totals_and_the_slowest_of_them(tmp_path):
    path = tmp_path / "run.tkd"
    count = MOST_LISTED + 500
    with Recorder(path, script="k.py", output=False):
        for number in range(count):
            launch(duration_ns=10 if number != count - 3 else 5_000)
    found = model(path)
    (kernel,) = found.kernels
    assert kernel.launches == found.run.launches == count
    assert len(found.launches) == count
    assert kernel.total_ns == 10 * (count - 1) + 5_000
    assert len(kernel.sparkline) <= 2 * MOST_BUCKETS
    assert sum(bucket.launches for bucket in kernel.sparkline) == count


def test_a_sparkline_of_a_million_launches_keeps_their_sum_and_longest():
    line = Sparkline()
    for number in range(100_000):
        line.add(1 if number != 70_000 else 9_000)
    buckets = line.buckets
    assert len(buckets) <= 2 * MOST_BUCKETS
    assert sum(bucket.total_ns for bucket in buckets) == 99_999 + 9_000
    assert max(bucket.max_ns for bucket in buckets) == 9_000


def test_watched_values_are_added_up_by_round(tmp_path, script):
    path = tmp_path / "run.tkd"
    frames = (Frame(str(script), 3, "add_kernel"),)
    with Recorder(path, script="k.py", output=False):
        one = launch(kernel_hash="h")
        for round_ in range(200):
            for program in range(2):
                value = WatchedValue(
                    *("k.py:3:x", "add_kernel", "x", "fp32[4]", frames, one.id),
                    *((program, 0, 0), round_, (4,), int(round_ == 150), 0, 0),
                    *(-1.0 - program, 2.0, 0.5, ((0, 3),)),
                )
                HOOKS.record(value)
        HOOKS.record(LineTime("add_kernel", "h", one.id, str(script), 3, 0.75, 10.0))
        HOOKS.record(LineTime("add_kernel", "h", one.id, str(script), 2, 0.25, 30.0))
        HOOKS.compiled(compiled(script, hash="h"))
    lines = {line.place.line: line for line in model(path).kernels[0].variants[0].lines}
    (watch,) = lines[3].watches
    assert watch.values == 400
    assert len(watch.rounds) <= 64
    assert {(one.minimum, one.maximum, one.mean) for one in watch.rounds} == {(-2.0, 2.0, 0.5)}
    assert watch.first_nan == (one.id, (0, 0, 0), 150)
    assert lines[3].heat == {"predicted": 0.75, "instructions": 0.25}


def test_without_code_nothing_of_it_is_read(recorded):
    (kernel,) = model(recorded, code=False).kernels
    assert kernel.variants[0].code is None
    assert kernel.variants[0].lines[0].faults == (0,)


def test_a_launch_that_did_not_end_has_no_time(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, script="k.py", output=False):
        enter("slow_kernel")
    found = model(path)
    (one,) = found.launches
    assert (one.duration_ns, one.basis) == (None, "")
    assert found.strip.tracks == ()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_the_index_of_an_element_gives_its_offset_back(shape, data):
    strides, stride = [], 1
    for size in reversed(shape):
        strides.insert(0, stride)
        stride *= size + data.draw(st.integers(0, 2))
    index = [data.draw(st.integers(0, size - 1)) for size in shape]
    offset = sum(i * s for i, s in zip(index, strides, strict=True))
    found = index_of(offset, shape, strides)
    assert found is not None
    assert sum(i * s for i, s in zip(found, strides, strict=True)) == offset


def test_an_index_past_the_end_is_past_the_outermost_axis():
    assert index_of(130_000, (260, 500), (500, 1)) == (260, 0)
    assert index_of(-1, (4, 8), (8, 1)) == (-1, 7)
    assert index_of(4, (4, 8), (0, 1)) is None
    assert index_of(7, (2, 3), (5, 1)) == (1, 2)
    assert index_of(8, (2, 3), (5, 1)) is None


def test_files_are_named_by_as_much_as_tells_them_apart():
    files = ["/a/x/k.py", "/a/y/k.py", "/a/y/m.py"]
    assert short_names(files) == {files[0]: "x/k.py", files[1]: "y/k.py", files[2]: "m.py"}


def test_a_mismatch_is_drawn_where_it_is_wrong():
    picture = mismatch_picture(("..##", "..##"))
    assert picture is not None
    assert picture.caption == "4 of 8 parts of the tensor have wrong elements."
    assert mismatch_picture(("no picture",)) is None


def test_numbers_that_json_lacks_are_their_names():
    assert plain({"a": float("nan"), "b": float("inf"), "c": 0.1234567891}) == {
        "a": "nan",
        "b": "inf",
        "c": 0.123457,
    }


def test_streams_of_several_processes_are_rows_of_their_own(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, script="k.py", output=False):
        launch(start_ns=5_000, duration_ns=100)
        launch(start_ns=5_050, duration_ns=100)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE launches SET process = process + 1 WHERE seq = 2")
    strip = model(path).strip
    assert [len(track.spans) for track in strip.tracks] == [1, 1]
    assert len({track.name for track in strip.tracks}) == 2
    # Of one process, what is queued waits for its turn.
    with sqlite3.connect(path) as database:
        database.execute("UPDATE launches SET process = 7")
    (track,) = model(path).strip.tracks
    assert [(span.start_ns, span.duration_ns) for span in track.spans] == [(0, 100), (100, 100)]


def test_interpreted_launches_take_no_time_of_the_gpu():
    totals = Totals()
    for basis, duration_ns in (("measured", 100), ("interpreted", 9000), ("measured", None)):
        fields = SimpleNamespace(
            error=None, grid=(1, 1, 1), arguments=(), basis=basis, duration_ns=duration_ns
        )
        totals.add(fields)
    assert totals.measured_ns == 200
    assert totals.interpreted_ns == 9000


def test_costs_count_for_all_launches_that_an_examined_one_represents():
    def cost(launch_id, line):
        sectors, needed, width_bytes, conflicts = 4.0, 4.0, 4, 0.0
        return LineCost("k", "hash", launch_id, "k.py", line, "load", "x", 10.0,
                        sectors, needed, width_bytes, conflicts)  # fmt: skip

    lines, measures = line_facts(LineRecords([cost(1, 3), cost(2, 7)], weights={1: 9.0, 2: 1.0}))
    assert measures == ("sectors",)
    assert [(one.place.line, one.heat["sectors"]) for one in lines] == [(3, 0.9), (7, 0.1)]
