"""Launches that run natively beside their interpreted ones; needs a GPU."""

from __future__ import annotations

import pytest
import torch
from kept_launches import keeping

import tkdebug
import tkdebug.language as tl
from tkdebug.runtime.compile.native_compilation import NativeStageFiles
from tkdebug.variations.bisection import bisect
from tkdebug.variations.divergence import Divergence
from tkdebug.variations.native_levels import targets
from tkdebug.variations.ways import Way

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


@tkdebug.jit
def larger(x_ptr, y_ptr, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at, at < n, other=0.0)
    most = tl.maximum(x + 1.0, x * 2.0)
    out = most * 0.5
    tl.store(y_ptr + at, out, at < n)


@pytest.fixture
def kept_with_wrong_ptx(monkeypatch):
    """A launch whose native code takes the smaller number, by an edit of its PTX."""

    def on_stage(files):
        file_of = {stage.name: stage.file for stage in files.stages}
        return lambda stage, text: (
            text.replace("max.f32", "min.f32") if file_of[stage] == "kernel.ptx" else None
        )

    monkeypatch.setattr(NativeStageFiles, "on_stage", property(on_stage))
    torch.manual_seed(0)
    with keeping() as keeper:
        x = torch.rand(300, device="cuda")
        larger[(3,)](x, torch.empty_like(x), 300, B=128)
    return keeper.kept[0]


def test_error_below_llvm_ir_is_said_to_lie_there(kept_with_wrong_ptx):
    (target,) = targets(None)
    result = bisect(kept_with_wrong_ptx, target, 60.0)
    assert result.culprit is None
    assert result.below.startswith("native code differs below the GPU IR at every optimisation")


def test_variable_whose_native_value_differs_is_named(kept_with_wrong_ptx):
    (target,) = targets(None)
    divergence = Divergence(kept_with_wrong_ptx, target, 60.0)
    (way,) = divergence.ways("native")
    found = divergence.look(way)
    assert (found.variable, found.program) == ("most", 0)
    assert found.at[-1].line == larger.fn.__code__.co_firstlineno + 4
    assert float(found.got) < float(found.expected)
