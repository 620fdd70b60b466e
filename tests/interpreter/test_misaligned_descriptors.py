"""Descriptors that no tensor map can be made of are reported at the line that makes them."""

import pytest
import torch
from differential import run

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def described(x, out, shift, rows, stride, M: tl.constexpr, N: tl.constexpr):
    first = tl.make_tensor_descriptor(x + shift * tl.program_id(0), [rows, N], [stride, 1], [M, N])
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N), first.load([0, 0]))


def faults_of(x, shift=0, stride=16, grid=(2, 1, 1)):
    return run(described, grid, x, torch.zeros(8, 4), shift, 2, stride, M=8, N=4)


@pytest.mark.parametrize(
    ("view", "shift", "stride", "message", "program", "count"),
    [
        (slice(1, None), 0, 16, "has address 4 bytes into its allocation", (0, 0, 0), 2),
        (slice(None), 2, 16, "has address 8 bytes into its allocation", (1, 0, 0), 1),
        (slice(None), 0, 6, "has stride 0 24 bytes", (0, 0, 0), 2),
        (slice(2, None), 2, 6, "has address 8 bytes into its allocation", (0, 0, 0), 2),
    ],
)
def test_a_misaligned_descriptor_is_reported_once(view, shift, stride, message, program, count):
    (fault,) = faults_of(torch.zeros(64)[view], shift, stride)
    assert (fault.kind, fault.severity, fault.tensor) == ("misaligned-descriptor", "warning", "x")
    assert message in fault.message
    assert (fault.program_id, fault.count) == (program, count)
    assert fault.line == described.fn.__code__.co_firstlineno + 2


@pytest.mark.parametrize(("view", "shift", "stride"), [(0, 0, 16), (4, 4, 8), (8, 0, 4)])
def test_aligned_descriptors_are_not(view, shift, stride):
    assert faults_of(torch.zeros(64)[view:], shift, stride) == []


def test_programs_that_do_not_make_it_are_not_looked_at():
    @tkdebug.jit
    def guarded(x, out, N: tl.constexpr):
        if tl.program_id(0) == 0:
            made = tl.make_tensor_descriptor(x + tl.program_id(0), [N], [1], [N])
            tl.store(out + tl.arange(0, N), made.load([0]))

    assert run(guarded, (2, 1, 1), torch.zeros(9), torch.zeros(8), N=8) == []
