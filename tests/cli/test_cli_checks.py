"""`tkdebug run --check`: what is looked for only when asked for."""

import json

import pytest
from cli_scripts import NOT_LOOKED_FOR, tkdebug

from tkdebug.checks import CHECK_NAMES, DEFAULT_CHECKS, not_looked_for

SCRIPT = """\
import torch, triton, triton.language as tl

@triton.jit
def add_up(x, out):
    total = tl.load(out)
    tl.store(out, total + tl.load(x + tl.program_id(0)))

x = torch.ones(4, device="cuda")
add_up[(4,)](x, torch.zeros(1, device="cuda"))
add_up[(1,)](x, torch.empty(1, device="cuda"))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def kinds(script, *options, **environment):
    report = script.with_suffix(".json")
    done = tkdebug("run", "--no-tui", "--report", report, *options, script, **environment)
    found = [(fault["kind"], fault["line"]) for fault in json.loads(report.read_text())["faults"]]
    assert done.returncode == (3 if found else 0), done.stderr
    return sorted(found)


def test_races_are_looked_for_by_default_in_first_launches_alone(script):
    assert kinds(script) == [("race", 6)]
    assert kinds(script, "--ignore", "race") == []


def test_last_line_says_what_was_not_looked_for(script):
    printed = tkdebug("run", "--no-tui", script).stderr.splitlines()
    assert printed[-1].endswith(f", 1 fault{NOT_LOOKED_FOR}")
    options = ("--check", "inf", "--ignore", "race")
    printed = tkdebug("run", "--no-tui", *options, script).stderr.splitlines()
    left = not_looked_for(DEFAULT_CHECKS, options)
    assert printed[-1].endswith(f"; not looked for: {', '.join(left)} (--check all)")
    assert "not looked for" not in tkdebug("run", "--no-tui", "--check", "all", script).stderr


def test_check_none_leaves_out_what_is_looked_for_by_default(script):
    script.write_text(
        SCRIPT + "add_up[(1,)](x * float('inf') * 0, torch.zeros(1, device='cuda'))\n"
    )
    # NaNs that are loaded are not the kernel's.
    assert kinds(script) == [("race", 6)]
    script.write_text(SCRIPT.replace("total + ", "total / ").replace("(4,)", "(1,)"))
    printed = tkdebug("run", "--no-tui", "--check", "none", script)
    assert printed.returncode == 0
    assert f"; not looked for: {', '.join(CHECK_NAMES)} (--check all)" in printed.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--check", "race"], [("race", 6)]),
        (["--check=uninitialised-read"], [("race", 6), ("uninitialised-read", 5)]),
        (["--check=uninitialised-read", "--check=none"], [("uninitialised-read", 5)]),
        (["--check", "all"], [("race", 6), ("uninitialised-read", 5)]),
        (
            ["--check", "race", "--check", "uninitialised-read"],
            [("race", 6), ("uninitialised-read", 5)],
        ),
    ],
)
def test_check_finds_what_was_asked_for(script, options, expected):
    assert kinds(script, *options) == expected


def test_check_reaches_processes_that_the_script_starts(script, tmp_path):
    parent = tmp_path / "parent.py"
    parent.write_text(
        f"import subprocess, sys\nsubprocess.run([sys.executable, {str(script)!r}], check=True)\n"
    )
    assert kinds(parent, "--check", "all") == [("race", 6), ("uninitialised-read", 5)]


def test_check_of_an_unknown_kind_is_a_usage_error(script, run_main):
    status, _, err = run_main("run", "--no-tui", "--check", "luck", script)
    assert status == 2
    assert "race" in err


def test_check_of_native_kernels_is_a_usage_error(script, run_main):
    options = ("--no-tui", "--mode", "native", "--check", "unwritten-output")
    status, _, err = run_main("run", *options, script)
    said = "native kernels are not checked for it; run with --mode interpret"
    text = f"--check unwritten-output: {said}"
    assert (status, err) == (2, f"tkdebug: {text}\n")


def test_fresh_memory_is_on_the_default_device(tmp_path):
    path = tmp_path / "placed.py"
    path.write_text(
        "import torch\n"
        "torch.set_default_device('cuda')\n"
        "assert torch.empty(3).is_cuda\n"
        "torch.set_default_device('cpu')\n"
        "with torch.device('cuda'):\n"
        "    assert torch.empty_strided((2, 2), (2, 1)).is_cuda\n"
        "assert not torch.empty(3).is_cuda\n"
    )
    done = tkdebug("run", "--no-tui", "--check", "all", path)
    assert done.returncode == 0, done.stderr


def test_checked_launches_of_interpreted_kernels_are_refused(run_main, write_script):
    script = write_script("")
    status, _, err = run_main("run", "--mode", "interpret", "--check-launches", "all", script)
    assert status == 2
    assert "--check-launches all: kernels are interpreted, which checks every launch" in err
