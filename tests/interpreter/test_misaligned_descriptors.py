"""Descriptors that no tensor map can be made of are reported at the line that makes them."""

import sys

import pytest
import torch
from differential import run
from marked_lines import line_of

import tkdebug
import tkdebug.language as tl
from tkdebug import TensorDescriptor


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


@tkdebug.jit
def last_block_moved_back(x, out, n, SHIFT: tl.constexpr, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n], [1], [B])
    target = tl.make_tensor_descriptor(out, [n], [1], [B])
    start = tl.program_id(0) * B
    if SHIFT and start + B > n:
        start = n - B
    block = source.load([start])  # LOAD
    target.store([start], block + 1)  # STORE


def faults_of_blocks(n, dtype=torch.float32, shift=True):
    x = torch.arange(n).to(dtype)
    out = torch.zeros_like(x)
    faults = run(last_block_moved_back, (-(-n // 32),), x, out, n, SHIFT=shift, B=32)
    assert torch.equal(out, x + 1)
    return faults


@pytest.mark.parametrize(
    ("n", "dtype", "unit"),
    [
        (70, torch.float32, 4),
        (65, torch.int32, 4),
        (100, torch.float16, 8),
        (97, torch.float64, 2),
        (90, torch.int8, 16),
    ],
)
def test_a_block_that_begins_between_units_of_16_bytes(n, dtype, unit):
    load, store = faults_of_blocks(n, dtype)
    for fault, name, tensor in ((load, "LOAD", "x"), (store, "STORE", "out")):
        assert (fault.kind, fault.severity) == ("misaligned-descriptor", "warning")
        assert (fault.line, fault.tensor) == (line_of(sys.modules[__name__], name), tensor)
        assert f"from offset {n - 32} of its descriptor on" in fault.message
        assert f"no multiple of {unit} elements (16 bytes)" in fault.message
        assert (fault.program_id, fault.count) == ((n // 32, 0, 0), 1)


@pytest.mark.parametrize(
    ("n", "dtype", "shift"),
    [
        (72, torch.float32, True),
        (70, torch.float32, False),
        (104, torch.float16, True),
        (98, torch.float64, True),
        (80, torch.int8, True),
        (96, torch.float32, True),
    ],
)
def test_blocks_that_begin_at_units_of_16_bytes(n, dtype, shift):
    assert faults_of_blocks(n, dtype, shift) == []


@tkdebug.jit
def block_at_a_loaded_offset(x, starts, out, n, B: tl.constexpr):
    pid = tl.program_id(0)
    source = tl.make_tensor_descriptor(x, [n], [1], [B])
    block = source.load([tl.load(starts + pid)])
    tl.store(out + pid * B + tl.arange(0, B), block)


def test_starts_of_blocks_that_are_loaded():
    starts = torch.tensor([0, 8, 6, 16, -3], dtype=torch.int32)
    x, out = torch.arange(64, dtype=torch.int32), torch.zeros(5, 16, dtype=torch.int32)
    (fault,) = run(block_at_a_loaded_offset, (5,), x, starts, out, 64, B=16)
    assert (fault.program_id, fault.count) == ((2, 0, 0), 2)
    assert "from offset 6 of its descriptor on" in fault.message


@tkdebug.jit
def block_that_the_host_describes(desc, out, start, B: tl.constexpr):
    tl.store(out + tl.arange(0, B), desc.load([start]))


@pytest.mark.parametrize(("start", "count"), [(4, 0), (6, 1)])
def test_block_of_a_descriptor_that_the_host_made(start, count):
    described = TensorDescriptor(torch.arange(64.0), [64], [1], [16])
    faults = run(block_that_the_host_describes, (1,), described, torch.zeros(16), start, B=16)
    assert [fault.count for fault in faults] == [1] * count


@tkdebug.jit
def block_added(x, out, start, B: tl.constexpr):
    target = tl.make_tensor_descriptor(out, [64], [1], [B])
    target.atomic_add([start], tl.load(x + tl.arange(0, B)))


@pytest.mark.parametrize(("start", "count"), [(20, 0), (21, 1)])
def test_block_that_is_added(start, count):
    faults = run(block_added, (1,), torch.ones(16), torch.zeros(64), start, B=16)
    assert [fault.message[:23] for fault in faults] == ["atomic changes a block "] * count


@tkdebug.jit
def rows_between_units(x, out, column, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, 64], [64, 1], [M, N])
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)
    tl.store(out + at, source.load([0, column]))


def test_blocks_of_rows_are_left_alone():
    assert run(rows_between_units, (1,), torch.zeros(4, 64), torch.zeros(4, 16), 3, M=4, N=16) == []
