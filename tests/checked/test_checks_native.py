"""Checked kernels report, fault by fault, what the interpreter finds: as PTX, and on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from check_support import launches
from machine_launches import by_ptx
from native_check_kernels import (
    add,
    asserting,
    block_sum,
    described,
    histogram,
    matmul,
    neighbours,
    unmasked,
)
from native_launches import natively
from test_symptoms import RUNS as SYMPTOMATIC

from tkdebug import knobs
from tkdebug.records.events import Fault

Check = Callable[..., list[Fault]]
NATIVE = pytest.param("native", marks=pytest.mark.gpu)
# The machine for PTX knows no matrix instructions.
of_products = pytest.mark.parametrize("check", [NATIVE], indirect=True)


@pytest.fixture(params=["sm_80", "sm_90a", NATIVE])
def check(request: pytest.FixtureRequest) -> Check:
    """The faults of a launch, which are the interpreter's, and so is the memory."""

    def checked(run: Callable[[], object], is_memory_alike: bool = True) -> list[Fault]:
        launch = launches(run)[-1]
        native = request.param == "native"
        faults, after = natively(launch) if native else by_ptx(launch, target=request.param)
        assert faults == launch.faults
        for got, wanted in zip(after, launch.after, strict=True):
            if is_memory_alike and isinstance(wanted, torch.Tensor):
                torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3, equal_nan=True)
        return faults

    return checked


def test_legal_kernel(check: Check) -> None:
    x, out = torch.randn(1000), torch.zeros(1000)
    assert check(lambda: add[(1,)](x, x, out, 1000, B=1024)) == []


@pytest.mark.parametrize("size", [103, 104, 117])
def test_wrong_mask(size: int, check: Check) -> None:
    x, y, out = torch.randn(120), torch.randn(size), torch.zeros(90)
    assert check(lambda: add[(3,)](x, y, out, 117, B=64))


@pytest.mark.parametrize("size", [1000, 1001, 7, 1023])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.float64])
def test_missing_mask(size: int, dtype: torch.dtype, check: Check) -> None:
    x, out = torch.arange(size).to(dtype), torch.zeros(size + 13, dtype=dtype)
    assert check(lambda: unmasked[(4,)](x, out, B=256))


def test_many_faults_are_counted(check: Check) -> None:
    x, out = torch.randn(5), torch.zeros(1 << 14)
    (fault,) = check(lambda: unmasked[(1 << 4,)](x, out, B=1024))
    assert fault.count == (1 << 14) - 5


@of_products
def test_pipelined_loads(check: Check) -> None:
    a, b = torch.randn(64, 88).half(), torch.randn(88, 32).half()
    c = torch.zeros(128, 32)
    assert check(lambda: matmul[(2,)](a, b, c, 88, M=64, N=32, BK=32))


@of_products
def test_pipelined_loads_that_stay_inside(check: Check) -> None:
    a, b = torch.randn(128, 96).half(), torch.randn(96, 32).half()
    c = torch.zeros(128, 32)
    assert check(lambda: matmul[(2,)](a, b, c, 96, M=64, N=32, BK=32)) == []


def test_block_pointer(check: Check) -> None:
    x, out = torch.randn(10, 40), torch.zeros(16)
    assert check(lambda: block_sum[(1,)](x, out, 10, 40, BM=16, BN=32))


def test_atomics(check: Check) -> None:
    x = torch.tensor([0, 1, 9, -2, 3, 1], dtype=torch.int32)
    counts = torch.zeros(4, dtype=torch.int32)
    assert check(lambda: histogram[(1,)](x, counts, 6, B=16))


def test_scalars(check: Check) -> None:
    x, out = torch.randn(8), torch.zeros(8)
    assert check(lambda: neighbours[(8,)](x, out, 8))


def test_view_as_passed(check: Check) -> None:
    x, out = torch.randn(4, 64)[1:3].reshape(-1)[3:100], torch.zeros(128)
    assert check(lambda: unmasked[(2,)](x, out, B=64))


def test_assertions_and_assumptions_report_and_go_on(check: Check) -> None:
    x, out = torch.arange(100), torch.zeros(100, dtype=torch.int64)
    assert len(check(lambda: asserting[(2,)](x, out, 90, 70, B=64))) == 1
    assert len(check(lambda: asserting[(2,)](x, out, 3, 2, B=64))) == 2


def test_mask_that_is_true_in_the_whole_tile(check: Check) -> None:
    x, y, out = torch.randn(128), torch.randn(100), torch.zeros(128)
    (fault,) = check(lambda: add[(2,)](x, y, out, 128, B=64))
    assert "true in all of this tile" in (fault.hint or "")


def test_box_beyond_the_tensor(check: Check) -> None:
    x, out = torch.randn(20, 32), torch.zeros(30, 32)
    check(lambda: described[(2, 2)](x, out, 30, 32, B=16))


@pytest.mark.parametrize("run", SYMPTOMATIC)
def test_symptoms_and_a_closer_look(run: Callable[[], object], check: Check) -> None:
    with knobs.scope(checks=("nan",)):
        # An index beyond a tile gives any of its elements.
        assert check(run, is_memory_alike=False)
