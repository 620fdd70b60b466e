"""Grids, blocks and registers that leave the GPU idle. `# <- kind` marks the line."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def sum_all(x, out, n, BLOCK: tl.constexpr):  # <- small-grid
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out, tl.sum(total))


@triton.jit
def sum_parts(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@triton.jit
def iterate(x, out, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):  # <- wave-quantisation
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    y = v
    for _ in range(STEPS):
        y = y * y + v
    tl.store(out + i, y, mask=i < n)


@triton.jit
def row_statistics(x, out, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0.0)  # <- masked-off
    mean = tl.sum(v) / cols
    d = tl.where(c < cols, v - mean, 0.0)
    y = d
    for _ in range(8):
        y = tl.exp(-y * y) * d + y
    tl.store(out + row * cols + c, y, mask=c < cols)


@triton.jit
def many_sums(x, out, n, K: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, K)
    v = tl.load(x + i, mask=i < n, other=0.0)
    acc = v[:, None] * k[None, :]
    for step in range(16):
        acc = acc * acc + tl.sum(acc, axis=1)[:, None] + step  # <- spill
    tl.store(out + i, tl.sum(acc, axis=1), mask=i < n)


@triton.jit
def increment(x, n, BLOCK: tl.constexpr):  # <- launch-bound
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1.0, mask=i < n)


def sums(form, size):
    n = size * size
    x, out = torch.ones(n, device=DEVICE), torch.zeros(1, device=DEVICE)
    if form == "planted":
        return lambda: sum_all[(1,)](x, out, n, BLOCK=1024)
    return lambda: sum_parts[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)


def waves(form, size):
    # One block at a time on each of 132 multiprocessors: 1.5 waves, and as much in 3.
    programs, block = (198, 8192) if form == "planted" else (396, 4096)
    n = 198 * 8192
    x, out = torch.full((n,), 0.5, device=DEVICE), torch.empty(n, device=DEVICE)
    return lambda: iterate[(programs,)](x, out, n, STEPS=256, BLOCK=block, num_warps=16)


def masked(form, size):
    rows, cols = 16 * size, 130
    x = torch.ones((rows, cols), device=DEVICE)
    out = torch.empty((rows, cols), device=DEVICE)
    block = 2048 if form == "planted" else 256
    return lambda: row_statistics[(rows,)](x, out, rows, cols, BLOCK=block)


def spilled(form, size):
    n = size * 32
    x, out = torch.full((n,), 0.5, device=DEVICE), torch.empty(n, device=DEVICE)
    warps = 1 if form == "planted" else 8
    return lambda: many_sums[(n // 64,)](x, out, n, K=256, BLOCK=64, num_warps=warps)


def launches(form, size):
    x = torch.zeros(4096, device=DEVICE)

    def planted():
        for _ in range(200):
            increment[(4,)](x, 4096, BLOCK=1024)

    def better():
        big = torch.zeros(200 * 4096, device=DEVICE)
        increment[(800,)](big, 200 * 4096, BLOCK=1024)

    return planted if form == "planted" else better


CASES = {
    "sum_all": sums,
    "iterate": waves,
    "row_statistics": masked,
    "many_sums": spilled,
    "increment": launches,
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 1024)()
