"""`tkdebug run -c` and `-`, and kernels of `python -c`, stdin, IPython and notebooks."""

import os

import pytest
from cli_scripts import ENVIRONMENT, python, tkdebug
from warm_python import run_python

from tkdebug.checks import OWN_NAMES

KERNEL = """\
import torch, triton
import triton.language as tl

@triton.jit
def fill(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)

x = torch.zeros(10, device="cuda")
fill[(1,)](x, B=16)
fill[(1,)](x, B=16)
print(x.sum().item(), __name__, sys.argv, repr(sys.path[0]), "__file__" in globals())
"""
SCRIPT = "import sys\n" + KERNEL
INSTALLED = "import sys, tkdebug\ntkdebug.install(mode='interpret')\n" + KERNEL
STORE = "    tl.store(x + tl.arange(0, B), 1.0)\n    ^\n"
QUIET = {**ENVIRONMENT, "NO_COLOR": "1"}


def test_run_of_code_is_as_python_c():
    done = tkdebug("run", "--mode", "interpret", "-c", SCRIPT, "a", "-o", "x")
    assert done.returncode == 3
    assert done.stdout == "10.0 __main__ ['-c', 'a', '-o', 'x'] '' False\n"
    assert "<string>:7: oob-store in fill: store writes offset 10 of `x`" in done.stderr
    assert STORE in done.stderr
    assert "<string>:7: oob-store in fill, of `x`, 12 times in 2 launches" in done.stderr


def test_run_of_stdin_is_as_python_dash(tmp_path):
    session = tmp_path / "run.tkd"
    done = tkdebug("run", "--mode", "interpret", "-o", session, "-", "a", input=SCRIPT)
    assert (done.returncode, done.stdout) == (3, "10.0 __main__ ['-', 'a'] '' False\n")
    assert STORE in done.stderr
    assert STORE in tkdebug("report", session).stdout


def test_run_of_code_gives_the_traceback_that_python_gives():
    wrong = "def f():\n    raise ValueError('mine')\nf()\n"
    ours = tkdebug("run", "-c", wrong)
    assert ours.returncode == 1
    assert ours.stderr.startswith(python("-c", wrong).stderr)
    assert "SyntaxError" in tkdebug("run", "-c", "1 +").stderr
    assert tkdebug("run", "-", input="raise SystemExit(7)").returncode == 7


def test_run_of_stdin_in_the_tui_is_refused():
    done = tkdebug("run", "--tui", "-", input="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tkdebug: --tui: stdin holds the script; write it into a file\n"


@pytest.mark.parametrize("way", ["-c", "stdin"])
def test_install_gives_a_plain_python_triton_and_tells_faults(tmp_path, way):
    if way == "-c":
        done, name = python("-c", INSTALLED, env=QUIET), "<string>"
    else:
        script = tmp_path / "script.py"
        script.write_text(INSTALLED)
        with script.open() as file:
            done, name = python("-", stdin=file, env=QUIET), "<stdin>"
    assert done.returncode == 0
    assert done.stdout.startswith("10.0 __main__")
    assert done.stderr.count(f"{name}:8: oob-store in fill: store writes offset 10") == 1
    assert STORE in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == f"tkdebug: {name}:8: oob-store in fill, of `x`, 12 times in 2 launches"


def test_kernel_of_exec_does_not_take_the_command_s_lines_for_its_own():
    made = "tl = None\n@triton.jit\ndef fill(x):\n    pass\n"
    code = (
        "import tkdebug; tkdebug.install(mode='interpret')\nimport triton\n"
        "def fill(x):\n    return 1\n"
        f"exec({made!r})\n"
        "try: fill[(1,)](1)\nexcept tkdebug.CompileError as error: print(error)\n"
    )
    assert "kernel source not available for `fill`" in python("-c", code).stdout


def test_install_can_be_undone_and_takes_the_place_of_an_earlier_one():
    code = (
        "import tkdebug\n"
        "first = tkdebug.install(mode='interpret')\n"
        "with tkdebug.install(checks='all'):\n"
        "    import triton\n"
        "    print(triton.__version__, tkdebug.knobs.KNOBS.mode, len(tkdebug.knobs.KNOBS.checks))\n"
        "print(tkdebug.knobs.KNOBS.mode, tkdebug.knobs.KNOBS.checks)\n"
        "import importlib.util\n"
        "print(importlib.util.find_spec('triton') is None)\n"
        "try: tkdebug.install(checks=['rac'])\n"
        "except tkdebug.TkError as error: print(error)\n"
    )
    done = run_python("-c", code)
    assert done.stdout.splitlines() == [
        f"3.9.0 interpret {len(OWN_NAMES)}",
        "auto ()",
        "True",
        "checks: 'rac' is not one; did you mean race?",
    ]


def test_install_in_a_script_under_run_leaves_things_as_they_are(write_script):
    script = write_script(
        "import tkdebug, triton\nbefore = triton\ntkdebug.install()\nimport triton\n"
        "print(triton is before)\ntkdebug.install(mode='native')\nlaunch()\n"
    )
    done = tkdebug("run", "--mode", "interpret", script)
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "tkdebug is in place already, and its options stay as they are" in done.stderr
    assert "1 launch of 1 kernel, no faults" in done.stderr


SHELL = """\
import os; os.dup2(1, 2)
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
for number, cell in enumerate(CELLS):
    print(f"-- {number}", flush=True)
    shell.run_cell(cell, store_history=True)
"""
CELLS = (
    "%load_ext tkdebug",
    "import tkdebug; tkdebug.install(mode='interpret'); import sys\n" + KERNEL,
    "fill[(1,)](x, B=16);",
    "@triton.jit\ndef bad(x):\n    tl.nosuch(x)\nbad[(1,)](x)",
    "%unload_ext tkdebug",
    "import triton",
)


def test_ipython_tells_each_cell_s_faults_by_the_cell_s_name():
    done = run_python("-c", SHELL.replace("CELLS", repr(CELLS)), env=QUIET)
    cells = [text.partition("\n")[2] for text in done.stdout.split("-- ")[1:]]
    full = "oob-store in fill: store writes offset 10 of `x`"
    assert cells[1].count(f"Cell In[2]:7: {full}") == 1
    assert "Cell In[2]:7: oob-store in fill, of `x`, 12 times in 2 launches" in cells[1]
    assert STORE in cells[2]
    assert "6 times in" not in cells[2]
    assert "CompileError: Cell In[4]:3: module `triton.language` has no `nosuch`" in cells[3]
    assert os.path.join("tkdebug", "") not in cells[3]
    assert "ModuleNotFoundError" in cells[5]


def test_notebook_shows_the_fault_below_its_cell(monkeypatch, tmp_path):
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS[:2]])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    printed = "".join(
        output.text for output in notebook.cells[1].outputs if output.get("name") == "stderr"
    )
    assert "tkdebug: Cell In[2]:7: oob-store in fill: store writes offset 10 of `x`" in printed
    assert STORE in printed
