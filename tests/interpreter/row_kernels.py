"""Kernels for `--check row-overrun`; `# ROW name` marks the line that is reported."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def row_sum(x_ptr, out_ptr, rows, n, FLAT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    offs = row * n + cols
    mask = offs < rows * n if FLAT else cols < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)  # ROW row_sum
    tl.store(out_ptr + row, tl.sum(x))


@tkdebug.jit
def row_softmax(x_ptr, out_ptr, size, n, FLAT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * n + tl.arange(0, BLOCK)
    mask = offs < size if FLAT else tl.arange(0, BLOCK) < n
    x = tl.load(x_ptr + offs, mask=mask, other=-float("inf"))  # ROW softmax load
    e = tl.exp(x - tl.max(x))
    tl.store(out_ptr + offs, e / tl.sum(e), mask=mask)  # ROW softmax store


@tkdebug.jit
def row_sum_in_blocks(x_ptr, out_ptr, rows, n, FLAT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = row * n + cols < rows * n if FLAT else cols < n
        total += tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)  # ROW row_sum_in_blocks
    tl.store(out_ptr + row, tl.sum(total))


@tkdebug.jit
def fill_rows(out_ptr, size, n, FLAT: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    offs = tl.program_id(0) * n + cols
    mask = offs < size if FLAT else cols < n
    tl.store(out_ptr + offs, tl.program_id(0), mask=mask)  # ROW fill_rows


@tkdebug.jit
def planes(x_ptr, out_ptr, size, h, w, FLAT: tl.constexpr, BLOCK: tl.constexpr):
    plane, row = tl.program_id(1), tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    offs = (plane * h + row) * w + cols
    mask = offs < size if FLAT else cols < w
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)  # ROW planes
    tl.store(out_ptr + plane * h + row, tl.max(x))


@tkdebug.jit
def tile_softmax(
    x_ptr, out_ptr, rows, n, FLAT: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK: tl.constexpr
):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
    c = tl.arange(0, BLOCK)[None, :]
    mask = r * n + c < rows * n if FLAT else (r < rows) & (c < n)
    x = tl.load(x_ptr + r * n + c, mask=mask, other=-float("inf"))  # ROW tile_softmax
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(out_ptr + r * n + c, e / tl.sum(e, 1)[:, None], mask=(r < rows) & (c < n))


@tkdebug.jit
def tile_of_pairs(x_ptr, out_ptr, rows, n, BLOCK_R: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.arange(0, BLOCK)[None, :]
    offs = r[:, None] * n + c
    pair = tl.load(x_ptr + offs, mask=offs < rows * n, other=0.0)
    tl.store(out_ptr + r, tl.sum(pair, 1), mask=r < rows)


@tkdebug.jit
def column_sums(
    x_ptr, out_ptr, M, N, stride_m, stride_n, SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CHOOSE: tl.constexpr = False,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if SWAP:
        x_ptrs = x_ptr + offs_m[:, None] * stride_n + offs_n[None, :] * stride_m
        x = tl.load(x_ptrs, mask=mask, other=0.0)  # ROW swapped
    else:
        x = tl.load(x_ptr + offs_m[:, None] * stride_m + offs_n[None, :] * stride_n, mask=mask)
    if CHOOSE:
        x = tl.where(offs_n[None, :] < N, x, 0.0)
    tl.atomic_add(out_ptr + offs_n, tl.sum(x, 0), mask=offs_n < N)


@tkdebug.jit
def chosen_columns(x_ptr, out_ptr, M, N, stride_m, stride_n, BLOCK: tl.constexpr):
    m, n = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + n[:, None] * stride_n + m[None, :] * stride_m, mask=m[None, :] < M)
    x = tl.where(n[:, None] < N, x, 0.0)
    tl.store(out_ptr + n, tl.sum(x, 1), mask=n < N)


@tkdebug.jit
def store_tile(
    out_ptr, M, N, stride_m, stride_n, SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m, offs_n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if SWAP:
        place = out_ptr + offs_m[:, None] * stride_n + offs_n[None, :] * stride_m
    else:
        place = out_ptr + offs_m[:, None] * stride_m + offs_n[None, :] * stride_n
    tl.store(place, offs_m[:, None] + offs_n[None, :], mask=mask)  # ROW store_tile


# Right ones


@tkdebug.jit
def copy_flat(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < size
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@tkdebug.jit
def transpose(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    tl.store(out_ptr + offs_n[None, :] * M + offs_m[:, None], x, mask=mask)


@tkdebug.jit
def windows_of_rows(x_ptr, out_ptr, rows, n, count, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    offs = row * n + lanes
    mask = (lanes < WINDOW * n) & (offs < rows * n)
    tl.store(out_ptr + row, tl.sum(tl.load(x_ptr + offs, mask=mask, other=0.0)))


@tkdebug.jit
def windows_as_a_matrix(x_ptr, w_ptr, out_ptr, rows, n, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tl.arange(0, WIDTH)
    at = offs_m[:, None] * n + offs_k[None, :]
    x = tl.load(x_ptr + at, mask=at < rows * n, other=0.0)
    w = tl.load(w_ptr + offs_k)
    tl.store(out_ptr + offs_m, tl.sum(x * w[None, :], 1), mask=offs_m < rows)


@tkdebug.jit
def too_much_then_where(x_ptr, out_ptr, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    offs = row * n + cols
    x = tl.load(x_ptr + offs, mask=offs < rows * n, other=0.0)
    tl.store(out_ptr + row, tl.sum(tl.where(cols < n, x, 0.0)))


@tkdebug.jit
def all_pixels(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    channel = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + channel * size + offs, mask=offs < size, other=0.0)
    tl.store(out_ptr + channel, tl.sum(total))


@tkdebug.jit
def neighbours(x_ptr, out_ptr, h, w, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs + 1, mask=offs + 1 < h * w, other=0.0)
    tl.store(out_ptr + offs, x, mask=offs < h * w)


@tkdebug.jit
def pairs_of_rows(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < size, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(x))


@tkdebug.jit
def all_rows(x_ptr, out_ptr, m, n, FLAT: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in range(m):
        mask = row * n + cols < m * n if FLAT else cols < n
        x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)  # ROW all_rows
        tl.store(out_ptr + row, tl.sum(x, 0))


@tkdebug.jit
def chunk_products(
    a_ptr, b_ptr, out_ptr, L, K, stride_b, stride_s, stride_h, stride_k,
    SWAP: tl.constexpr, B: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Takes a batch of sequences with one head, as (batch, L, 1, K)."""
    batch = tl.program_id(0)
    offs, inner = tl.arange(0, B), tl.arange(0, BLOCK_K)
    a_ptr += batch * stride_b
    b_ptr += batch * stride_b
    a_ptrs = a_ptr + offs[:, None] * stride_s + inner[None, :] * stride_k
    if SWAP:
        a_ptrs = a_ptr + offs[:, None] * stride_k + inner[None, :] * stride_s
    b_ptrs = b_ptr + inner[:, None] * stride_k + offs[None, :] * stride_s
    mask = (offs[:, None] < L) & (inner[None, :] < K)
    a = tl.load(a_ptrs, mask=mask, other=0.0)  # ROW chunk_products
    b = tl.load(b_ptrs, mask=tl.trans(mask), other=0.0)
    out = tl.dot(a, b, input_precision="ieee")
    tl.store(out_ptr + batch * B * B + offs[:, None] * B + offs[None, :], out)


@tkdebug.jit
def filter_taps(x_ptr, out_ptr, h, w, FLAT: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(TAPS):
        for j in tl.static_range(TAPS):
            r, c = row + i - TAPS // 2, cols + j - TAPS // 2
            inside = (r >= 0) & (r < h) & (c >= 0)
            inside &= r * w + c < h * w if FLAT else c < w
            total += tl.load(x_ptr + r * w + c, mask=inside, other=0.0)  # ROW filter_taps
    tl.store(out_ptr + row * w + cols, total, mask=cols < w)
