"""Kernels whose result depends on the size of their blocks, from the line `# parts` on."""

from __future__ import annotations

from collections.abc import Callable

import torch

import tkdebug
import tkdebug.language as tl


def blocks(size: int) -> Callable[[dict[str, int]], tuple[int]]:
    return lambda meta: (-(-size // meta["BLOCK"]),)


@tkdebug.jit
def mean_by_block(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * n + at, at < n, other=0.0))
    mean = total / BLOCK  # parts
    tl.store(y_ptr + row, mean)


def launch_mean_by_block():
    mean_by_block[(3,)](torch.rand(3, 100), torch.empty(3), 100, BLOCK=32)


@tkdebug.jit
def sum_without_rescale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + at, at < n, other=-float("inf"))
        new = tl.maximum(top, tl.max(x))
        total += tl.sum(tl.exp(x - new))  # parts
        top = new
    tl.store(y_ptr + row, total)


def launch_sum_without_rescale():
    x = torch.arange(3 * 128).reshape(3, 128) / 32.0
    sum_without_rescale[(3,)](x, torch.empty(3), 128, BLOCK=32)


@tkdebug.jit
def sum_beyond_the_end(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.sum(tl.load(x_ptr + start + tl.arange(0, BLOCK)))  # parts
    tl.store(y_ptr, total)


def launch_sum_beyond_the_end():
    sum_beyond_the_end[(1,)](torch.rand(256), torch.empty(1), 96, BLOCK=32)


@tkdebug.jit
def prefix_in_block(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, other=0.0)
    prefix = tl.cumsum(x)  # parts
    tl.store(y_ptr + at, prefix, at < n)


def launch_prefix_in_block():
    prefix_in_block[blocks(128)](torch.rand(128), torch.empty(128), 128, BLOCK=32)


@tkdebug.jit
def largest_of_block(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, other=0.0)
    largest = tl.max(x)  # parts
    scaled = x / largest
    tl.store(y_ptr + at, scaled, at < n)


def launch_largest_of_block():
    largest_of_block[blocks(128)](torch.rand(128) + 1, torch.empty(128), 128, BLOCK=32)


@tkdebug.jit
def noise_by_lane(x_ptr, y_ptr, n, seed, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    at = tl.program_id(0) * BLOCK + lane
    x = tl.load(x_ptr + at, at < n, other=0.0)
    noisy = x + lane * 0.5  # parts
    tl.store(y_ptr + at, noisy, at < n)


def launch_noise_by_lane():
    noise_by_lane[blocks(128)](torch.rand(128), torch.empty(128), 128, 3, BLOCK=32)


@tkdebug.jit
def centred_in_block(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, other=0.0)
    middle = tl.sum(x) / 32.0  # parts
    tl.store(y_ptr + at, x - middle, at < n)


def launch_centred_in_block():
    centred_in_block[blocks(128)](torch.rand(128), torch.empty(128), 128, BLOCK=32)


@tkdebug.jit
def decay_by_round(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    state = 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row * n + start + tl.arange(0, BLOCK))
        state = state * 0.5 + tl.sum(x)  # parts
    tl.store(y_ptr + row, state)


def launch_decay_by_round():
    decay_by_round[(2,)](torch.rand(2, 128) + 1, torch.empty(2), 128, BLOCK=32)


@tkdebug.jit
def mean_of_means(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + at, at < n, other=0.0)) / 16.0
    mean = total / tl.cdiv(n, BLOCK)  # parts
    tl.store(y_ptr, mean)


def launch_mean_of_means():
    mean_of_means[(1,)](torch.rand(100) + 1, torch.empty(1), 100, BLOCK=32)


@tkdebug.jit
def program_as_number(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, other=0.0)
    doubled = x * 2.0
    shifted = doubled + program  # parts
    tl.store(y_ptr + at, shifted, at < n)


def launch_program_as_number():
    program_as_number[blocks(128)](torch.rand(128), torch.empty(128), 128, BLOCK=32)


DIVERGENT = (
    (mean_by_block, launch_mean_by_block),
    (sum_without_rescale, launch_sum_without_rescale),
    (sum_beyond_the_end, launch_sum_beyond_the_end),
    (prefix_in_block, launch_prefix_in_block),
    (largest_of_block, launch_largest_of_block),
    (noise_by_lane, launch_noise_by_lane),
    (centred_in_block, launch_centred_in_block),
    (decay_by_round, launch_decay_by_round),
    (mean_of_means, launch_mean_of_means),
    (program_as_number, launch_program_as_number),
)
