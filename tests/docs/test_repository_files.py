"""Files that the forge and other programs read: the action, workflows, forms, hooks, the citation.

Their own linters are run by hand (docs/development.md). These tests find what rots: versions,
names, commands, pins, and text of a pull request that a shell or Markdown would interpret.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tkdebug.cli.command_line import parse

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
ACTION_FOLDER = ROOT / ".github" / "action"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


def data_of(*parts):
    return yaml.safe_load(ROOT.joinpath(*parts).read_text("utf-8"))


@pytest.fixture(scope="module")
def action():
    return data_of("action.yml")


@pytest.fixture(scope="module")
def kernel_tests():
    spec = importlib.util.spec_from_file_location("kernel_tests", ACTION_FOLDER / "kernel_tests.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "tests").mkdir()
    for name in ("train.py", "faults.json"):
        (tmp_path / name).touch()
    return tmp_path.resolve()


def variables(action, **changed):
    """The environment that the action gives its script, with the defaults but for `changed`."""
    (step,) = [step for step in action["runs"]["steps"] if step.get("id") == "run"]
    named = {
        name: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)[1]
        for name, text in step["env"].items()
    }
    defaults = {name: action["inputs"][given]["default"] for name, given in named.items()}
    unknown = changed.keys() - defaults.keys() - {"GITHUB_EVENT_NAME"}
    assert unknown == set()
    return defaults | changed


def test_every_action_is_pinned_to_a_commit_with_its_version():
    for file in [ROOT / "action.yml", *WORKFLOWS]:
        used = re.findall(r"uses: (.*)", file.read_text("utf-8"))
        assert used
        pinned = r"\./|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
        assert [text for text in used if not re.fullmatch(pinned, text)] == [], file.name


def test_no_command_of_a_step_has_an_expression(action):
    steps = list(action["runs"]["steps"])
    for file in WORKFLOWS:
        for job in yaml.safe_load(file.read_text("utf-8"))["jobs"].values():
            steps += job["steps"]
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []


def test_every_input_is_used_and_each_that_is_used_is_declared(action):
    text = (ROOT / "action.yml").read_text("utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "-m pytest -p tkdebug.pytest_plugin --tkdebug-mode interpret tests"),
        (
            {
                "INPUT_CHECKS": "race nan",
                "INPUT_BASELINE": "faults.json",
                "INPUT_ARGUMENTS": "-k\na b",
            },
            "--check race --check nan --baseline faults.json -m pytest -p tkdebug.pytest_plugin "
            "--tkdebug-mode interpret --tkdebug-check race --tkdebug-check nan "
            "--tkdebug-baseline faults.json -k 'a b' tests",
        ),
        ({"INPUT_SCRIPT": "train.py", "INPUT_ARGUMENTS": "--steps\n3\n"}, "train.py --steps 3"),
    ],
)
def test_action_runs_a_command_that_tkdebug_takes(kernel_tests, action, workspace, changed, words):
    inputs = kernel_tests.read_inputs(variables(action, **changed), workspace)
    command = kernel_tests.run_command(inputs, workspace / "run.tkd")[3:]
    before = ["run", "--no-tui", "--mode", "interpret", "-o", str(workspace / "run.tkd")]
    assert command == before + shlex.split(words)
    parse(command)  # it refuses what it does not know


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"INPUT_TESTS": "../other"},
            "input tests: got '../other', expected a path",
        ),
        ({"INPUT_TESTS": "tests -c"}, "input tests: got '-c', expected a path in the checkout"),
        ({"INPUT_SCRIPT": "missing.py"}, "input script: got 'missing.py', expected a path"),
        ({"INPUT_MODE": "fast"}, "input mode: got 'fast', expected one of interpret, native, auto"),
        ({"INPUT_CHECKS": "race; ls"}, "input checks: got 'race;', expected their names"),
        ({"INPUT_NAME": "../x"}, "input name: got '../x', expected at most 60 letters"),
        ({"INPUT_COMMENT": "yes"}, "input comment: got 'yes', expected true or false"),
        ({"GITHUB_EVENT_NAME": "pull_request_target"}, "the code of any fork would run with it"),
    ],
)
def test_action_refuses_unfit_inputs(kernel_tests, action, workspace, changed, message):
    with pytest.raises(kernel_tests.InputError, match=re.escape(message)):
        kernel_tests.read_inputs(variables(action, **changed), workspace)


def fault(**changed):
    known = {"file": "/w/a.py", "line": 7, "kind": "oob-load", "kernel": "add", "message": "reads"}
    return known | {"severity": "error", "state": "open"} | changed


def test_summary_lists_open_errors_and_interprets_no_text_of_the_run(kernel_tests):
    hostile = "`|@someone\n<img src=x>\x1b[31m" + "x" * 500
    faults = [fault(message=hostile), fault(state="known"), fault(severity="warning")]
    report = {"faults": faults, "launches": [{"kernel": "add"}, {"kernel": "add"}]}
    text = kernel_tests.summary(report, 3, Path("/w"))
    heading, _, _, _, row = text.splitlines()
    assert heading == "### tkdebug: 1 fault in 2 launches of 1 kernel; exit status 3"
    assert row.startswith("| `a.py:7` | `oob-load` | `add` | `'\\|@someone <img src=x>[31mxxx")
    assert row.count("`") == 8
    assert len(row) < 300


def test_summary_counts_the_faults_that_it_does_not_list(kernel_tests):
    report = {"faults": [fault()] * 23, "launches": []}
    assert kernel_tests.summary(report, 3, Path("/w")).endswith("\nand 3 more\n")


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for gh is a script of bash")
@pytest.mark.parametrize(("earlier", "asked"), [("", "POST"), ("17\n18", "PATCH")])
def test_comment_replaces_the_one_before(tmp_path, earlier, asked):
    gh = tmp_path / "gh"
    gh.write_text(
        '#!/usr/bin/env bash\ncase "$*" in\n*--jq*) echo "$EARLIER" ;;\n'
        '*) echo "$*" >"$RUNNER_TEMP/asked" ;;\nesac\n'
    )
    gh.chmod(0o755)
    (tmp_path / "summary.md").write_text("### how it went\n")
    folders = {"FOLDER": str(tmp_path), "RUNNER_TEMP": str(tmp_path), "EARLIER": earlier}
    named = {"GITHUB_REPOSITORY": "o/r", "NUMBER": "5", "NAME": "x", "PAGE": "https://page"}
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", ACTION_FOLDER / "comment.sh"], env=path | folders | named, check=True)
    places = {"POST": "repos/o/r/issues/5/comments", "PATCH": "repos/o/r/issues/comments/17"}
    assert f"{asked} {places[asked]} " in (tmp_path / "asked").read_text()
    comment = (tmp_path / "comment.md").read_text()
    assert comment.startswith("<!-- tkdebug: x -->\n### how it went\n")
    assert "(https://page)" in comment


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_citation_names_the_version_and_licence_of_the_package():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = data_of("CITATION.cff")
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_forms_ask_for_a_script_and_what_doctor_prints(form):
    fields = yaml.safe_load(form.read_text("utf-8"))
    ids = [field["id"] for field in fields["body"] if field["type"] != "markdown"]
    assert len(set(ids)) == len(ids)
    assert ids[0] in {"script", "kernel"}
    assert ids[-1] == "doctor"


def test_hooks_for_others_and_for_this_repository_run_commands_that_exist():
    (hook,) = data_of(".pre-commit-hooks.yaml")
    python, m, pytest_name, *options = shlex.split(hook["entry"])
    assert (python, m, pytest_name) == ("python", "-m", "pytest")
    assert options[1:] == ["-p", "tkdebug.pytest_plugin", "--tkdebug-mode", "interpret"]
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    (local,) = data_of(".pre-commit-config.yaml")["repos"]
    for hook in local["hooks"]:
        assert f".venv/bin/{hook['entry'].removesuffix(' --force-exclude')}" in ci


def test_files_for_contributors_name_files_that_exist():
    for name in ("CONTRIBUTING.md", "SECURITY.md"):
        targets = re.findall(r"\]\(([^)]+)\)", (ROOT / name).read_text("utf-8"))
        assert [target for target in targets if not (ROOT / target).exists()] == []
