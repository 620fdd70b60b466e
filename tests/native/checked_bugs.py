"""Kernels with bugs, for native launches that are checked: each a function of a device."""

from __future__ import annotations

import torch

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask), mask=mask)


@tkdebug.jit
def shift(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets - 3, mask=offsets < n), mask=offsets < n)


@tkdebug.jit
def count(x, bins, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + offsets, mask=offsets < n), 1, mask=offsets < n)


@tkdebug.jit
def transpose(x, out, rows, columns, stride, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (r < columns) & (c < rows)
    tl.store(out + c * rows + r, tl.load(x + r * stride + c, mask=mask), mask=mask)


@tkdebug.jit
def row_sums(x, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x + row * stride + start + tl.arange(0, BLOCK))
    tl.store(out + row, tl.sum(total))


@tkdebug.jit
def gather(x, index, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + tl.load(index + offsets)))


@tkdebug.jit
def blocks(x, out, rows, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, B], [B, 1], [B, B])
    target = tl.make_tensor_descriptor(out, [rows, B], [B, 1], [B, B])
    target.store([tl.program_id(0) * B, 0], source.load([tl.program_id(0) * B, 0]) + 1)


def block_outside_of_its_tensor(device):
    x, out = torch.ones(20, 16, device=device), torch.zeros(48, 16, device=device)
    blocks[(3,)](x, out, 48, B=16)


@tkdebug.jit
def overflowing(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, tl.log(1 + tl.exp(value)), mask=offsets < n)


def inf_of_a_large_exponent(device):
    x = torch.ones(1000, device=device)
    x[700] = 100
    overflowing[(8,)](x, torch.zeros(1000, device=device), 1000, BLOCK=128)


@tkdebug.jit
def narrowed(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n, other=0)
    tl.store(out + offsets, value.to(tl.int8), mask=offsets < n)


def number_too_large_for_its_type(device):
    x = torch.full((300,), 300.0, device=device)
    narrowed[(3,)](x, torch.zeros(300, dtype=torch.int8, device=device), 300, BLOCK=128)


def load_behind_the_end(device):
    x, out = torch.zeros(1000, device=device), torch.zeros(1024, device=device)
    copy[(8,)](x, out, 1024, BLOCK=128)


def store_behind_the_end(device):
    x, out = torch.zeros(1024, device=device), torch.zeros(900, device=device)
    copy[(8,)](x, out, 1024, BLOCK=128)


def load_before_the_begin(device):
    x, out = torch.zeros(1024, device=device), torch.zeros(1024, device=device)
    shift[(8,)](x, out, 1024, BLOCK=128)


def atomic_behind_the_end(device):
    x = torch.arange(512, device=device, dtype=torch.int32)
    count[(4,)](x, torch.zeros(300, device=device, dtype=torch.int32), 512, BLOCK=128)


def swapped_masks(device):
    x, out = torch.zeros(40, 70, device=device), torch.zeros(70, 40, device=device)
    transpose[(3, 3)](x, out, 40, 70, x.stride(0), BLOCK=32)


def stride_of_another_tensor(device):
    x, out = torch.zeros(16, 128, device=device), torch.zeros(16, device=device)
    row_sums[(16,)](x[:, :64], out, 64, 256, BLOCK=64)


def view_passed_as_a_whole(device):
    x = torch.zeros(1024, device=device)
    copy[(8,)](x[256:768], torch.zeros(1024, device=device), 1024, BLOCK=128)


def wild_index(device):
    index = torch.arange(256, device=device)
    index[100], index[200] = 1 << 40, -(1 << 40)
    gather[(2,)](torch.zeros(256, device=device), index, torch.zeros(256, device=device), BLOCK=128)


@tkdebug.jit
def ratio(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    quotient = tl.load(x + offsets, mask=mask) / tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, quotient, mask=mask)


@tkdebug.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + columns
    row = tl.load(x + at, mask=columns < n, other=float("-inf"))
    shifted = tl.exp(row - tl.max(row, 0))
    tl.store(out + at, shifted / tl.sum(shifted, 0), mask=columns < n)


