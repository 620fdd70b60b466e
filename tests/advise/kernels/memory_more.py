"""More accesses that cost what they need not, planted after the rules were written."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def widen_bytes(x, out, cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + c)  # <- narrow-access
    tl.store(out + row * stride + c, v)


@triton.jit
def store_columns(x, out, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    for first in range(0, cols, BLOCK):
        v = tl.load(x + row * cols + first + c)
        tl.store(out + (first + c) * rows + row, v)  # <- uncoalesced


@triton.jit
def store_tiles(x, out, rows, cols, TILE: tl.constexpr):
    r = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.program_id(1) * TILE + tl.arange(0, TILE)
    v = tl.load(x + r[:, None] * cols + c[None, :])
    tl.store(out + c[None, :] * rows + r[:, None], v)


@triton.jit
def chase(links, out, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = i
    for _ in range(STEPS):
        at = tl.load(links + at)  # <- dependent-loads
    tl.store(out + i, at)


@triton.jit
def embed(table, index, out, rows, dim, BLOCK: tl.constexpr):
    # One element of each row at a time: 4 bytes of every sector.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(index + i)
    for d in range(dim):
        v = tl.load(table + row * dim + d)  # <- gather
        tl.store(out + d * rows + i, v)


@triton.jit
def embed_rows(table, index, out, rows, dim: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, dim)
    row = tl.load(index + i)
    v = tl.load(table + row[:, None] * dim + d[None, :])
    tl.store(out + d[None, :] * rows + i[:, None], v)


@triton.jit
def count_groups(group, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(group + i, mask=i < n, other=0)
    tl.atomic_add(counts + g, 1.0, mask=i < n)  # <- atomic-contention


@triton.jit
def apply_weights(x, w, out, n, rows, K: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, K)
    for row in range(rows):
        weights = tl.load(w + k[:, None] * n + c[None, :])  # <- redundant-load
        v = tl.load(x + row * n + c)
        tl.store(out + row * n + c, v * tl.sum(weights, axis=0))


@triton.jit
def apply_weights_once(x, w, out, n, rows, K: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, K)
    weights = tl.sum(tl.load(w + k[:, None] * n + c[None, :]), axis=0)
    for row in range(rows):
        v = tl.load(x + row * n + c)
        tl.store(out + row * n + c, v * weights)


def bytes_(form, size):
    rows, cols = 4 * size, 2048
    stride = 2049 if form == "planted" else 2064
    x = torch.ones(rows * stride, dtype=torch.int8, device=DEVICE)
    out = torch.empty_like(x)
    return lambda: widen_bytes[(rows,)](x, out, cols, stride, BLOCK=2048)


def columns(form, size):
    x = torch.ones((size, size), device=DEVICE)
    out = torch.empty((size, size), device=DEVICE)
    if form == "planted":
        return lambda: store_columns[(size,)](x, out, size, size, BLOCK=512)
    return lambda: store_tiles[(size // 64, size // 64)](x, out, size, size, TILE=64)


def chases(form, size):
    # The better form follows links that each stand for eight.
    n = 256 * size
    step, steps = (256, 64) if form == "planted" else (2048, 8)
    links = ((torch.arange(n, device=DEVICE) + step) % n).to(torch.int32)
    out = torch.empty(n, dtype=torch.int32, device=DEVICE)
    return lambda: chase[(n // 256,)](links, out, n, STEPS=steps, BLOCK=256)


def embeddings(form, size):
    rows, dim = 64 * size, 32
    table = torch.ones((rows, dim), device=DEVICE)
    index = torch.randperm(rows, device=DEVICE).to(torch.int32)
    out = torch.empty((dim, rows), device=DEVICE)
    if form == "planted":
        return lambda: embed[(rows // 256,)](table, index, out, rows, dim, BLOCK=256)
    return lambda: embed_rows[(rows // 64,)](table, index, out, rows, dim=dim, BLOCK=64)


def groups(form, size):
    n = size * size
    count = 4 if form == "planted" else 1 << 18
    group = (torch.arange(n, device=DEVICE) * 977 % count).to(torch.int32)
    counts = torch.zeros(count, device=DEVICE)
    return lambda: count_groups[(n // 1024,)](group, counts, n, BLOCK=1024)


def weights(form, size):
    n, rows, k = 128 * size, 16, 32
    x, w = torch.ones((rows, n), device=DEVICE), torch.ones((k, n), device=DEVICE)
    out = torch.empty((rows, n), device=DEVICE)
    kernel = apply_weights if form == "planted" else apply_weights_once
    return lambda: kernel[(n // 128,)](x, w, out, n, rows, K=k, BLOCK=128)


CASES = {
    "widen_bytes": bytes_,
    "store_columns": columns,
    "chase": chases,
    "embed": embeddings,
    "count_groups": groups,
    "apply_weights": weights,
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 512)()
