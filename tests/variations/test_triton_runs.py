"""Launches that an installed Triton runs, by a made-up one whose launches are known."""

import sys
from pathlib import Path

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.variations import triton_runs
from tkdebug.variations.divergence import Divergence
from tkdebug.variations.triton_runs import run_by_triton
from tkdebug.variations.ways import Found, Way

sys.path.insert(0, str(Path(__file__).parents[1] / "compat"))
from made_up_triton import INIT, write_package

# In place of Triton's compiler: it runs the text of the kernel's docstring.
LAUNCHES = (
    INIT
    + """

def _launch(kernel, grid, values, options):
    given = dict(zip(kernel.arg_names, values))
    exec(kernel.fn.__doc__, {"grid": grid, "options": options}, given)


JITFunction.__getitem__ = lambda self, grid: (
    lambda *values, **options: _launch(self, grid, values, options)
)
"""
)


@tkdebug.jit
def scaled(x_ptr, y_ptr, n, FACTOR: tl.constexpr, B: tl.constexpr):
    """y_ptr.copy_(x_ptr * FACTOR + (x_ptr == 42) + grid[0] - 4 + options["num_warps"] - 8)"""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) * FACTOR, at < n)


@pytest.fixture
def kept(keep, tmp_path, monkeypatch):
    write_package(tmp_path, LAUNCHES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def of(kernel):
        x = torch.arange(100.0)[16:66]
        launch = lambda: kernel[(4,)](x, torch.zeros(50), 50, FACTOR=3, B=16, num_warps=8)  # noqa: E731
        return keep(launch)[0]

    return of


def test_elements_that_it_stores_are_compared(kept):
    usual = kept(scaled)
    divergence = Divergence(usual, "sm_80", 30.0)
    runs = lambda: run_by_triton(usual, sys.executable, "cpu", 60.0)  # noqa: E731
    found = divergence.look(Way("triton", usual, divergence.module, run=runs)).difference
    assert (found.tensor, found.index) == ("y_ptr", (26,))
    assert found.text == "y_ptr[26] is 127, as it is 126; 1 of 50 elements differ"


def test_kernel_that_it_does_not_run_is_left_out(kept, monkeypatch):
    answer = {"verdict": "refuses", "text": "ValueError: odd"}
    monkeypatch.setattr(triton_runs, "asked_once", lambda *_: answer)
    usual = kept(scaled)
    divergence = Divergence(usual, "sm_80", 30.0)
    runs = lambda: run_by_triton(usual, "python", "cpu", 60.0)  # noqa: E731
    found = divergence.look(Way("triton", usual, divergence.module, run=runs))
    assert found.refused == "Triton does not run it: ValueError: odd"


def test_inputs_on_no_gpu_are_left_out(kept):
    (found,) = Divergence(kept(scaled), "sm_80", 30.0).ways("triton")
    assert isinstance(found, Found)
    assert found.refused == "needs a GPU"
