"""Inputs of which much is never read, by as many reads as would have read them whole."""

import pytest
import torch
from differential import load_kernel, run

from tkdebug.knobs import scope

SOURCE = """
import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def kernel(x_ptr, w_ptr, s_ptr, out_ptr, M, N, K, G: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    rows, cols = pid_m * BM + i, pid_n * BN + j
    acc = tl.zeros((BM, BN), tl.float32)
{body}
    out = out_ptr + rows[:, None] * N + cols[None, :]
    tl.store(out, acc, mask=(rows[:, None] < M) & (cols[None, :] < N))
"""
PRODUCT = """
    for kk in range(0, K, BK):
        x = tl.load(x_ptr + rows[:, None] * K + kk + k[None, :], mask=rows[:, None] < M, other=0.0)
        w = tl.load(w_ptr + {w}, {mask})
        acc += tl.dot(x, tl.trans(w)) * {s}
"""
WITHOUT = dict(w="cols[:, None] * K + kk + k[None, :]", mask="mask=cols[:, None] < N", s="1.0")
PER_GROUP = "tl.load(s_ptr + {})"
# What is changed in the right product, and the sizes: M, N, K, group, BM, BN, BK.
BUGS = {
    "the other program's columns": (
        dict(w="(pid_m * BN + j)[:, None] * K + kk + k[None, :]",
             mask="mask=(pid_m * BN + j)[:, None] < N"),
        (32, 80, 16, 1, 16, 16, 16), "w_ptr"),
    "columns by the other block": (
        dict(w="(pid_n * BM + j)[:, None] * K + kk + k[None, :]",
             mask="mask=(pid_n * BM + j)[:, None] < N"),
        (16, 128, 16, 1, 16, 32, 16), "w_ptr"),
    "columns by the other block, no mask": (
        dict(w="(pid_n * BM + j)[:, None] * K + kk + k[None, :]", mask=""),
        (16, 128, 32, 1, 16, 32, 16), "w_ptr"),
    "columns by half a block": (
        dict(w="(pid_n * (BN // 2) + j)[:, None] * K + kk + k[None, :]",
             mask="mask=(pid_n * (BN // 2) + j)[:, None] < N"),
        (16, 160, 16, 1, 16, 32, 16), "w_ptr"),
    "depth by half a block": (
        dict(w="cols[:, None] * K + kk // 2 + k[None, :]", mask="mask=cols[:, None] < N"),
        (16, 16, 160, 1, 16, 16, 32), "w_ptr"),
    "group three times too large": (
        dict(s=PER_GROUP.format("kk // (3 * G)")), (16, 16, 96, 16, 16, 16, 16), "s_ptr"),
    "group of rounds, not of elements": (
        dict(s=PER_GROUP.format("kk // BK // 3")), (16, 16, 192, 32, 16, 16, 32), "s_ptr"),
    "scales of every column": (
        dict(s=PER_GROUP.format("pid_n * (K // G) + kk // (2 * G)")),
        (16, 48, 128, 16, 16, 16, 16), "s_ptr"),
    "twice the group, of a block half as large": (
        dict(s=PER_GROUP.format("kk // (4 * G)")), (16, 16, 320, 32, 16, 16, 16), "s_ptr"),
    "scale by an integer root": (
        dict(s=PER_GROUP.format("(kk // G) * (kk // G) // 16")), (16, 16, 112, 16, 16, 16, 16),
        "s_ptr"),
}  # fmt: skip
MEANT = {
    "whole": ({}, (32, 80, 32, 1, 16, 16, 16)),
    "a scale for each group": (dict(s=PER_GROUP.format("kk // G")), (16, 16, 96, 16, 16, 16, 16)),
    "a scale for each group and column": (
        dict(s=PER_GROUP.format("pid_n * (K // G) + kk // G")), (16, 48, 96, 32, 16, 16, 16)),
    "the first half of the columns": (
        dict(w="(cols // 2 * 0 + j)[:, None] * K + kk + k[None, :]", mask="mask=cols[:, None] < N"),
        (16, 64, 16, 1, 16, 16, 16)),
    "half of the depth, as rotations do": (
        dict(w="cols[:, None] * K + (kk % (K // 2)) + k[None, :]", mask="mask=cols[:, None] < N"),
        (16, 16, 64, 1, 16, 16, 16)),
    "every second element": (
        dict(w="cols[:, None] * K + kk + (k * 2 % BK)[None, :]", mask="mask=cols[:, None] < N"),
        (16, 16, 64, 1, 16, 16, 16)),
    "a cache with room": ("room", (16, 16, 64, 1, 16, 16, 16)),
    "scales with room": ("scales", (16, 16, 96, 16, 16, 16, 16)),
    "one scale": (dict(s=PER_GROUP.format("0")), (16, 16, 96, 16, 16, 16, 16)),
    "heads that share": (dict(s=PER_GROUP.format("pid_m // 2")), (64, 16, 16, 8, 16, 16, 16)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def checked():
    with scope(checks=("coverage",)):
        yield


def launched(tmp_path, change, sizes):
    M, N, K, G, BM, BN, BK = sizes
    room = change if isinstance(change, str) else ""
    change = {} if room == "room" else dict(s=PER_GROUP.format("kk // G")) if room else change
    body = PRODUCT.format(**{**WITHOUT, **change})
    source = SOURCE.replace("{body}", body)
    x, w = torch.ones(M, K), torch.ones(2 * N if room == "room" else N, K)
    count = K // G * (N // BN if "pid_n *" in body.partition("dot")[2] else 1)
    count = {"heads that share": 2}.get(room, 2 * count if room == "scales" else count)
    if "pid_m //" in body:
        count = 2
    grid = (-(-M // BM), -(-N // BN))
    arguments = (x, w, torch.ones(count), torch.zeros(M, N), M, N, K)
    return run(load_kernel(tmp_path, source), grid, *arguments, G=G, BM=BM, BN=BN, BK=BK)


@pytest.mark.parametrize("name", BUGS)
def test_input_of_which_much_is_read_again_and_the_rest_never(tmp_path, name):
    change, sizes, tensor = BUGS[name]
    (fault,) = launched(tmp_path, change, sizes)
    assert (fault.kind, fault.tensor) == ("coverage", tensor)
    assert "are never read" in fault.message


@pytest.mark.parametrize("name", MEANT)
def test_inputs_of_which_a_part_is_meant_are_silent(tmp_path, name):
    assert launched(tmp_path, *MEANT[name]) == []
