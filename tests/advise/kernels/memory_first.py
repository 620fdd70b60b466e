"""Accesses that move more than they need. A comment `# <- kind` marks the line with the cause.

Each case is a pair: the planted form, and one without the cause that computes the same.
`run(name, form)` launches one of them on fresh tensors.
"""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def column_sum(x, out, rows, cols, BLOCK: tl.constexpr):
    col = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, rows, BLOCK):
        r = first + tl.arange(0, BLOCK)
        total += tl.load(x + r * cols + col, mask=r < rows, other=0.0)  # <- uncoalesced
    tl.store(out + col, tl.sum(total))


@triton.jit
def column_sum_by_tiles(x, out, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    c = tl.program_id(0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for first in range(0, rows, ROWS):
        r = first + tl.arange(0, ROWS)
        total += tl.load(x + r[:, None] * cols + c[None, :], mask=r[:, None] < rows, other=0.0)
    tl.store(out + c, tl.sum(total, axis=0))


@triton.jit
def copy_odd_rows(x, out, cols, stride_x, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride_x + c, mask=c < cols)  # <- narrow-access
    tl.store(out + row * stride_out + c, v, mask=c < cols)


@triton.jit
def interleaved_norm(points, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(points + i * 16, mask=i < n)  # <- uncoalesced
    tl.store(out + i, x * x, mask=i < n)


@triton.jit
def planar_norm(points, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(points + i, mask=i < n)
    tl.store(out + i, x * x, mask=i < n)


@triton.jit
def gather_elements(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(index + i, mask=i < n)
    tl.store(out + i, tl.load(x + where, mask=i < n), mask=i < n)  # <- gather


@triton.jit
def histogram_one_bin(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.atomic_add(out + tl.zeros((BLOCK,), tl.int32), v, mask=i < n)  # <- atomic-contention


@triton.jit
def sum_then_add(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.atomic_add(out, tl.sum(v))


def _matrix(rows, cols, dtype=torch.float32):
    return torch.ones((rows, cols), dtype=dtype, device=DEVICE)


def column_sums(form, size):
    rows, cols = size, size
    x, out = _matrix(rows, cols), torch.empty(cols, device=DEVICE)
    if form == "planted":
        return lambda: column_sum[(cols,)](x, out, rows, cols, BLOCK=256)
    return lambda: column_sum_by_tiles[(cols // 32,)](x, out, rows, cols, ROWS=64, COLS=32)


def odd_rows(form, size):
    rows, cols = 4 * size, 1024
    stride = 1027 if form == "planted" else 1032
    x = torch.ones(rows * stride, dtype=torch.float16, device=DEVICE)
    out = torch.empty(rows * stride, dtype=torch.float16, device=DEVICE)
    return lambda: copy_odd_rows[(rows,)](x, out, cols, stride, stride, BLOCK=1024, num_warps=4)


def norms(form, size):
    n = size * size // 8
    points = torch.ones(n * 16, device=DEVICE)
    out = torch.empty(n, device=DEVICE)
    kernel = interleaved_norm if form == "planted" else planar_norm
    return lambda: kernel[(triton.cdiv(n, 1024),)](points, out, n, BLOCK=1024)


def gathers(form, size):
    n = size * size
    x, out = torch.ones(n, device=DEVICE), torch.empty(n, device=DEVICE)
    index = torch.arange(n, dtype=torch.int32, device=DEVICE)
    if form == "planted":
        index = (index.to(torch.int64) * 1_000_003 % n).to(torch.int32)
    return lambda: gather_elements[(triton.cdiv(n, 1024),)](x, index, out, n, BLOCK=1024)


def contended(form, size):
    n = size * size
    x, out = torch.ones(n, device=DEVICE), torch.zeros(1, device=DEVICE)
    kernel = histogram_one_bin if form == "planted" else sum_then_add
    return lambda: kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)


CASES = {
    "column_sum": column_sums,
    "copy_odd_rows": odd_rows,
    "interleaved_norm": norms,
    "gather_elements": gathers,
    "histogram_one_bin": contended,
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 1024)()
