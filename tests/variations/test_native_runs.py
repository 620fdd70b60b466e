"""Launches that run natively beside their interpreted ones; needs a GPU."""

from __future__ import annotations

import pytest
import torch
from kept_launches import keeping

import tkdebug
import tkdebug.language as tl
from tkdebug.variations.bisection import bisect
from tkdebug.variations.divergence import Divergence, Way
from tkdebug.variations.native_levels import targets

pytestmark = pytest.mark.gpu


@tkdebug.jit
def scaled_sum(x_ptr, y_ptr, n, B: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, B)
    x = tl.load(x_ptr + row * n + at, at < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(x * 1.5 + 0.25))


def kept():
    torch.manual_seed(0)
    with keeping() as keeper:
        x, y = torch.rand(8, 100, device="cuda"), torch.empty(8, device="cuda")
        scaled_sum[(8,)](x, y, 100, B=128)
    return keeper.kept[0]


def test_native_code_gives_what_its_gpu_ir_does():
    (target,) = targets(None)
    result = bisect(kept(), target, 60.0)
    assert (result.culprit, result.below) == (None, "native code gives what its GPU IR does")


def test_native_launch_is_one_of_the_ways():
    (target,) = targets(None)
    divergence = Divergence(kept(), target, 60.0)
    (way,) = divergence.ways("native")
    assert isinstance(way, Way)
    assert divergence.look(way).difference is None
