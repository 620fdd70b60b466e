"""Checked GPU IR notes symptoms, and a closer look gives the faults that the interpreter finds."""

from __future__ import annotations

import sys
from pathlib import Path

import check_support
import pytest
import torch
from check_support import ALWAYS, launches, reported
from machine_launches import by_ptx

import tkdebug
import tkdebug.language as tl
from tkdebug import knobs
from tkdebug.compiler.sites.checks import CheckOptions
from tkdebug.compiler.sites.table import packed_symptoms, unpacked_symptoms
from tkdebug.interpreter.closer_looks.closer_look import look_closer

sys.path.insert(0, str(Path(__file__).parents[1] / "interpreter"))
import overflow_kernels
import undefined_kernels

INT = torch.int32


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=INT)


def out(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=INT)


@tkdebug.jit
def ratio(x, y, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) / tl.load(y + at, mask=mask), mask=mask)


@tkdebug.jit
def softmax(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    row = tl.program_id(0) * n
    values = tl.load(x + row + at, mask=at < n, other=float("-inf"))
    shifted = tl.exp(values - tl.max(values, 0))
    tl.store(out + row + at, shifted / tl.sum(shifted, 0), mask=at < n)


@tkdebug.jit
def gathers(x, i, out, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(i + at), 0))


def _gathers() -> None:
    gathers[(1,)](torch.randn(8), ints(0, 9, 1, -1, 2, 7, 8, 0), torch.zeros(8), B=8)


def _ratio() -> None:
    x, y = torch.zeros(300), torch.ones(300)
    y[200:] = 0
    ratio[(5,)](x, y, torch.zeros(300), 300, B=64)


def _softmax() -> None:
    x = torch.randn(6, 50)
    x[4] = float("-inf")
    softmax[(6,)](x, torch.zeros(6, 50), 50, B=64)


def _quotients() -> None:
    undefined_kernels.quotients[(2,)](ints(*range(12)), ints(*[1, 0, 3] * 4), out(12), 12, BLOCK=8)


def _shifted() -> None:
    undefined_kernels.shifted[(1,)](ints(1, 40, 2, -1, 3, 33), out(6), 6, BLOCK=8)


def _addresses() -> None:
    undefined_kernels.addresses[(1,)](ints(*range(8)), out(8), 0, BLOCK=8)


def _gathered() -> None:
    rows = ints(0, 1, 3, 2)
    x = torch.zeros(64)
    overflow_kernels.gathered[(1,)](x, rows, torch.zeros(16), 1 << 30, R=4, C=4)


def _rolled() -> None:
    overflow_kernels.rolled[(2,)](torch.zeros(16), torch.zeros(16), 3, 16, BLOCK=8)


RUNS = [_ratio, _softmax, _quotients, _shifted, _addresses, _gathered, _rolled, _gathers]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_faults_are_those_of_the_interpreter(run, target: str) -> None:
    with knobs.scope(checks=("nan",)):
        launch = launches(run)[-1]
    assert launch.faults
    faults, _ = reported(launch, target)
    assert faults == launch.faults


@tkdebug.jit
def inverse_in_three_axes(x, out):
    x_id, y_id, z_id = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (z_id * tl.num_programs(1) + y_id) * tl.num_programs(0) + x_id
    value = tl.load(x + at)
    tl.store(out + at, value / value)


def test_least_program_of_a_grid_of_three_axes() -> None:
    x = torch.ones(12)
    x[[5, 6, 11]] = 0.0
    launch = launches(lambda: inverse_in_three_axes[(3, 2, 2)](x, torch.zeros(12)))[-1]
    (fault,), _ = by_ptx(launch, CheckOptions(frozenset(["nan"])))
    assert (fault.kind, fault.program_id, fault.count) == ("nan", (2, 1, 0), 3)


@tkdebug.jit
def squared_over(x, out, n, B: tl.constexpr, HIDES: tl.constexpr):
    """The value itself, unless its square is too large; where it hides, that is not stored."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at, mask=at < n, other=1)
    found = value * value / value
    mask = (at < n) & (value < 2) if HIDES else at < n
    tl.store(out + at, found, mask=mask)


LARGE = {torch.float16: 1e4, torch.bfloat16: 1e30, torch.float32: 1e30, torch.float64: 0.0}


@pytest.mark.parametrize("dtype", LARGE, ids=str)
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize("hides", [False, True])
def test_infinities_of_each_type(dtype, target: str, hides: bool) -> None:
    x = torch.ones(600, dtype=dtype)
    x[[77, 530]] = LARGE[dtype] if not hides else LARGE[dtype] or 3.0
    with knobs.scope(checks=("nan", "inf")):
        launch = launches(
            lambda: squared_over[(2,)](x, torch.zeros_like(x), 590, B=512, HIDES=hides)
        )[-1]
    faults, _ = by_ptx(launch, ALWAYS, target)
    assert faults == launch.faults
    kind = "nan" if dtype == torch.float64 else "inf"
    assert [fault.kind for fault in faults] == ([] if hides else [kind])


@tkdebug.jit
def filled(x, out, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at)
    value = tl.where(value > 2, float("-inf"), value)
    tl.store(out + at, tl.where(value == 2, value * 3e38 * 3 / 9, value))


@pytest.mark.parametrize(("value", "kinds"), [(3.0, []), (2.0, ["inf"])])
def test_infinities_that_a_kernel_writes_are_no_symptom(value, kinds, monkeypatch) -> None:
    x = torch.ones(128)
    x[70] = value
    looks: list[object] = []
    monkeypatch.setattr(
        check_support, "look_closer", lambda *given: looks.append(given) or look_closer(*given)
    )
    with knobs.scope(checks=("nan", "inf")):
        launch = launches(lambda: filled[(2,)](x, torch.zeros(128), B=64))[-1]
    for found in (by_ptx(launch)[0], reported(launch, "sm_80")[0]):
        assert [fault.kind for fault in found] == kinds
        assert found == launch.faults
    assert len(looks) == 2 * len(kinds)


def test_slot_of_symptoms_names_programs_of_the_largest_grid() -> None:
    programs = {"nan": ((1 << 31) - 2, (1 << 16) - 2, (1 << 16) - 2), "inf": (0, 0, 0)}
    assert unpacked_symptoms(packed_symptoms(programs)) == programs
    words = [packed_symptoms({"nan": program}) for program in ((0, 0, 1), (0, 1, 0), (1, 0, 0))]
    assert sorted(words, key=lambda slot: slot[15:7:-1]) == words
