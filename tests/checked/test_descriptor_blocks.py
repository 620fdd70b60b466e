"""Blocks that bulk copies move: the host finds those that lie outside of their tensor."""

from __future__ import annotations

import torch
from check_support import launches, with_checks
from native_check_kernels import described

import tkdebug
import tkdebug.language as tl
from tkdebug import TensorDescriptor
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor, ReportedLaunch
from tkdebug.interpreter.closer_looks.reports import host_faults


def found_by_the_host(x, out, rows: int) -> tuple[list, list]:
    """Return the faults that the host sees in a launch's arguments, and the interpreter's."""
    launch = launches(lambda: described[(3, 1)](x, out, rows, 16, B=16))[-1]
    module, plan = with_checks(launch)
    tensors = {"x": PassedTensor.of(x), "out": PassedTensor.of(out)}
    checked = ReportedLaunch(module.name, 0, launch.grid, tensors, launch.arguments)
    return host_faults(plan, checked), launch.faults


def test_descriptor_of_more_rows_than_the_tensor_has() -> None:
    faults, expected = found_by_the_host(torch.randn(20, 16), torch.zeros(48, 16), 48)
    assert faults == expected
    (fault,) = faults
    assert (fault.kind, fault.tensor, fault.index, fault.count) == ("oob-load", "x", 320, 28 * 16)


def test_box_outside_of_its_descriptor_is_legal() -> None:
    assert found_by_the_host(torch.randn(20, 16), torch.zeros(20, 16), 20) == ([], [])


@tkdebug.jit
def copied(desc, out, B: tl.constexpr):
    tile = desc.load([tl.program_id(0) * B, 0])
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(out + tl.program_id(0) * B * B + at, tile)


def test_descriptor_that_is_passed() -> None:
    x, out = torch.randn(20, 16), torch.zeros(2, 16, 16)
    passed = TensorDescriptor(x, [32, 16], [16, 1], [16, 16])
    launch = launches(lambda: copied[(2,)](passed, out, B=16))[-1]
    module, plan = with_checks(launch)
    tensors = {"desc": PassedTensor.of(x, ((32, 16), (16, 1))), "out": PassedTensor.of(out)}
    checked = ReportedLaunch(module.name, 0, launch.grid, tensors, launch.arguments)
    assert launch.faults
    assert host_faults(plan, checked) == launch.faults


@tkdebug.jit
def stored(x, out, rows, B: tl.constexpr):
    block = tl.make_tensor_descriptor(out, [rows, B], [B, 1], [B, B])
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    block.store([tl.program_id(0) * B, 0], tl.load(x + at))


def stored_blocks(rows: int) -> tuple[list, list]:
    x, out = torch.randn(16, 16), torch.zeros(20, 16)
    launch = launches(lambda: stored[(2,)](x, out, rows, B=16))[-1]
    module, plan = with_checks(launch)
    tensors = {"x": PassedTensor.of(x), "out": PassedTensor.of(out)}
    checked = ReportedLaunch(module.name, 0, launch.grid, tensors, launch.arguments)
    return host_faults(plan, checked), launch.faults


def test_stored_box_partly_outside_of_its_descriptor_is_legal() -> None:
    assert stored_blocks(20) == ([], [])


def test_stored_box_outside_of_the_tensor() -> None:
    faults, expected = stored_blocks(32)
    assert faults == expected
    (fault,) = faults
    assert (fault.kind, fault.tensor, fault.index, fault.count) == ("oob-store", "out", 320, 192)
