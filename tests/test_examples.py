"""Each example runs by itself, as README says: `tkdebug run examples/NAME.py`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from warm_python import run_module

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CLEAN = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "missing_mask")


def run_example(name: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], Any]:
    report = folder / "report.json"
    words = ["run", "--no-tui", "--mode", "interpret", "--report", report]
    done = run_module("tkdebug", *words, EXAMPLES / f"{name}.py", cwd=folder, timeout=240)
    return done, json.loads(report.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CLEAN)
def test_example_agrees_with_torch_and_has_no_fault(name: str, tmp_path: Path) -> None:
    done, report = run_example(name, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith(f"{name}: ok, ")
    assert report["faults"] == []
    assert report["launches"]


def test_missing_mask_is_reported_where_it_is_missing(tmp_path: Path) -> None:
    done, report = run_example("missing_mask", tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("missing_mask: ok, ")
    source = (EXAMPLES / "missing_mask.py").read_text(encoding="utf-8").splitlines()
    (fault,) = report["faults"]
    assert source[fault["line"] - 1].lstrip().startswith("x = tl.load(x_ptr + offs)")
    assert (fault["kind"], fault["tensor"], fault["index"]) == ("oob-load", "x_ptr", 1000)
    assert (fault["program_id"], fault["count"]) == ([3, 0, 0], 24)
    assert [frame["function"] for frame in fault["call_chain"]] == ["scale_kernel"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("causal_mask", "visible = n[:, None] > n[None, :]"),
        ("overwritten", "acc = tl.dot(a, b)"),
        ("softmax_axis", "total = tl.sum(e, axis=0)"),
        ("split_rescale", "total = total + tl.sum(tl.exp(x - now), axis=0)"),
        ("swapped_strides", "b = tl.load(b_ptr + k[:, None] * sbn + j[None, :] * sbk)"),
    ],
)
def test_run_alone_names_the_line_of_a_wrong_result(name: str, wrong: str, tmp_path: Path) -> None:
    done, report = run_example(f"debugging/{name}", tmp_path)
    assert done.returncode == 1, done.stderr
    source = (EXAMPLES / f"debugging/{name}.py").read_text(encoding="utf-8").splitlines()
    (fault,) = report["faults"]
    assert fault["kind"] == "mismatch"
    assert source[fault["line"] - 1].strip() == wrong
    assert fault["cause"]["edits"][0]["before"][0] == wrong


def test_examples_are_described_in_the_readme() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    missing = [name for name in (*CLEAN, "missing_mask") if f"{name}.py" not in readme]
    assert missing == []
