"""Outputs of kernels, kept and compared between two runs."""

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.cli.commands.compare import output_lines
from tkdebug.compat.captured_outputs import LAUNCHES_KEPT, kept_outputs, output_differences


def scale_by(factor):
    @tkdebug.jit
    def scale(X, OUT, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(OUT + i, tl.load(X + i, i < n) * FACTOR, i < n)

    return lambda x, out: scale[(1,)](x, out, x.numel(), factor, 16)


@pytest.fixture
def kept(tmp_path):
    def keep(name, launch, inputs, size=8):
        path = tmp_path / f"{name}.pt"
        with kept_outputs(path):
            for x in inputs:
                launch(x, torch.zeros(size))
        return path

    return keep


def test_equal_outputs_are_reported_for_the_first_launches(kept):
    inputs = [torch.ones(8)] * (LAUNCHES_KEPT + 2)
    found = output_differences(*(kept(n, scale_by(2.0), inputs) for n in ("before", "after")))
    assert [(one.argument, one.launch, one.different) for one in found] == [
        ("OUT", number, 0) for number in range(1, LAUNCHES_KEPT + 1)
    ]
    assert next(output_lines(found)) == "  scale `OUT`, launch 1: equal, 8 elements"


def test_differing_outputs_have_their_distance(kept):
    x = torch.full((8,), 4.0)
    paths = (kept(f"by {factor}", scale_by(factor), [x]) for factor in (2.0, 3.0))
    (one,) = output_differences(*paths)
    assert (one.relative, one.different) == (0.5, 8)
    (line,) = output_lines([one])
    assert line.endswith(
        "launch 1: 8 of 8 elements differ, by up to 0.5 (of values above 1: of the value)"
    )


@pytest.mark.parametrize(
    ("x", "size", "reason"),
    [(torch.zeros(8) + 5, 8, "seed the script"), (torch.ones(8), 16, "shapes or types differ")],
)
def test_launches_that_are_not_the_same_are_not_compared(kept, x, size, reason):
    before = kept("before", scale_by(2.0), [torch.ones(8)])
    (one,) = output_differences(before, kept("after", scale_by(2.0), [x], size))
    assert one.relative is None
    assert reason in one.reason


def test_nans_are_like_each_other(kept):
    x = torch.tensor([float("nan"), 1.0])
    paths = [kept(n, scale_by(2.0), [x], 2) for n in ("before", "after")]
    (one,) = output_differences(*paths)
    assert one.different == 0
