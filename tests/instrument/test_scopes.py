"""Scopes as the recorder stores them and reports show them."""

import contextvars
import json
import threading

import pytest
from launching import launch

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.records import ScopeSpan, ScopeSummary
from tkdebug.instrument.renderers.text_format import MAX_LINES, scope_lines
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.records.scopes import SCOPES, state


@pytest.fixture
def recorder(tmp_path):
    with Recorder(tmp_path / "run.tkd", script="k.py", output=False) as recorder:
        yield recorder


def launches_by_kernel(recorder):
    recorder.flush()
    with Session.open(recorder.path) as session:
        return {launch.kernel: launch.scopes for launch in session.launches_in_order()}


def report(recorder, format_name):
    recorder.flush()
    with Session.open(recorder.path) as session:
        return "".join(render(session, format_name))


def test_nobody_watching_means_no_scope():
    assert not SCOPES.tracking
    assert SCOPES.enter("unseen") is None
    assert SCOPES.path() == ()


def test_launches_are_stored_with_the_scopes_around_them(recorder):
    outer = SCOPES.enter("outer")
    inner = SCOPES.enter("inner")
    launch("nested")
    SCOPES.exit(inner)
    launch("single")
    SCOPES.exit(outer)
    launch("bare")
    assert launches_by_kernel(recorder) == {
        "nested": ("outer", "inner"),
        "single": ("outer",),
        "bare": (),
    }


def test_state_comes_last_in_the_path(recorder):
    outer = SCOPES.enter("outer")
    with state("metadata"):
        inner = SCOPES.enter("inner")
        launch("asked")
        SCOPES.exit(inner)
    SCOPES.exit(outer)
    assert launches_by_kernel(recorder)["asked"] == ("outer", "inner", "metadata")


def test_leaving_a_scope_leaves_those_in_it_and_names_them(recorder):
    outer = SCOPES.enter("outer")
    SCOPES.enter("forgotten")
    assert SCOPES.exit(outer) == ("forgotten",)
    assert SCOPES.path() == ()


def test_thread_is_in_the_scopes_of_the_main_thread_until_it_has_its_own(recorder):
    entered, left = threading.Event(), threading.Event()

    def work():
        launch("early")
        own = SCOPES.enter("own")
        launch("inside")
        entered.set()
        left.wait(60)
        SCOPES.exit(own)
        launch("late")

    main = SCOPES.enter("main")
    thread = threading.Thread(target=work)
    thread.start()
    entered.wait(60)
    SCOPES.exit(main)
    launch("main_done")
    left.set()
    thread.join()
    assert launches_by_kernel(recorder) == {
        "early": ("main",),
        "inside": ("main", "own"),
        "main_done": (),
        "late": (),
    }


def test_recorder_hears_of_no_scope_that_was_entered_before_it(tmp_path):
    SCOPES.keep(1)
    before = SCOPES.enter("before")
    try:
        with Recorder(tmp_path / "run.tkd", output=False) as recorder:
            inside = SCOPES.enter("inside")
            launch("add_kernel")
            SCOPES.exit(inside)
            assert launches_by_kernel(recorder) == {"add_kernel": ("inside",)}
    finally:
        SCOPES.exit(before)
        SCOPES.keep(-1)


def test_scope_of_one_context_is_not_in_force_in_another(recorder):
    one, two = contextvars.copy_context(), contextvars.copy_context()
    first = one.run(SCOPES.enter, "first")
    second = two.run(SCOPES.enter, "second")
    one.run(launch, "in_first")
    two.run(launch, "in_second")
    assert one.run(SCOPES.exit, first) == ()
    assert two.run(SCOPES.exit, second) == ()
    stored = launches_by_kernel(recorder)
    assert stored["in_first"] == ("first",)
    assert stored["in_second"][-1] == "second"


def test_scopes_are_stored_with_times_parents_and_plain_metrics(recorder):
    class Tensor:
        def data_ptr(self):
            raise AssertionError("to read it would wait for the device")

    outer = SCOPES.enter("outer", {"flops": 2.5, "left_out": Tensor()})
    inner = SCOPES.enter("inner")
    SCOPES.measure(inner, {"rows": 3, "ratio": float("nan")})
    SCOPES.exit(inner)
    SCOPES.exit(outer)
    recorder.flush()
    with Session.open(recorder.path) as session:
        first, second = [recorded.event for recorded in session.records(ScopeSpan)]
    assert (first.name, first.parent, second.name, second.parent) == (
        "inner",
        second.id,
        "outer",
        None,
    )
    assert second.start_ns <= first.start_ns <= first.end_ns <= second.end_ns
    assert second.metrics == {"flops": 2.5}
    assert first.metrics == {"rows": 3, "ratio": "nan"}


def test_reports_show_scopes(recorder):
    outer = SCOPES.enter("outer", {"flops": 2.0})
    inner = SCOPES.enter("inner")
    launch("add_kernel", duration_ns=1_000_000)
    SCOPES.exit(inner)
    launch("add_kernel", duration_ns=3_000_000)
    SCOPES.exit(outer)
    text = report(recorder, "text")
    table = text[text.index("scope ") : text.index("no faults")].split("\n")
    assert [line.split() for line in table[:5]] == [
        ["scope", "launches", "total", "mean"],
        ["outer", "2", "4.00", "ms", "2.00", "ms"],
        ["inner", "1", "1.00", "ms", "1.00", "ms"],
        ["add_kernel", "1", "1.00", "ms", "1.00", "ms"],
        ["add_kernel", "1", "3.00", "ms", "3.00", "ms"],
    ]
    assert [len(line) - len(line.lstrip()) for line in table[1:5]] == [0, 2, 4, 2]
    launched = json.loads(report(recorder, "json"))["launches"]
    assert [entry["scopes"] for entry in launched] == [["outer", "inner"], ["outer"]]
    events = json.loads(report(recorder, "chrome-trace"))["traceEvents"]
    slices = {event["name"]: event for event in events if event.get("cat") == "scope"}
    assert slices["outer"]["args"] == {"flops": 2.0}
    assert slices["outer"]["ts"] <= slices["inner"]["ts"]
    assert events[2]["args"]["scopes"] == ["outer", "inner"]


def test_run_without_scopes_has_no_table_of_them(recorder):
    launch("add_kernel")
    assert "\nscope " not in report(recorder, "text")


def test_tree_of_very_many_scopes_is_cut():
    many = [ScopeSummary((f"step {n}",), "add", 1, 1, 10) for n in range(MAX_LINES)]
    lines = list(scope_lines(many))
    assert len(lines) == MAX_LINES + 2
    assert lines[-1] == "… and 200 more"
