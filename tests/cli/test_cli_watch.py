"""`tkdebug run --watch`: values in the summary and in reports, and mistakes in one line."""

from __future__ import annotations

import json

import pytest

SCRIPT = """\
import torch, triton, triton.language as tl

@triton.jit
def rows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    total = 0.0
    for i in range(2):
        total = tl.sum(x) + i
    tl.store(out_ptr + tl.program_id(0), total)

x = torch.ones(3, 5, device="cuda")
x[1, 2] = float("nan")
rows[(3,)](x, torch.zeros(3, device="cuda"), 5, BLOCK=8)
"""


@pytest.fixture
def run(run_main, tmp_path):
    path = tmp_path / "rows.py"
    path.write_text(SCRIPT)

    def run(*watches, options=()):
        words = [word for watch in watches for word in ("--watch", f"{path}:{watch}")]
        shared = ("--no-tui", "--mode", "interpret", "--check", "none")
        return run_main("run", *shared, *words, *options, path)

    return run


def test_values_are_in_summary_and_report(run, tmp_path):
    report = tmp_path / "out.json"
    status, _, err = run("6:x", "9:total@1:3 if iteration == 1", options=("--report", report))
    assert status == 0, err
    assert "rows.py:6 x: fp32[8], 3 values" in err
    assert "program 1, iteration 0: min 0, max 1, mean 0.571429, 1 NaN, 3 zeros" in err
    assert "rows.py:9 total: fp32, 2 values" in err
    assert "program 2, iteration 1: 6\n" in err
    values = json.loads(report.read_text())["watched_values"]
    # By program, then by line.
    assert [(v["name"], v["program_id"][0], v["iteration"]) for v in values] == [
        ("x", 0, 0),
        ("x", 1, 0),
        ("total", 1, 1),
        ("x", 2, 0),
        ("total", 2, 1),
    ]
    assert values[0]["histogram"] == [[0, 5]]
    assert (values[0]["tile"], values[2]["min"]) == (None, "nan")


def test_tiles_are_in_the_text_report_as_summaries_and_in_json_whole(run, tmp_path):
    report = tmp_path / "out.json"
    status, _, _ = run("6:x:tile if x.isnan().any()", options=("--report", report))
    assert status == 0
    (value,) = json.loads(report.read_text())["watched_values"]
    assert value["tile"] == [1, 1, "nan", 1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("watch", "said"),
    [
        ("8:at", None),
        ("6:y", "rows has no variable `y`"),
        ("3:x", "no statement of a function begins at this line; the nearest one with code is 5"),
        ("6:x if x", "column 1: `x` is a number; compare it"),
    ],
)
def test_mistakes_end_the_run_before_the_script_runs(run, watch, said):
    status, _, err = run(watch)
    assert status == (0 if said is None else 2)
    if said is not None:
        assert err.count("\n") == 1
        assert said in err


@pytest.mark.parametrize(
    ("watch", "said"),
    [
        (
            "6:total",
            "rows.py:6: `total` has no value here: it is bound at line 7, 9; it is not watched",
        ),
        ("6:BLOCK", "`BLOCK` is the constant 8, no tile or number that a kernel computes"),
        ("6:x_ptr", "`x_ptr` is pointer<fp32>; only numbers can be watched"),
        ("6:x if x > 1", "`x` is fp32[8]: write x.min(), x.max() or such"),
        ("6:x@7", "its programs are in no grid; the largest is (3, 1, 1)"),
        ("6:x if pid > 5", "its condition held for no value"),
    ],
)
def test_what_a_kernel_does_not_have_is_reported_once(run, watch, said):
    status, _, err = run(watch)
    assert status == 0
    assert sum(said in line for line in err.splitlines()) == 1
    assert "values" not in err.replace("held for no value", "")
