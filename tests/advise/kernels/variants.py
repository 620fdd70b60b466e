"""Two further kernels for each cause of `held_out.py` that had no remark."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def attend(q, k, v, out, n, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm, rd = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    queries = tl.load(q + rm[:, None] * D + rd[None, :])
    acc, total = tl.zeros((BM, D), tl.float32), tl.zeros((BM,), tl.float32)
    for first in range(0, n, BN):
        at = (first + tl.arange(0, BN))[:, None] * D + rd[None, :]
        weights = tl.exp2(tl.dot(queries, tl.load(k + at).T))  # <- not-pipelined
        total += tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(tl.float16), tl.load(v + at), acc)
    tl.store(out + rm[:, None] * D + rd[None, :], acc / total[:, None])


@triton.jit
def gram(x, out, n, k, BM: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BM + tl.arange(0, BM)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BM), tl.float32)
    for first in tl.range(0, k, BK, num_stages=STAGES):
        a = tl.load(x + rm[:, None] * k + (first + rk)[None, :])  # <- not-pipelined
        b = tl.load(x + rn[:, None] * k + (first + rk)[None, :])
        acc = tl.dot(a, b.T, acc)
    tl.store(out + rm[:, None] * n + rn[None, :], acc)


@triton.jit
def bias_gradient(x, out, cols, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BN + tl.arange(0, BN)
    v = tl.load(x + r[:, None] * cols + c[None, :])
    to = out + tl.zeros_like(r)[:, None] + c[None, :]
    tl.atomic_add(to, v)  # <- atomic-contention


@triton.jit
def bias_gradient_by_tile(x, out, cols, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BN + tl.arange(0, BN)
    v = tl.load(x + r[:, None] * cols + c[None, :])
    tl.atomic_add(out + c, tl.sum(v, axis=0))


@triton.jit
def largest_of_segments(x, out, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out + i // LENGTH, tl.load(x + i))  # <- atomic-contention


@triton.jit
def largest_by_segment(x, out, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    s = tl.program_id(0) * (BLOCK // LENGTH) + tl.arange(0, BLOCK // LENGTH)
    v = tl.load(x + s[:, None] * LENGTH + tl.arange(0, LENGTH)[None, :])
    tl.atomic_max(out + s, tl.max(v, axis=1))


@triton.jit
def normalise(x, out, COLS: tl.constexpr, REAL: tl.constexpr):
    c = tl.program_id(0) * COLS + tl.arange(0, COLS)
    v = tl.load(x + c).to(REAL)
    spread = v - tl.sum(v, axis=0) / COLS
    scale = tl.sqrt(tl.sum(spread * spread, axis=0) / COLS)
    gate = 1 / (1 + tl.exp(-spread / scale))  # <- fp64
    tl.store(out + c, (spread * gate).to(tl.float32))


@triton.jit
def decay(x, out, STEPS: tl.constexpr, REAL: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i).to(REAL)
    for _ in range(STEPS):
        v = v - v * v * (1 - v) * 0.001  # <- fp64
    tl.store(out + i, v.to(tl.float32))


@triton.jit
def scale_experts(x, count, out, capacity, BLOCK: tl.constexpr):
    expert = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    on = i < tl.load(count + expert)
    v = tl.load(x + expert * capacity + i, mask=on)  # <- masked-off
    tl.store(out + expert * capacity + i, tl.exp(v) / (1 + tl.exp(v)), mask=on)


@triton.jit
def small_batch(x, out, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.arange(0, BM)[:, None]
    c = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]
    v = tl.load(x + r * cols + c, mask=r < rows)  # <- masked-off
    tl.store(out + r * cols + c, tl.exp(v * v) + tl.log(1 + v * v), mask=r < rows)


@triton.jit
def from_codes(x, out, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + OFFSET + i)  # <- narrow-access
    tl.store(out + i, v ^ 0x55)


@triton.jit
def add_padded(x, y, out, stride, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + c) + tl.load(y + row * stride + c)  # <- narrow-access
    tl.store(out + row * cols + c, v)


def attention(form, size):
    q, k, v = (torch.ones((size, 64), dtype=torch.float16, device=DEVICE) for _ in range(3))
    out, stages = torch.empty((size, 64), device=DEVICE), 1 if form == "planted" else 3
    tile = {"D": 64, "BM": 128, "BN": 64, "num_warps": 4}
    return lambda: attend[(size // 128,)](q, k, v, out, size, **tile, num_stages=stages)


def grams(form, size):
    x = torch.ones((size, size), dtype=torch.float16, device=DEVICE)
    out = torch.empty((size, size), device=DEVICE)
    tile = {"BM": 128, "BK": 64, "STAGES": 1 if form == "planted" else 3, "num_warps": 8}
    return lambda: gram[(size // 128, size // 128)](x, out, size, size, **tile)


def gradients(form, size):
    x, out = torch.ones((size, size), device=DEVICE), torch.zeros(size, device=DEVICE)
    kernel = bias_gradient if form == "planted" else bias_gradient_by_tile
    return lambda: kernel[(size // 64, size // 64)](x, out, size, BM=64, BN=64)


def segments(form, size):
    x = torch.ones(size * size, dtype=torch.int32, device=DEVICE)
    out = torch.zeros(size * size // 64, dtype=torch.int32, device=DEVICE)
    kernel = largest_of_segments if form == "planted" else largest_by_segment
    return lambda: kernel[(size * size // 1024,)](x, out, LENGTH=64, BLOCK=1024)


def norms(form, size):
    x = torch.arange(size * 1024, dtype=torch.float32, device=DEVICE).reshape(size, 1024) % 7
    out, real = torch.empty_like(x), tl.float64 if form == "planted" else tl.float32
    return lambda: normalise[(size,)](x, out, COLS=1024, REAL=real)


def decays(form, size):
    x, out = torch.ones(size * size, device=DEVICE), torch.empty(size * size, device=DEVICE)
    real = tl.float64 if form == "planted" else tl.float32
    return lambda: decay[(size * size // 512,)](x, out, STEPS=16, REAL=real, BLOCK=512)


def experts(form, size):
    number, capacity = size // 4, 4096
    x, out = (torch.ones((number, capacity), device=DEVICE) for _ in range(2))
    count = (torch.arange(number, device=DEVICE) % 8 * 48 + 48).to(torch.int32)
    grid = (number, capacity // 1024 if form == "planted" else 1)  # none has more than 384
    return lambda: scale_experts[grid](x, count, out, capacity, BLOCK=1024)


def batches(form, size):
    x, out = (torch.ones((4, size * 16), device=DEVICE) for _ in range(2))
    rows = 64 if form == "planted" else 4
    return lambda: small_batch[(size // 4,)](x, out, 4, size * 16, BM=rows, BN=64)


def codes(form, size):
    n = size * size * 4
    x = torch.ones(n + 16, dtype=torch.int8, device=DEVICE)
    out = torch.empty(n, dtype=torch.int8, device=DEVICE)
    offset = 3 if form == "planted" else 16
    return lambda: from_codes[(n // 4096,)](x, out, n, OFFSET=offset, BLOCK=4096)


def padded(form, size):
    stride = 2049 if form == "planted" else 2064
    x, y = (torch.ones((size, stride), dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    out = torch.empty((size, 2048), dtype=torch.bfloat16, device=DEVICE)
    return lambda: add_padded[(size, 2)](x, y, out, stride, 2048, BLOCK=1024)


CASES = {
    "attend": attention,
    "gram": grams,
    "bias_gradient": gradients,
    "largest_of_segments": segments,
    "normalise": norms,
    "decay": decays,
    "scale_experts": experts,
    "small_batch": batches,
    "from_codes": codes,
    "add_padded": padded,
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 512)()
