"""Checked GPU IR reports what the interpreter finds, field by field."""

from __future__ import annotations

import pytest
import torch
from check_support import launches, reported
from native_check_kernels import (
    add,
    asserting,
    block_sum,
    described,
    histogram,
    matmul,
    neighbours,
    unmasked,
    walking_back,
)

import tkdebug


def check(run, target: str) -> list[tkdebug.Fault]:
    """The faults of the last launch, which its GPU IR reports too."""
    launch = launches(run)[-1]
    faults, after = reported(launch, target)
    assert faults == launch.faults
    for got, wanted in zip(after, launch.after, strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(got, wanted, equal_nan=True)
    return faults


targets = pytest.mark.parametrize("target", ["sm_80", "sm_90a"])


@targets
def test_legal_kernel_reports_nothing(target: str) -> None:
    x, out = torch.randn(100), torch.zeros(100)
    assert check(lambda: add[(2,)](x, x, out, 100, B=64), target) == []


@targets
def test_wrong_mask_reports_each_access(target: str) -> None:
    x, y, out = torch.randn(120), torch.randn(103), torch.zeros(90)
    faults = check(lambda: add[(3,)](x, y, out, 117, B=64), target)
    assert [(fault.kind, fault.tensor, fault.index, fault.count) for fault in faults] == [
        ("oob-load", "y", 103, 14),
        ("oob-store", "out", 90, 27),
    ]


@targets
def test_missing_mask_names_first_program_and_lane(target: str) -> None:
    x, out = torch.randn(1000), torch.zeros(1024)
    (fault,) = check(lambda: unmasked[(4,)](x, out, B=256), target)
    assert (fault.program_id, fault.lane, fault.count) == ((3, 0, 0), (232,), 24)
    assert "no mask" in (fault.hint or "")


@targets
def test_programs_that_are_masked_off_have_no_faults(target: str) -> None:
    x, out = torch.randn(26), torch.zeros(32)
    (fault,) = check(lambda: walking_back[(2,)](x, out, 16, B=16), target)
    assert (fault.program_id, fault.index, fault.count) == ((0, 0, 0), -2, 2)


@targets
def test_pipelined_loads_report_once_an_iteration(target: str) -> None:
    a, b = torch.randn(64, 88).half(), torch.randn(88, 32).half()
    c = torch.zeros(128, 32)
    faults = check(lambda: matmul[(2,)](a, b, c, 88, M=64, N=32, BK=32), target)
    # A's rows run into the next, so only the last of program 0 and all of program 1 are outside.
    assert [(fault.tensor, fault.count) for fault in faults] == [
        ("a", 8 + 64 * 96),
        ("b", 2 * 8 * 32),
    ]


@targets
def test_block_pointer(target: str) -> None:
    x, out = torch.randn(10, 40), torch.zeros(16)
    (fault,) = check(lambda: block_sum[(1,)](x, out, 10, 40, BM=16, BN=32), target)
    assert "boundary_check" in (fault.hint or "")


@targets
def test_atomic_by_loaded_index(target: str) -> None:
    x = torch.tensor([0, 1, 9, -2, 3, 1], dtype=torch.int32)
    counts = torch.zeros(4, dtype=torch.int32)
    (fault,) = check(lambda: histogram[(1,)](x, counts, 6, B=16), target)
    assert (fault.kind, fault.index, fault.count) == ("oob-atomic", 9, 2)


@targets
def test_scalar_access(target: str) -> None:
    x, out = torch.randn(8), torch.zeros(8)
    (fault,) = check(lambda: neighbours[(8,)](x, out, 8), target)
    assert (fault.lane, fault.index, fault.count) == ((), 8, 1)


@targets
def test_view_is_checked_as_passed(target: str) -> None:
    whole = torch.randn(4, 64)
    x, out = whole[1:3].reshape(-1)[3:100], torch.zeros(128)
    (fault,) = check(lambda: unmasked[(2,)](x, out, B=64), target)
    assert (fault.index, fault.count) == (97, 31)


@targets
def test_failed_assertions_are_reported(target: str) -> None:
    x, out = torch.arange(100), torch.zeros(100, dtype=torch.int64)
    (fault,) = check(lambda: asserting[(2,)](x, out, 90, 70, B=64), target)
    assert (fault.kind, fault.program_id, fault.lane, fault.count) == (
        "assert",
        (1, 0, 0),
        (6,),
        20,
    )


@targets
def test_false_assumption_is_reported(target: str) -> None:
    x, out = torch.arange(100), torch.zeros(100, dtype=torch.int64)
    (fault,) = check(lambda: asserting[(2,)](x, out, 3, 70, B=64), target)
    assert (fault.kind, fault.count) == ("assumption", 2)


def test_descriptor_of_more_than_the_tensor() -> None:
    x, out = torch.randn(20, 16), torch.zeros(30, 16)
    (fault,) = check(lambda: described[(2, 1)](x, out, 30, 16, B=16), "sm_80")
    assert (fault.kind, fault.tensor, fault.count) == ("oob-load", "x", 160)


def test_box_outside_is_legal() -> None:
    x, out = torch.randn(20, 24), torch.zeros(20, 24)
    assert check(lambda: described[(2, 2)](x, out, 20, 24, B=16), "sm_80") == []
