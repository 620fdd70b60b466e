"""Kernels without a cause worth a remark: elementwise, rows, reductions, transposes, gathers."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    b = tl.load(y + i, mask=i < n)
    tl.store(out + i, a + b, mask=i < n)


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    y = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    tl.store(out + i, y.to(tl.float16), mask=i < n)


@triton.jit
def swiglu(a, b, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(a + row * cols + c, mask=c < cols, other=0).to(tl.float32)
    y = tl.load(b + row * cols + c, mask=c < cols, other=0)
    tl.store(out + row * cols + c, (x * tl.sigmoid(x)).to(tl.float16) * y, mask=c < cols)


@triton.jit
def softmax(x, out, stride, rows, cols, BLOCK: tl.constexpr):
    start, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(start, rows, step):
        c = tl.arange(0, BLOCK)
        v = tl.load(x + row * stride + c, mask=c < cols, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + row * stride + c, e / tl.sum(e, axis=0), mask=c < cols)


@triton.jit
def rms_norm(x, w, out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / cols + eps)
    g = tl.load(w + c, mask=c < cols)
    tl.store(out + row * cols + c, (v * scale).to(tl.float16) * g, mask=c < cols)


@triton.jit
def layer_norm(x, w, b, out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0.0)
    mean = tl.sum(v) / cols
    d = tl.where(c < cols, v - mean, 0.0)
    y = d * tl.rsqrt(tl.sum(d * d) / cols + eps)
    g = tl.load(w + c, mask=c < cols)
    tl.store(out + row * cols + c, y * g + tl.load(b + c, mask=c < cols), mask=c < cols)


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    keep = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(keep, v / (1 - p), 0.0), mask=i < n)


@triton.jit
def transpose(x, out, rows, cols, TILE: tl.constexpr):
    r = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.program_id(1) * TILE + tl.arange(0, TILE)
    v = tl.load(x + r[:, None] * cols + c[None, :])
    tl.store(out + c[:, None] * rows + r[None, :], tl.trans(v))


@triton.jit
def column_sums(x, out, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    c = tl.program_id(0) * COLS + tl.arange(0, COLS)
    first = tl.program_id(1) * ROWS
    total = tl.zeros((32, COLS), tl.float32)
    for start in range(first, first + ROWS, 32):
        r = start + tl.arange(0, 32)
        total += tl.load(x + r[:, None] * cols + c[None, :])
    tl.atomic_add(out + c, tl.sum(total, axis=0))


@triton.jit
def total_sum(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@triton.jit
def gather_rows(table, index, out, dim: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, dim)
    row = tl.load(index + i)
    v = tl.load(table + row[:, None] * dim + d[None, :])
    tl.store(out + i[:, None] * dim + d[None, :], v)


@triton.jit
def scan_rows(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c)
    tl.store(out + row * cols + c, tl.cumsum(v, axis=0))


@triton.jit
def quantise(x, out, scale, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c).to(tl.float32)
    s = tl.max(tl.abs(v)) / 127.0
    tl.store(scale + row, s)
    tl.store(out + row * cols + c, (v / s).to(tl.int8))


@triton.jit
def cross_entropy(x, target, loss, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top, total = -float("inf"), 0.0
    for first in range(0, cols, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(v))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(v - new))
        top = new
    picked = tl.load(x + row * cols + tl.load(target + row)).to(tl.float32)
    tl.store(loss + row, top + tl.log(total) - picked)


def _rows(rows, cols, dtype=torch.float32):
    return torch.ones((rows, cols), dtype=dtype, device=DEVICE)


def vectors(size):
    n = size * size
    x, y, out = (torch.ones(n, device=DEVICE) for _ in range(3))
    return lambda: add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)


def gelus(size):
    n = size * size
    x, out = (torch.ones(n, dtype=torch.float16, device=DEVICE) for _ in range(2))
    return lambda: gelu[(triton.cdiv(n, 2048),)](x, out, n, BLOCK=2048)


def swiglus(size):
    x, y, out = (_rows(size, 4096, torch.float16) for _ in range(3))
    return lambda: swiglu[(size,)](x, y, out, 4096, BLOCK=4096, num_warps=8)


def softmaxes(size):
    x, out = _rows(4 * size, 1024), _rows(4 * size, 1024)
    return lambda: softmax[(132 * 8,)](x, out, 1024, 4 * size, 1024, BLOCK=1024, num_warps=8)


def rms_norms(size):
    x, out = _rows(size, 4096, torch.float16), _rows(size, 4096, torch.float16)
    w = torch.ones(4096, dtype=torch.float16, device=DEVICE)
    return lambda: rms_norm[(size,)](x, w, out, 4096, 1e-5, BLOCK=4096, num_warps=8)


def layer_norms(size):
    x, out = _rows(size, 2048), _rows(size, 2048)
    w, b = torch.ones(2048, device=DEVICE), torch.ones(2048, device=DEVICE)
    return lambda: layer_norm[(size,)](x, w, b, out, 2048, 1e-5, BLOCK=2048, num_warps=8)


def dropouts(size):
    n = size * size
    x, out = torch.ones(n, device=DEVICE), torch.ones(n, device=DEVICE)
    return lambda: dropout[(triton.cdiv(n, 1024),)](x, out, n, 0.5, 7, BLOCK=1024)


def transposes(size):
    x, out = _rows(size, size), _rows(size, size)
    grid = (size // 64, size // 64)
    return lambda: transpose[grid](x, out, size, size, TILE=64, num_warps=8)


def sums_of_columns(size):
    x, out = _rows(size, size), torch.zeros(size, device=DEVICE)
    grid = (size // 128, size // 128)
    return lambda: column_sums[grid](x, out, size, size, ROWS=128, COLS=128)


def sums(size):
    n = size * size
    x, out = torch.ones(n, device=DEVICE), torch.ones(n // 4096, device=DEVICE)
    return lambda: total_sum[(n // 4096,)](x, out, n, BLOCK=4096)


def gathers(size):
    table = _rows(16 * size, 64, torch.float16)
    index = torch.randperm(16 * size, device=DEVICE).to(torch.int32)
    out = torch.empty_like(table)
    return lambda: gather_rows[(size // 4,)](table, index, out, dim=64, BLOCK=64)


def scans(size):
    x, out = _rows(4 * size, 1024), _rows(4 * size, 1024)
    return lambda: scan_rows[(4 * size,)](x, out, 1024, BLOCK=1024)


def quantised(size):
    x = _rows(size, 4096, torch.float16)
    out, scale = _rows(size, 4096, torch.int8), torch.empty(size, device=DEVICE)
    return lambda: quantise[(size,)](x, out, scale, 4096, BLOCK=4096, num_warps=8)


def losses(size):
    x = _rows(size, 8192, torch.float16)
    target = torch.zeros(size, dtype=torch.int64, device=DEVICE)
    loss = torch.empty(size, device=DEVICE)
    return lambda: cross_entropy[(size,)](x, target, loss, 8192, BLOCK=4096, num_warps=8)


CASES = {
    "add": vectors,
    "gelu": gelus,
    "swiglu": swiglus,
    "softmax": softmaxes,
    "rms_norm": rms_norms,
    "layer_norm": layer_norms,
    "dropout": dropouts,
    "transpose": transposes,
    "column_sums": sums_of_columns,
    "total_sum": sums,
    "gather_rows": gathers,
    "scan_rows": scans,
    "quantise": quantised,
    "cross_entropy": losses,
}

if __name__ == "__main__":
    for case in CASES.values():
        case(512)()
