"""The release workflow: its jobs, the files and commands that it names, the systems it tries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="the workflow is YAML; pip install pyyaml")
ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    return dict(yaml.safe_load(WORKFLOW.read_text()))


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_jobs_need_jobs_that_are_there(workflow) -> None:
    jobs = workflow["jobs"]
    for job in jobs.values():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(jobs)
    assert set(jobs["publish"]["needs"]) == {"check", "install"}


def test_every_step_runs_or_uses_something_pinned(workflow) -> None:
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert re.fullmatch(
                r"actions/[a-z-]+@[0-9a-f]{40}", step.get("uses", "actions/x@" + "0" * 40)
            )


def test_wheel_is_tried_on_three_systems(workflow) -> None:
    job = workflow["jobs"]["install"]
    systems = job["strategy"]["matrix"]["os"]
    assert {name.split("-")[0] for name in systems} == {"ubuntu", "windows", "macos"}
    text = commands(job)
    for needed in ("dist/*.whl", "tkdebug --help", "tkdebug run --no-tui -o", "opened_session.py"):
        assert needed in text


def test_files_that_it_names_exist(workflow) -> None:
    text = "\n".join(map(commands, workflow["jobs"].values()))
    named = re.findall(r"[\w./-]+\.(?:py|md)\b|\.ci/run", text)
    assert len(named) >= 4
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_what_has_not_been_run_is_said(workflow) -> None:
    assert "have not been run yet" in WORKFLOW.read_text()
    assert "have not been run" in (ROOT / "docs" / "development.md").read_text()
