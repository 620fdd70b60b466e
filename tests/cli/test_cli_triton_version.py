"""`--triton`: whose language kernels are written in."""

from __future__ import annotations

import pytest

SCRIPT = "import triton, importlib.metadata as m; print(triton.__version__, m.version('triton'))"


@pytest.mark.parametrize(("asked", "release"), [("3.6", "3.6.0"), ("3.7.1", "3.7.1")])
def test_triton_says_it_is_that_version(run_main, asked, release):
    code, out, _ = run_main("run", "--no-tui", "--triton", asked, "-c", SCRIPT)
    assert (code, out) == (0, f"{release} {release}\n")


KERNEL = """
import torch, triton, triton.language as tl

@triton.jit
def fill(x):
    tl.store(x + tl.arange(0, 16), 1.0)

fill[(1,)](torch.zeros(16, device="cuda"))
assert triton.__version__ == "3.6.0", triton.__version__
"""


@pytest.mark.parametrize("command", [("passes",), ("lines",), ("advise",), ("debug", "-c", "c")])
def test_other_commands_that_run_scripts_take_the_version(run_main, tmp_path, command):
    script = tmp_path / "script.py"
    script.write_text(KERNEL)
    code, out, err = run_main(*command, "--triton", "3.6", script)
    assert (code, "AssertionError" in out + err) == (0, False)


def test_version_for_a_recorded_run_is_refused(run_main, tmp_path):
    session = tmp_path / "run.tkd"
    run_main("run", "--no-tui", "-o", session, "-c", SCRIPT)
    code, out, err = run_main("lines", "--triton", "3.6", session)
    assert (code, out) == (2, "")
    assert f"--triton 3.6: {session} is a recorded run; this is for scripts only" in err


@pytest.mark.parametrize("asked", ["3.5", "3.10", "4", "latest", "3.9.x"])
def test_version_that_is_unknown_is_one_line(run_main, asked):
    code, out, err = run_main("run", "--triton", asked, "-c", SCRIPT)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith(f"got '{asked}', expected one of 3.6, 3.7, 3.8, 3.9")


def test_processes_of_the_script_get_the_compiler_that_was_asked_for(run_main, monkeypatch):
    monkeypatch.setenv("TKDEBUG_COMPILER", "triton")
    script = "import os; print(os.environ['TKDEBUG_COMPILER'])"
    code, out, _ = run_main("run", "--no-tui", "--compiler", "tkdebug", "-c", script)
    assert (code, out) == (0, "tkdebug\n")
