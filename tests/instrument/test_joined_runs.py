"""Runs that were split over jobs, as one answer about their faults."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from answer_schemas import valid

from tkdebug.cli import main
from tkdebug.errors import Frame
from tkdebug.instrument.recorder import Recorder
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS

SHARED = Fault("oob-load", "softmax", (Frame("/k.py", 9, "softmax"),), "reads too far", 1)
OWN = (replace(SHARED, kernel="norm"), replace(SHARED, kind="nan", severity="warning"))


@pytest.fixture
def runs(tmp_path):
    """Two runs: both have one fault, and each has one of its own."""
    for number, own in enumerate(OWN):
        path = tmp_path / f"{number}.tkd"
        recorder = Recorder(path, script=f"part{number}.py", output=False).start()
        HOOKS.fault(SHARED)
        HOOKS.fault(own)
        recorder.stop(number)
    return [str(tmp_path / f"{number}.tkd") for number in range(2)]


def told(capsys, *words):
    assert main(["report", *words]) == 0
    return capsys.readouterr().out


def test_faults_of_several_runs_are_listed_once(runs, capsys):
    data = valid("shards", told(capsys, *runs, "--format", "json"))
    assert [run["script"] for run in data["runs"]] == ["part0.py", "part1.py"]
    assert [(one["kind"], one["kernel"], one["count"]) for one in data["faults"]] == [
        ("oob-load", "softmax", 2),
        ("oob-load", "norm", 1),
        ("nan", "softmax", 1),
    ]
    assert [len(one["runs"]) for one in data["faults"]] == [2, 1, 1]
    assert data["fails"] is True
    text = told(capsys, *runs)
    assert "2 runs, 3 faults, of which 2 fail a run" in text
    assert text.count("oob-load in softmax") == 1


def test_log_of_several_runs_has_each_fault_in_one_of_them(runs, capsys):
    log = json.loads(told(capsys, *runs, "--format", "sarif"))
    found = [[one["ruleId"] for one in run["results"]] for run in log["runs"]]
    assert found == [["oob-load", "oob-load"], ["nan"]]


def test_suites_of_several_runs_are_in_one_file(runs, capsys):
    suites = ElementTree.fromstring(told(capsys, *runs, "--format", "junit"))
    assert [suite.get("name") for suite in suites] == ["part0.py", "part1.py"]
    assert [suite.get("failures") for suite in suites] == ["2", "1"]
    assert (suites.get("failures"), suites.get("errors")) == ("3", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "csv"), "got 2 runs, expected text, json, sarif, junit"),
        (("0.tkd",), "a run is given twice"),
        (
            ("answer.tkd", "--format", "html"),
            "expected text, json, sarif, junit, or html of two",
        ),
        (("copy.tkd",), "0.tkd, a copy; name each run once"),
        (("answer.json",), "`tkdebug verify --join` joins answers of verify"),
    ],
)
def test_what_cannot_be_joined_is_refused(runs, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    Recorder(tmp_path / "answer.tkd", script="k.py", output=False).start().stop(0)
    (tmp_path / "copy.tkd").write_bytes((tmp_path / "0.tkd").read_bytes())
    assert main(["report", *runs, *words]) == 2
    assert said in capsys.readouterr().err


def test_only_the_first_run_is_required(capsys):
    with pytest.raises(SystemExit):
        main(["report"])
    assert capsys.readouterr().err.endswith("arguments are required: run.tkd|FOLDER\n")
