"""Scripts that profile themselves with Proton, and Proton's own command, under `tkdebug run`."""

import json

import pytest
from warm_python import run_module

KERNEL = """
import subprocess, sys
import torch, triton, triton.language as tl
import triton.profiler as proton

@triton.jit
def fill(x):
    tl.store(x + tl.arange(0, 8), 1)

def launch(times=1):
    for _ in range(times):
        fill[(1,)](torch.empty(8, device="cuda"))
"""


@pytest.fixture
def run(tmp_path):
    """Run the command in a process of its own, in the folder of the script."""

    def run(body, *arguments):
        (tmp_path / "script.py").write_text(KERNEL + body)
        words = ["run", "--no-tui", "--mode", "interpret", *arguments]
        return run_module("tkdebug", *words, cwd=tmp_path, timeout=120)

    return run


def names(frame):
    return {child["frame"]["name"]: names(child) for child in frame["children"]}


def test_scopes_are_in_profile_and_report(run, tmp_path):
    body = """
proton.start("p")
with proton.scope("step"):
    launch(2)
proton.finalize()
with proton.scope("after the session"):
    launch()
"""
    ended = run(body, "--report", "out.json", "script.py")
    assert ended.returncode == 0, ended.stderr
    tree, _ = json.loads((tmp_path / "p.hatchet").read_text())
    assert names(tree) == {"step": {"fill": {}}}
    launches = json.loads((tmp_path / "out.json").read_text())["launches"]
    assert [launch["scopes"] for launch in launches] == [["step"]] * 2 + [["after the session"]]


def test_protons_command_profiles_a_script_as_one_session(run, tmp_path):
    body = """
assert proton.start("ignored") is None
with proton.scope(sys.argv[1]):
    launch()
proton.finalize(0)
sys.exit(4)
"""
    ended = run(body, "-m", "triton.profiler.proton", "-n", "whole", "script.py", "word")
    assert ended.returncode == 4, ended.stderr
    tree, _ = json.loads((tmp_path / "whole.hatchet").read_text())
    assert names(tree) == {"word": {"fill": {}}}
    assert not (tmp_path / "ignored.hatchet").exists()
    shown = run("", "-m", "triton.profiler.viewer", "-m", "count", "whole.hatchet")
    assert shown.stdout.splitlines() == ["1.000 ROOT", "└─ 1.000 word", "   └─ 1.000 fill"]
    refused = run("", "-m", "triton.profiler.viewer", "-m", "bytes", "whole.hatchet")
    assert refused.returncode == 1
    assert "tkdebug: Metric bytes is not found" in refused.stderr


def test_child_process_profiles_itself(run, tmp_path):
    body = """
if sys.argv[1:] == ["child"]:
    launch()
else:
    command = [sys.executable, "-m", "triton.profiler.proton", "-n", "inner", "script.py", "child"]
    subprocess.run(command, check=True)
"""
    ended = run(body, "script.py")
    assert ended.returncode == 0, ended.stderr
    tree, _ = json.loads((tmp_path / "inner.hatchet").read_text())
    assert names(tree) == {"fill": {}}
