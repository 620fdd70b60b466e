"""Causes in forms that neither the rules nor the constants of the model were made with.

Written before the rules were looked at. Rules were fixed since for those that they missed.
"""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def move(particles, position, n, dt, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    # An array of structures.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = particles + i * SIZE
    moved = tl.load(at, mask=i < n) + dt * tl.load(at + SIZE // 2, mask=i < n)  # <- uncoalesced
    tl.store(position + i, moved, mask=i < n)


@triton.jit
def move_arrays(x, speed, position, n, dt, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    moved = tl.load(x + i, mask=i < n) + dt * tl.load(speed + i, mask=i < n)
    tl.store(position + i, moved, mask=i < n)


@triton.jit
def row_sums(x, out, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0.0)
    tl.atomic_add(out + row + tl.zeros_like(c), v, mask=c < cols)  # <- atomic-contention


@triton.jit
def row_sums_of_blocks(x, out, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0.0)
    tl.atomic_add(out + row, tl.sum(v, axis=0))


@triton.jit
def rotate(x, angle, out, n, REAL: tl.constexpr, BLOCK: tl.constexpr):
    # Rotary embeddings whose angles somebody wanted exact.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(angle + i, mask=i < n).to(REAL)
    s = 1 - t * t * (1 / 2 - t * t * (1 / 24 - t * t * (1 / 720 - t * t / 40320)))  # <- fp64
    tl.store(out + i, (tl.load(x + i, mask=i < n) * s).to(tl.float32), mask=i < n)


@triton.jit
def add_bias(x, bias, out, n, plane, channels, BLOCK: tl.constexpr):
    # The channel of an element of an NCHW tensor.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = i // plane % channels  # <- integer-division
    tl.store(out + i, tl.load(x + i) + tl.load(bias + channel))


@triton.jit
def add_bias_by_plane(x, bias, out, plane, channels, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    b = tl.load(bias + tl.program_id(0) % channels)
    for first in range(0, plane, BLOCK):
        i = row * plane + first + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i) + b)


@triton.jit
def scale_ragged(x, length, out, longest, BLOCK: tl.constexpr):
    # Sequences of a batch, each in a row as long as the longest.
    row = tl.program_id(0)
    count = tl.load(length + row)
    for first in range(0, longest, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * longest + c, mask=c < count)  # <- masked-off
        tl.store(out + row * longest + c, tl.exp(v) * 2, mask=c < count)


@triton.jit
def scale_to_length(x, length, out, longest, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    count = tl.load(length + row)
    for first in range(0, count, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * longest + c, mask=c < count)
        tl.store(out + row * longest + c, tl.exp(v) * 2, mask=c < count)


@triton.jit
def shift_half(x, out, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    # A view that begins one element later.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + OFFSET + i, mask=i < n)  # <- narrow-access
    tl.store(out + i, v, mask=i < n)


@triton.jit
def matmul(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])  # <- not-pipelined
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


@triton.jit
def matmul_by_hand(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :]).to(tl.float32)
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :]).to(tl.float32)
        acc += tl.sum(x[:, :, None] * y[None, :, :], axis=1)  # <- no-tensor-cores
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


def particles(form, size):
    n, fields = size * size, 16
    structures = torch.ones((n, fields), device=DEVICE)
    x, out = torch.ones(n, device=DEVICE), torch.empty(n, device=DEVICE)
    grid = (n // 1024,)
    if form == "planted":
        return lambda: move[grid](structures, out, n, 0.1, SIZE=fields, BLOCK=1024)
    return lambda: move_arrays[grid](x, x.clone(), out, n, 0.1, BLOCK=1024)


def sums(form, size):
    x, out = torch.ones((size, size), device=DEVICE), torch.zeros(size, device=DEVICE)
    kernel = row_sums if form == "planted" else row_sums_of_blocks
    return lambda: kernel[(size, size // 512)](x, out, size, BLOCK=512)


def rotations(form, size):
    n = size * size
    x, angle = torch.ones(n, device=DEVICE), torch.ones(n, device=DEVICE)
    out, real = torch.empty(n, device=DEVICE), tl.float64 if form == "planted" else tl.float32
    return lambda: rotate[(n // 1024,)](x, angle, out, n, REAL=real, BLOCK=1024)


def biases(form, size):
    images, channels, plane = size // 16, 64, 1024
    n = images * channels * plane
    x, out = torch.ones(n, device=DEVICE), torch.empty(n, device=DEVICE)
    bias = torch.ones(channels, device=DEVICE)
    if form == "planted":
        return lambda: add_bias[(n // 1024,)](x, bias, out, n, plane, channels, BLOCK=1024)
    grid = (images * channels,)
    return lambda: add_bias_by_plane[grid](x, bias, out, plane, channels, BLOCK=1024)


def ragged(form, size):
    rows, longest = 4 * size, 4096
    x, out = torch.ones((rows, longest), device=DEVICE), torch.empty((rows, longest), device=DEVICE)
    length = (torch.arange(rows, device=DEVICE) % 8 * 64 + 64).to(torch.int32)
    length[0] = longest
    kernel = scale_ragged if form == "planted" else scale_to_length
    return lambda: kernel[(rows,)](x, length, out, longest, BLOCK=256)


def shifts(form, size):
    n = size * size * 4
    x = torch.ones(n + 16, dtype=torch.float16, device=DEVICE)
    out = torch.empty(n, dtype=torch.float16, device=DEVICE)
    offset = 1 if form == "planted" else 8
    return lambda: shift_half[(n // 2048,)](x, out, n, OFFSET=offset, BLOCK=2048)


def _halves(size):
    return [torch.ones((size, size), dtype=torch.float16, device=DEVICE) for _ in range(3)]


def stages(form, size):
    a, b, c = _halves(size)
    grid, stages = (size // 128, size // 128), 1 if form == "planted" else 3
    tile = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8}
    return lambda: matmul[grid](a, b, c, size, size, **tile, num_stages=stages)


def by_hand(form, size):
    a, b, c = _halves(size)
    if form == "planted":
        tile = {"BM": 32, "BN": 32, "BK": 16}
        return lambda: matmul_by_hand[(size // 32, size // 32)](a, b, c, size, size, **tile)
    tile = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8}
    return lambda: matmul[(size // 128, size // 128)](a, b, c, size, size, **tile)


CASES = {
    "move": particles,
    "row_sums": sums,
    "rotate": rotations,
    "add_bias": biases,
    "scale_ragged": ragged,
    "shift_half": shifts,
    "matmul_one_stage": stages,
    "matmul_by_hand": by_hand,
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 512)()
