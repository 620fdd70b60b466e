"""`tkdebug diverge`: its answers, its exit status, and what it says of bad input."""

from __future__ import annotations

import json
import subprocess

import pytest

SCRIPT = """
import torch
import triton
import triton.language as tl


@triton.jit
def prefix(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, other=0)
    sums = tl.cumsum(x)
    tl.store(y_ptr + at, sums, at < n)


x = torch.arange(128, device="cuda")
print("said by the script")
prefix[lambda meta: (triton.cdiv(128, meta["BLOCK"]),)](x, torch.empty_like(x), 128, BLOCK=32)
"""
RIGHT = SCRIPT.replace("tl.cumsum(x)", "x * 3")


@pytest.fixture
def write(tmp_path):
    def write_script(text, name="prefix.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_script


def test_value_from_which_blocks_matter_is_named(run_main, write):
    script = write(SCRIPT)
    status, out, err = run_main("diverge", "--vary", "BLOCK,order", script)
    assert status == 3
    line = SCRIPT.splitlines().index("    sums = tl.cumsum(x)") + 1
    assert f"first value that differs: sums (tt.scan) at {script}:{line} in program" in out
    assert "order reversed: the same bits" in out
    assert "said by the script" in err
    status, out, _ = run_main("diverge", "--vary", "BLOCK", "--format", "json", script)
    (row,) = json.loads(out)["launches"]
    assert [way["line"] for way in row["ways"]] == [line, line]
    assert (status, row["kernel"], row["classes"]) == (3, "prefix", None)


def test_kernel_for_which_nothing_matters_ends_well(run_main, write):
    status, out, _ = run_main("diverge", "--bits", write(RIGHT))
    assert status == 0
    assert out.count("the same bits") == 9
    assert "padding: left out: no load has a mask and no other value" in out


def test_other_version_is_a_file_or_a_commit(run_main, write, tmp_path):
    other = write(RIGHT, "other.py")
    script = write(SCRIPT)
    status, out, _ = run_main("diverge", "--vary", "padding", "--against", other, script)
    assert status == 3
    assert "the other version: y_ptr[1] is 3, as it is 1" in out
    script = write(SCRIPT, "committed.py")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q"], ["add", "committed.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    script.write_text(RIGHT)
    status, out, _ = run_main("diverge", "--vary", "padding", "--against", "HEAD", script)
    assert status == 3
    assert "the other version: y_ptr[1] is 1, as it is 3" in out


def test_version_that_is_not_there_is_one_line(run_main, write):
    status, out, err = run_main("diverge", "--against", "nowhere", write(SCRIPT))
    assert (status, out) == (2, "")
    assert "--against nowhere: no file, and no commit with" in err.splitlines()[-1]


def test_what_cannot_be_varied_says_why(run_main, write):
    words = "native,triton,TILE"
    status, out, _ = run_main("diverge", "--target", "sm_80", "--vary", words, write(RIGHT))
    assert status == 0
    assert "native: left out: needs a GPU of sm_80" in out
    assert "triton: left out: " in out
    assert "TILE: left out: no meta-parameter of that name is a power of 2 (BLOCK)" in out
