"""Scripts in processes of their own, and the processes they start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from warm_python import ENVIRONMENT, run_module, run_python

ROOT = Path(__file__).parents[2]
KERNEL = """
import torch, triton, triton.language as tl

@triton.jit
def double(x, o, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + offs, 2 * tl.load(x + offs, mask=offs < n), mask=offs < n)

def run():
    x = torch.randn(100, device="cuda")
    o = torch.empty_like(x)
    double[(triton.cdiv(100, 64),)](x, o, 100, BLOCK=64)
    return torch.equal(o, 2 * x) and o.is_cuda
"""
RUN = """
import runpy, sys
from tkdebug import compat
if __name__ == "__main__":
    with compat.install("interpret", quick=True):
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def run_script(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "run.py").write_text(RUN)

    def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(script)
        variables = {**ENVIRONMENT, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", **environment}
        return run_python("run.py", "script.py", cwd=tmp_path, env=variables)

    return run


def test_stand_in_is_announced_once_on_stderr_when_used(run_script):
    done = run_script("import kernel; print(kernel.run(), kernel.run())")
    assert done.stdout == "True True\n", done.stderr
    assert done.stderr == "tkdebug: no CUDA device here; 'cuda' runs on the CPU\n"
    assert run_script("import torch; print(torch.ones(2).sum())").stderr == ""


def test_spawned_processes_are_armed(run_script):
    done = run_script(
        "import multiprocessing, kernel\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(kernel.run))\n"
    )
    assert done.stdout == "True\n", done.stderr


def test_children_do_not_say_again_what_their_parent_has_said(run_script):
    child = "subprocess.run([sys.executable, '-c', 'import kernel; print(kernel.run())'])"
    done = run_script(f"import kernel, subprocess, sys; kernel.run(); {child}")
    assert done.stdout == "True\n", done.stderr
    assert done.stderr == "tkdebug: no CUDA device here; 'cuda' runs on the CPU\n"


def test_subprocesses_are_armed_and_hear_the_knobs_and_the_users_sitecustomize(
    run_script, tmp_path
):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins; builtins.FROM_SITE = __file__\n")
    done = run_script(
        "import os, subprocess, sys\n"
        f"os.environ['PYTHONPATH'] += {os.pathsep + str(site)!r}\n"
        "subprocess.run([sys.executable, '-c', 'import kernel, tkdebug.knobs as k;"
        "import triton, sitecustomize;"
        "print(kernel.run(), k.KNOBS.mode, k.KNOBS.quick, triton.__version__);"
        "print(FROM_SITE == sitecustomize.__file__)'], check=True)\n"
    )
    assert done.stdout == "True interpret True 3.9.0\nTrue\n", done.stderr
    # Their parent has said nothing.
    assert "runs on the CPU" in done.stderr


def test_signal_handler_may_launch_in_the_middle_of_the_first_launch(run_script):
    done = run_script(
        "import kernel, signal, torch\n"
        "x, o, handled = torch.ones(64), torch.zeros(64), []\n"
        "def launch(*_):\n"
        "    kernel.double[(1,)](x, o, 64, BLOCK=64)\n"
        "    handled.append(1)\n"
        # The next one comes once a handler is done: a slow machine would nest them without end.
        "def handle(*_):\n"
        "    launch()\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.002)\n"
        "signal.signal(signal.SIGALRM, handle)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001)\n"
        "for _ in range(20): launch()\n"
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
        "print(len(handled) > 20, o.sum().item())\n"
    )
    assert done.stdout == "True 128.0\n", done.stderr


PLUGIN_TESTS = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def copy(x, o, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(o + offs, tl.load(x + offs, mask=offs < n), mask=offs <= n)

def launch(n):
    x = torch.ones(100, device="cuda")
    copy[(1,)](x, torch.empty_like(x), n, BLOCK=128)

def test_clean():
    launch(99)

def test_faulty():
    launch(100)

def test_expects(tkdebug_faults):
    launch(100)
    assert [fault.kind for fault in tkdebug_faults] == ["oob-store"]

@pytest.fixture
def faulty_fixture():
    launch(100)

def test_with_faulty_fixture(faulty_fixture):
    pass

def test_after():
    launch(99)
"""


@pytest.fixture
def run_pytest(tmp_path):
    (tmp_path / "conftest.py").write_text("import triton\n")
    (tmp_path / "test_kernels.py").write_text(PLUGIN_TESTS)

    def run(*options: str) -> str:
        words = ["-p", "tkdebug.pytest_plugin", "-q", "-p", "no:cacheprovider", "-rA"]
        words += ["--tkdebug-mode", "interpret", *options]
        # Plugins that none of these tests are about take as long to import as the tests take.
        variables = {**ENVIRONMENT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = run_module("pytest", *words, cwd=tmp_path, env=variables)
        return done.stdout + done.stderr

    return run


NAN_TEST = """
import torch, triton, triton.language as tl

@triton.jit
def divide(x, o):
    offs = tl.arange(0, 64)
    value = tl.load(x + offs)
    tl.store(o + offs, value / value)

def test_divide():
    divide[(1,)](torch.zeros(64, device="cuda"), torch.empty(64, device="cuda"))
"""


def test_plugin_looks_for_the_default_checks_unless_an_ini_file_says_none(run_pytest, tmp_path):
    (tmp_path / "test_kernels.py").write_text(NAN_TEST)
    output = run_pytest("-v")  # which takes the -q back, and a header is printed
    assert "tkdebug: not looked for: race (but in first launches), " in output
    assert "test_kernels.py:8: nan in divide" in output
    assert "1 failed" in output
    (tmp_path / "pytest.ini").write_text("[pytest]\ntkdebug_check = none\n")
    assert "1 passed" in run_pytest()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntkdebug_check = rac\n")
    assert "tkdebug_check: 'rac' is not one; did you mean race?" in run_pytest()


COMPARED = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def double(x, o):
    offs = tl.arange(0, 64)
    tl.store(o + offs, tl.load(x + offs) * 3)

def compare():
    x, o = torch.randn(64, device="cuda"), torch.empty(64, device="cuda")
    double[(1,)](x, o)
    torch.testing.assert_close(o, 2 * x)

def test_differs():
    compare()

def test_difference_that_is_wanted():
    with pytest.raises(AssertionError):
        compare()
"""


def test_plugin_shows_the_cause_of_a_failed_comparison_and_judges_none(run_pytest, tmp_path):
    (tmp_path / "test_kernels.py").write_text(COMPARED)
    output = run_pytest()
    assert "FAILED test_kernels.py::test_differs" in output
    assert "7 + tl.store(o + offs, tl.load(x + offs) * 2)" in output
    assert "PASSED test_kernels.py::test_difference_that_is_wanted" in output


def test_plugin_fails_tests_whose_kernels_have_faults(run_pytest):
    output = run_pytest()
    assert "test_kernels.py:7: oob-store in copy" in output
    assert "tl.store(o + offs, tl.load(x + offs, mask=offs < n), mask=offs <= n)" in output
    assert "tkdebug faults" in output
    assert "FAILED test_kernels.py::test_faulty" in output
    assert "ERROR test_kernels.py::test_with_faulty_fixture" in output
    for name in ("test_clean", "test_expects", "test_after"):
        assert f"PASSED test_kernels.py::{name}" in output


def test_plugin_lets_faults_of_the_baseline_pass(run_pytest, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\ntkdebug_baseline = known/faults.json\n")
    assert "known/faults.json: there is no such baseline; --tkdebug-update" in run_pytest()
    (tmp_path / "known").mkdir()
    # Counted over the workers of xdist.
    output = run_pytest("--tkdebug-update-baseline", "-p", "xdist", "-n", "2")
    assert "5 passed" in output
    assert "faults.json: 1 known fault written" in output
    source = (tmp_path / "test_kernels.py").read_text()
    line = "    tl.store(o + offs"
    source = source.replace(line, f"    x = x  # tkdebug: ignore[nan, race]\n{line}")
    (tmp_path / "test_kernels.py").write_text(source)
    output = run_pytest("--tkdebug-check", "nan")
    assert "5 passed" in output
    assert "1 fault in the baseline" in output
    assert output.count("test_kernels.py:7: unused ignore[nan]") == 1
    # A test that expects its fault keeps it out of the baseline, and has it all the same.
    output = run_pytest(
        "-k", "expects", "--tkdebug-baseline", "x.json", "--tkdebug-update-baseline"
    )
    assert "x.json: no known faults written" in output


def test_plugin_leaves_out_what_is_ignored(run_pytest, tmp_path):
    source = (tmp_path / "test_kernels.py").read_text()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntkdebug_only = copies\n")
    deselect = ("--deselect", "test_kernels.py::test_expects")
    assert "4 passed" in run_pytest(*deselect)
    (tmp_path / "pytest.ini").unlink()
    (tmp_path / "test_kernels.py").write_text(
        source.replace("mask=offs <= n)", "mask=offs <= n)  # tkdebug: ignore[oob-store]")
    )
    output = run_pytest(*deselect)
    assert "4 passed" in output
    assert "1 fault ignored by comments" in output


def test_plugin_only_reports_when_asked(run_pytest):
    output = run_pytest("--tkdebug-faults", "report")
    assert "5 passed" in output
    assert "test_kernels.py:7: oob-store in copy" in output