@tkdebug.jit
def integers(x, y, out, n, SHIFTS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(x + offsets, mask=mask, other=1)
    b = tl.load(y + offsets, mask=mask, other=1)
    tl.store(out + offsets, a << b if SHIFTS else a // b, mask=mask)


@tkdebug.jit
def far_rows(x, rows, out, stride, BLOCK: tl.constexpr):
    row = tl.load(rows + tl.program_id(0))
    columns = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + columns, tl.load(x + row * stride + columns))


@tkdebug.jit
def promised(x, out, first, BLOCK: tl.constexpr):
    offsets = tl.multiple_of(first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 16)
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.load(x + offsets))


def nan_of_a_quotient(device):
    x, y = torch.zeros(1000, device=device), torch.ones(1000, device=device)
    y[700:] = 0
    ratio[(8,)](x, y, torch.zeros(1000, device=device), 1000, BLOCK=128)


def nan_in_a_large_launch(device):
    n = 1 << 16
    x, y = torch.zeros(n, device=device), torch.ones(n, device=device)
    y[n // 2 + 5 : n // 2 + 9] = 0
    ratio[(n // 128,)](x, y, torch.zeros(n, device=device), n, BLOCK=128)


def nan_in_place(device):
    x, y = torch.zeros(1000, device=device), torch.ones(1000, device=device)
    y[700:] = 0
    ratio[(8,)](x, y, x, 1000, BLOCK=128)


def nan_of_a_masked_row(device):
    x = torch.linspace(0, 1, 2000, device=device).reshape(20, 100)
    x[7] = float("-inf")
    softmax[(20,)](x, torch.zeros(20, 100, device=device), 100, BLOCK=128)


def division_by_zero(device):
    x = torch.arange(300, device=device, dtype=torch.int32)
    integers[(3,)](x, x % 5, torch.zeros_like(x), 300, SHIFTS=False, BLOCK=128)


def shift_too_far(device):
    x = torch.arange(300, device=device, dtype=torch.int32)
    integers[(3,)](x, x % 40, torch.zeros_like(x), 300, SHIFTS=True, BLOCK=128)


def offset_that_wraps(device):
    rows = torch.tensor([0, 1, 4, 2], device=device, dtype=torch.int32)
    far_rows[(4,)](
        torch.zeros(256, device=device), rows, torch.zeros(256, device=device), 1 << 30, BLOCK=64
    )


def broken_promise(device):
    x = torch.zeros(300, device=device)
    promised[(2,)](x, torch.zeros(256, device=device), 3, BLOCK=128)


def values_that_are_right(device):
    x, y = torch.ones(1000, device=device), torch.ones(1000, device=device)
    x[5] = float("nan")
    ratio[(8,)](x, y, torch.zeros(1000, device=device), 1000, BLOCK=128)
    promised[(2,)](x, torch.zeros(256, device=device), 16, BLOCK=128)


def nothing_wrong(device):
    x, out = torch.zeros(1000, device=device), torch.zeros(1000, device=device)
    copy[(8,)](x, out, 1000, BLOCK=128)
    whole = torch.zeros(16, 128, device=device)
    row_sums[(16,)](whole, out, 128, 128, BLOCK=64)
    row_sums[(16,)](whole[:, 64:], out, 64, 128, BLOCK=64)
    gather[(2,)](x, torch.arange(256, device=device), out, BLOCK=128)


BUGS = (
    block_outside_of_its_tensor,
    inf_of_a_large_exponent,
    number_too_large_for_its_type,
    load_behind_the_end,
    store_behind_the_end,
    load_before_the_begin,
    atomic_behind_the_end,
    swapped_masks,
    stride_of_another_tensor,
    view_passed_as_a_whole,
    wild_index,
    nan_of_a_quotient,
    nan_in_a_large_launch,
    nan_in_place,
    nan_of_a_masked_row,
    division_by_zero,
    shift_too_far,
    offset_that_wraps,
    broken_promise,
    values_that_are_right,
    nothing_wrong,
)
FAULTLESS = (values_that_are_right, nothing_wrong)


def is_faulty(bug, further):
    """Whether something is reported with these checks beside the usual ones."""
    if bug is number_too_large_for_its_type:
        return "narrowing" in further
    return bug not in FAULTLESS
