"""Advice and lines are about the kernel that would run: watches and checks do not change them."""

import json
import re

import pytest

from tkdebug.cli import main
from tkdebug.compiler.targets.registered_backends import backend_of, target_of

pytestmark = pytest.mark.skipif(
    backend_of(target_of("sm_90a")).obstacle() is not None, reason="needs code generation"
)

SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def columns(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, 8):
        v = tl.load(x + i * n + first + tl.program_id(0) % 8)
        if first > 8:
            total += v * v
    tl.store(out + i * n + tl.program_id(0), total)

x = torch.ones((128, 128), device="cuda")
columns[(128,)](x, torch.empty_like(x), 128, BLOCK=128)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def advised(capfd, script, tmp_path, *options):
    out = tmp_path / "run.json"
    run = ("run", "--no-tui", "--mode", "interpret", "--check", "none", "--advise")
    assert main([*run, *options, "--report", str(out), str(script)]) == 0
    capfd.readouterr()
    data = json.loads(out.read_text())
    return data["remarks"], data["launch_costs"]


def test_a_watch_changes_no_advice(script, tmp_path, capfd):
    remarks, costs = advised(capfd, script, tmp_path)
    watched, watched_costs = advised(capfd, script, tmp_path, "--watch", f"{script}:9:v")
    assert remarks[0]["kind"] == "uncoalesced"
    assert watched == remarks
    for cost in (*costs, *watched_costs):
        del cost["kernel_hash"], cost["launch_id"]
    assert watched_costs == costs


def test_lines_of_a_watched_kernel_are_those_of_the_bare_one(script, capfd, monkeypatch):
    def registers():
        assert main(["lines", str(script)]) == 0
        return re.findall(r"(\d+) registers", capfd.readouterr().out)

    bare = registers()
    monkeypatch.setenv("TKDEBUG_WATCH", f"{script}:9:v:tile")
    assert registers() == bare
