"""`tkdebug bisect`: its answers, its exit status, and what it says of bad input."""

from __future__ import annotations

import json

import pytest

from tkdebug.compiler.passes import cleanup
from tkdebug.variations import bisection

SCRIPT = """
import sys
import torch
import triton
import triton.language as tl


@triton.jit
def choose(x_ptr, y_ptr, B: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, B))
    y = tl.where(x > 0.5, x, 0.0) + tl.where(x < 0.5, 2.0 * x, 1.0)
    tl.store(y_ptr + tl.arange(0, B), y)


print("said by the script")
choose[(1,)](torch.linspace(0, 1, 32, device="cuda"), torch.empty(32, device="cuda"), B=32)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "choose.py"
    path.write_text(SCRIPT)
    return path


def test_right_passes_leave_the_status_to_the_script(run_main, script):
    status, out, err = run_main("bisect", "--target", "sm_80", script)
    assert status == 0
    assert out == "choose (sm_80, launch 1): 37 passes, each leaves the result as it is\n"
    assert "said by the script" in err
    status, out, err = run_main("bisect", "--target", "sm_80", script, "4")
    assert status == 4
    assert "ended with status 4" in err


def test_both_kinds_of_pipelines_are_looked_at(run_main, script):
    _, out, _ = run_main("bisect", "--format", "json", script)
    answer = json.loads(out)
    assert answer["schema"] == 1
    assert [row["target"] for row in answer["kernels"]] == ["sm_90a", "sm_80"]
    assert [row["culprit"] for row in answer["kernels"]] == [None, None]


def test_wrong_pass_ends_it_with_3(run_main, script, monkeypatch):
    real = cleanup._attributes_key

    def without_predicate(attributes):
        return real({name: a for name, a in attributes.items() if name != "predicate"})

    monkeypatch.setattr(cleanup, "_attributes_key", without_predicate)
    status, out, _ = run_main("bisect", "--target", "sm_80", script)
    assert status == 3
    line = SCRIPT.splitlines().index(
        "    y = tl.where(x > 0.5, x, 0.0) + tl.where(x < 0.5, 2.0 * x, 1.0)"
    )
    assert f"merge-equal: arith.cmpf becomes arith.cmpf, at {script}:{line + 1}" in out


def test_kernel_that_was_not_launched_is_one_line(run_main, script):
    status, out, err = run_main("bisect", "--kernel", "chose", script)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].endswith("launched no such kernel, but choose")


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [("x = 1", "launched no kernel", 2), ("raise SystemExit(7)", "ended with status 7", 7)],
)
def test_script_without_launches_is_one_line(run_main, code, said, expected):
    status, out, err = run_main("bisect", "-c", code)
    assert (status, out) == (expected, "")
    assert said in err.splitlines()[-1]


def test_seconds_are_a_positive_number(run_main, script):
    status, _, err = run_main("bisect", "--seconds", "-1", script)
    assert status == 2
    assert "got '-1', expected a number of seconds" in err


def test_what_was_found_before_an_interrupt_is_shown(run_main, script, monkeypatch):
    real, asked = bisection.bisect, []

    def interrupted(*arguments):
        asked.append(arguments)
        if len(asked) > 1:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(bisection, "bisect", interrupted)
    status, out, err = run_main("bisect", script)
    assert status == 130
    assert out.startswith("choose (sm_90a, launch 1): 37 passes")
    assert "interrupted: shown is what was found until then" in err
