"""The debugger's variables in kernels of libraries, against upstream's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent / "corpus"
sys.path.insert(0, str(HERE))

from compare import compare_lines  # noqa: E402
from python_lines import live_names, statement_lines  # noqa: E402

from tkdebug.debugger.values import Constant, Pointers, Tile, Unavailable  # noqa: E402


@pytest.mark.slow
def test_variables_of_library_kernels_are_python_s():
    """`TKDEBUG_CORPUS` is a folder of checkouts; see `corpus/run.py`."""
    checkouts, upstream = os.environ.get("TKDEBUG_CORPUS"), os.environ.get("TKDEBUG_UPSTREAM")
    if not checkouts or not upstream:
        pytest.skip("TKDEBUG_CORPUS and TKDEBUG_UPSTREAM name no checkouts and no upstream Python")
    python = os.environ.get("TKDEBUG_CORPUS_PYTHON", sys.executable)
    command = [sys.executable, HERE / "run.py", checkouts, "--upstream", upstream]
    done = subprocess.run([*command, "--python", python], capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def tile(*numbers):
    return Tile(torch.tensor([numbers]), "<[2], fp32>", True)


def compared(held, got, live=()):
    event = ("kernel", "kernel.py", 3, held, frozenset(live))
    return compare_lines([event], [("kernel", "kernel.py", 3, got)], {"x_ptr": (1000, 4)})


def test_comparison_tells_wrong_variables_from_equal_ones():
    numbers = torch.tensor([1.0, 2.0]).numpy()
    held = {"x": ("numbers", numbers, "fp32")}
    assert compared(held, {"x": tile(1.0, 2.0)}).equal == 1
    assert len(compared(held, {"x": tile(1.0, 2.1)}).wrong) == 1
    assert len(compared(held, {"x": Constant(1)}).wrong) == 1
    assert compared({"n": ("constant", 3)}, {"n": Constant(3)}).equal == 1
    assert len(compared({"n": ("constant", 3)}, {"n": Constant(4)}).wrong) == 1
    assert "not bound" in compared({}, {"x": tile(1.0, 2.0)}).wrong[0]


def test_comparison_counts_pointers_in_elements():
    held = {"p": ("pointer", torch.tensor([1004, 1008]).numpy())}
    right, wrong = (
        Pointers("x_ptr", None, torch.tensor([places]), "ptr") for places in ([1, 2], [1, 3])
    )
    assert compared(held, {"p": right}).equal == 1
    assert len(compared(held, {"p": wrong}).wrong) == 1


def test_comparison_tells_missing_values_that_python_reads_from_others():
    held = {"x": ("constant", 1)}
    dead = compared(held, {"x": Unavailable("gone")})
    assert dict(dead.unavailable) == {"gone": 1}
    assert dead.is_good
    assert not compared(held, {"x": Unavailable("gone")}, live=["x"]).is_good


def test_comparison_tells_lines_that_one_has_not_run():
    events = [("kernel", "kernel.py", line, {}, frozenset()) for line in (3, 4, 5)]
    seen = [("kernel", "kernel.py", line, {}) for line in (3, 5)]
    assert compare_lines(events, seen, {}).unmatched == ["reference only: ('kernel', 4)"]


def _counts(n):
    total = 0
    for each in range(n):
        square = each * each
        total += (
            square
            + each
        )  # fmt: skip
    return total


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="3.13 reads two locals in one instruction")
def test_names_are_live_where_they_are_read_before_they_are_bound_again():
    live = live_names(_counts.__code__)
    first = _counts.__code__.co_firstlineno
    starts = {}
    for at, _, number in _counts.__code__.co_lines():
        starts.setdefault(number, at)
    assert live[starts[first + 3]] == {"total", "each"}
    assert live[starts[first + 4]] == {"total", "square", "each"}
    assert live[starts[first + 8]] == {"total"}


def test_lines_belong_to_the_statement_that_they_are_in():
    first = _counts.__code__.co_firstlineno
    lines = statement_lines(__file__)
    assert {lines[first + place] for place in (4, 5, 6, 7)} == {first + 4}
    assert lines[first + 3] == first + 3
