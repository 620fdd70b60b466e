"""`tkdebug numerics`: text, JSON, references, and what is refused."""

from __future__ import annotations

import json

import pytest

SCRIPT = """
import torch
import triton
import triton.language as tl


@triton.jit
def half_sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float16)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + tl.program_id(0) * n + start + cols)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total.to(tl.float32), 0))


torch.manual_seed(0)
x = torch.rand(4, 2048, device="cuda").half()
out = torch.zeros(4, device="cuda")
half_sums[(4,)](x, out, 2048, BLOCK=64)
print("the script says this")
"""
REFERENCE = """
import torch


def sums(x_ptr):
    return x_ptr.double().sum(1)


def whole(x_ptr):
    return x_ptr.double().sum()
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "references_of_sums.py").write_text(REFERENCE)
    path = tmp_path / "sums.py"
    path.write_text(SCRIPT)
    return path


def line_of(text):
    return 1 + next(n for n, line in enumerate(SCRIPT.splitlines()) if text in line)


def test_the_line_and_the_cause_come_first(run_main, script):
    status, out, err = run_main("numerics", script)
    assert status == 0
    assert "half_sums, launch 1: all programs in fp64, too" in out
    assert f"100%  line {line_of('total +=')}  accumulator" in out
    assert "the script says this" not in out
    assert "the script says this" in err


def test_json_is_one_object_on_stdout(run_main, script):
    status, out, _ = run_main("numerics", "--format", "json", script)
    assert status == 0
    first = json.loads(out)["lines"][0]
    assert (first["line"], first["cause"]) == (line_of("total +="), "accumulator")


def test_the_name_of_the_file_says_the_format(run_main, script, tmp_path):
    answer = tmp_path / "out.json"
    assert run_main("numerics", "-o", answer, script)[0] == 0
    assert json.loads(answer.read_text())["kernels"][0]["kernel"] == "half_sums"


def test_a_reference_beside_the_script_says_that_precision_is_lost(run_main, script):
    status, out, _ = run_main("numerics", "--reference", "references_of_sums:sums", script)
    assert status == 0
    assert "precision is lost here: against the reference" in out


def test_a_reference_that_does_not_fit_is_shown_and_is_the_exit_status(run_main, script):
    status, out, _ = run_main("numerics", "--reference", "references_of_sums:whole", script)
    assert status == 2
    assert "of out_ptr has shape (), expected (4,)" in out
    assert "accumulator" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--reference", "sums"), "--reference sums: expected module:function"),
        (("--reference", "no_such:f"), "no_such cannot be imported"),
        (("--reference", "references_of_sums:sum"), "did you mean sums?"),
        (("--kernel", "other"), "it launched no kernel of other"),
        (("--launches", "0"), "expected a number from 1 on"),
        (("--seconds", "no"), "expected a number of seconds"),
    ],
)
def test_bad_input_is_one_line(run_main, script, options, message):
    status, out, err = run_main("numerics", *options, script)
    assert status == 2
    assert message in err.splitlines()[-1]
    assert not out


def test_a_script_that_fails_first_passes_its_status_on(run_main, tmp_path):
    path = tmp_path / "fails.py"
    path.write_text("import sys; sys.exit(5)")
    status, _, err = run_main("numerics", path)
    assert status == 5
    assert "it ended with status 5 before a launch was looked at" in err
