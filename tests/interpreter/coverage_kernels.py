"""Kernels for `--check coverage`: with a flag each leaves out, or adds up twice, what it means.

`# GAP name` marks the line that is reported.
"""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, 2 * tl.load(x_ptr + offs, mask=mask), mask=mask)  # GAP scale


@tkdebug.jit
def partial_sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)  # GAP partial_sums
    tl.store(out_ptr + pid, tl.sum(x))


@tkdebug.jit
def row_sums(x_ptr, out_ptr, n, stride, STOP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n - STOP, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0.0)  # GAP row_sums
    tl.store(out_ptr + row, tl.sum(total))


@tkdebug.jit
def row_sums_in_rounds(x_ptr, out_ptr, n, stride, CEIL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    rounds = tl.cdiv(n, BLOCK) if CEIL else n // BLOCK
    for i in range(rounds):
        mask = cols < n - i * BLOCK
        total += tl.load(x_ptr + row * stride + i * BLOCK + cols, mask=mask)  # GAP rounds
    tl.store(out_ptr + row, tl.sum(total))


@tkdebug.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    MASKED: tl.constexpr, CEIL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_m % M)[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + (offs_n % N)[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K) if CEIL else K // BLOCK_K):
        if MASKED:
            a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)  # GAP masked a
            b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)  # GAP masked b
        else:
            a = tl.load(a_ptrs)  # GAP a
            b = tl.load(b_ptrs)  # GAP b
        acc += tl.dot(a, b)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@tkdebug.jit
def matmul_of_blocks(
    a_ptr, b_ptr, c_ptr, M, N, K, SCALE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK_M * SCALE
    start_n = tl.program_id(1) * BLOCK_N
    a_block = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (start_m, 0), (BLOCK_M, BLOCK_K), (1, 0))
    b_block = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, start_n), (BLOCK_K, BLOCK_N), (1, 0))
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_block, boundary_check=(0, 1))  # GAP block a
        b = tl.load(b_block, boundary_check=(0, 1))  # GAP block b
        acc += tl.dot(a, b)
        a_block = tl.advance(a_block, (0, BLOCK_K))
        b_block = tl.advance(b_block, (BLOCK_K, 0))
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = start_n + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@tkdebug.jit
def matmul_of_descriptors(
    a_desc, b_desc, c_ptr, M, N, K, SWAP: tl.constexpr, CEIL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    start_m, start_n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K) if CEIL else K // BLOCK_K):
        if SWAP:
            a = a_desc.load([k * BLOCK_K, start_m])  # GAP swapped descriptor
        else:
            a = a_desc.load([start_m, k * BLOCK_K])  # GAP descriptor a
        acc += tl.dot(a, b_desc.load([k * BLOCK_K, start_n]))  # GAP descriptor b
    offs_m, offs_n = start_m + tl.arange(0, BLOCK_M), start_n + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


@tkdebug.jit
def split_sum(x_ptr, out_ptr, n, part, BOUND: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0) * part
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, part, BLOCK):
        offs = start + i + tl.arange(0, BLOCK)
        mask = offs < n
        if BOUND:
            mask = mask & (offs < start + part)
        total += tl.load(x_ptr + offs, mask=mask, other=0.0)  # GAP split_sum
    tl.atomic_add(out_ptr, tl.sum(total))


@tkdebug.jit
def split_k(
    a_ptr, b_ptr, c_ptr, M, N, K, part, EXTRA: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    start = tl.program_id(1) * part
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(start, tl.minimum(start + part + EXTRA, K), BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        a = tl.load(a_ptr + offs_m[:, None] * K + offs_k[None, :], mask=a_mask, other=0.0)  # GAP sa
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n[None, :], mask=b_mask, other=0.0)  # GAP sb
        acc += tl.dot(a, b)
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.atomic_add(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=c_mask)


@tkdebug.jit
def softmax(x_ptr, out_ptr, n, SHORT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n - SHORT, other=-1e30)  # GAP softmax
    e = tl.exp(x - tl.max(x))
    tl.store(out_ptr + row * n + cols, e / tl.sum(e), mask=cols < n)


# Right ones


@tkdebug.jit
def sum_of_steps(x_ptr, out_ptr, total_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    before = tl.load(x_ptr + offs, mask=offs < n - 1, other=0.0)
    after = tl.load(out_ptr + offs + 1, mask=offs < n - 1, other=0.0)
    tl.store(total_ptr, tl.sum(after * before))
    tl.store(out_ptr + offs, before, mask=offs < n)


@tkdebug.jit
def all_but_the_last(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n - 1, other=0.0)
    tl.store(out_ptr + offs, x, mask=offs < n)


@tkdebug.jit
def sum_of_all_but_the_last(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + offs, mask=offs < n - 1, other=0.0)))


@tkdebug.jit
def embedding(index_ptr, table_ptr, out_ptr, n, d, BLOCK: tl.constexpr):
    row = tl.load(index_ptr + tl.program_id(0))
    cols = tl.arange(0, BLOCK)
    x = tl.load(table_ptr + row * d + cols, mask=cols < d)
    tl.store(out_ptr + tl.program_id(0) * d + cols, x, mask=cols < d)


@tkdebug.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    BLOCK: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK
    offs_m, offs_d = start_m + tl.arange(0, BLOCK), tl.arange(0, D)
    q = tl.load(q_ptr + offs_m[:, None] * D + offs_d[None, :], mask=offs_m[:, None] < M, other=0.0)
    low = tl.zeros((BLOCK,), tl.float32) - 1e30
    total, acc = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK, D), tl.float32)
    first = 0
    last = N
    if CAUSAL:
        last = tl.minimum(N, start_m + BLOCK)
    if WINDOW:
        first = tl.maximum(0, start_m - WINDOW) // BLOCK * BLOCK
    for start in range(first, last, BLOCK):
        offs_n = start + tl.arange(0, BLOCK)
        inside = offs_n[:, None] < N
        k = tl.load(k_ptr + offs_n[:, None] * D + offs_d[None, :], mask=inside, other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * D + offs_d[None, :], mask=inside, other=0.0)
        s = tl.where(offs_n[None, :] < N, tl.dot(q, tl.trans(k)), -1e30)
        if CAUSAL:
            s = tl.where(offs_m[:, None] >= offs_n[None, :], s, -1e30)
        high = tl.maximum(low, tl.max(s, 1))
        p = tl.exp(s - high[:, None])
        total = total * tl.exp(low - high) + tl.sum(p, 1)
        acc = acc * tl.exp(low - high)[:, None] + tl.dot(p, v)
        low = high
    out = out_ptr + offs_m[:, None] * D + offs_d[None, :]
    tl.store(out, acc / total[:, None], mask=offs_m[:, None] < M)


@tkdebug.jit
def scale_part(x_ptr, out_ptr, start, n, BLOCK: tl.constexpr):
    offs = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, 2 * tl.load(x_ptr + offs, mask=mask), mask=mask)


@tkdebug.jit
def pool(x_ptr, out_ptr, n, n_out, BLOCK: tl.constexpr):
    out = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x_ptr + 2 * out, mask=(out < n_out) & (2 * out < n), other=0.0)
    right = tl.load(x_ptr + 2 * out + 1, mask=(out < n_out) & (2 * out + 1 < n), other=0.0)
    tl.store(out_ptr + out, tl.maximum(left, right), mask=out < n_out)


@tkdebug.jit
def frames(x_ptr, out_ptr, n, hop, WINDOW: tl.constexpr):
    offs = tl.program_id(0) * hop + tl.arange(0, WINDOW)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(x * x))


@tkdebug.jit
def persistent(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offs = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@tkdebug.jit
def main_and_tail(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    whole = n // BLOCK
    offs = tl.arange(0, BLOCK)
    for i in range(whole):
        total += tl.load(x_ptr + i * BLOCK + offs)
    rest = whole * BLOCK + offs
    total += tl.load(x_ptr + rest, mask=rest < n, other=0.0)
    tl.store(out_ptr, tl.sum(total))


@tkdebug.jit
def varlen_sum(x_ptr, ends_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    start, end = tl.load(ends_ptr + pid), tl.load(ends_ptr + pid + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(start, end, BLOCK):
        offs = at + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offs, mask=(offs < end) & (offs < n), other=0.0)
    tl.store(out_ptr + pid, tl.sum(total))


@tkdebug.jit
def states_before_chunks(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    state = tl.zeros((BLOCK,), tl.float32)
    tl.store(out_ptr + offs, state)
    for chunk in range(tl.cdiv(n, BLOCK) - 1):
        state += tl.load(x_ptr + chunk * BLOCK + offs, mask=chunk * BLOCK + offs < n)
        tl.store(out_ptr + (chunk + 1) * BLOCK + offs, state)


@tkdebug.jit
def gradient_of_filter(x_ptr, dy_ptr, dw_ptr, n, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + offs, mask=offs < n - TAPS + 1, other=0.0)
    for tap in range(TAPS):
        x = tl.load(x_ptr + offs + tap, mask=offs + tap < n, other=0.0)
        tl.atomic_add(dw_ptr + tap, tl.sum(x * dy))


@tkdebug.jit
def gate(x_ptr, out_ptr, n, half, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * n + cols, mask=cols < half)
    tl.store(out_ptr + row * half + cols, x, mask=cols < half)


@tkdebug.jit
def bias_sum(x_ptr, bias_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    bias = tl.load(bias_ptr + tl.arange(0, 16))
    tl.atomic_add(out_ptr, tl.sum(x) + tl.sum(bias))


@tkdebug.jit
def patches(x_ptr, out_ptr, H, W, PATCH: tl.constexpr):
    across = W // PATCH
    row, column = tl.program_id(0) // across, tl.program_id(0) % across
    offs = tl.arange(0, PATCH)
    at = (row * PATCH + offs)[:, None] * W + (column * PATCH + offs)[None, :]
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + at)))


@tkdebug.jit
def copy_first_half(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    x_block = tl.make_block_ptr(x_ptr, (n // 2,), (1,), (start,), (BLOCK,), (0,))
    out_block = tl.make_block_ptr(out_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    tl.store(out_block, tl.load(x_block, boundary_check=(0,)), boundary_check=(0,))


@tkdebug.jit
def prefetched(x_desc, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    ahead = x_desc.load([0])
    for start in range(0, n, BLOCK):
        total += ahead
        ahead = x_desc.load([start + BLOCK])
    tl.store(out_ptr, tl.sum(total))


@tkdebug.jit
def states_before_pairs(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Store, in each second pair of chunks, the state before; it alone is summed up."""
    state = 0.0
    for chunk in range(tl.cdiv(n, BLOCK)):
        if chunk & 2:
            tl.store(out_ptr + chunk, state)
        else:
            offs = chunk * BLOCK + tl.arange(0, BLOCK)
            state += tl.sum(tl.load(x_ptr + offs, mask=offs < n, other=0.0))


@tkdebug.jit
def expert_matmul(
    x_ptr, w_ptr, y_ptr, ends_ptr, K, N, CEIL: tl.constexpr, REST: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(0)
    start, end = tl.load(ends_ptr + expert), tl.load(ends_ptr + expert + 1)
    if start == end:
        return
    rows = start + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    k = tl.arange(0, BLOCK_K)
    weights = w_ptr + expert * K * N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for i in range(0, tl.cdiv(K, BLOCK_K) if CEIL else K // BLOCK_K):
        at = i * BLOCK_K + k
        x = tl.load(x_ptr + rows * K + at[None, :], (rows < end) & (at < K)[None, :], 0.0)
        w = tl.load(weights + at[:, None] * N + cols, (at < K)[:, None] & (cols < N), 0.0)  # GAP w
        acc += tl.dot(x, w)
    if REST and end > 100:
        at = K // BLOCK_K * BLOCK_K + k
        w = tl.load(weights + at[:, None] * N + cols, (at < K)[:, None] & (cols < N), 0.0)
        acc += tl.sum(w, 0)[None, :]
    tl.store(y_ptr + rows * N + cols, acc, (rows < end) & (cols < N))


@tkdebug.jit
def sum_of_tile(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)  # GAP short tile
    tl.store(y_ptr + row, tl.sum(x))


@tkdebug.jit
def swapped_grid_matmul(a_ptr, b_ptr, c_ptr, m, n, k, B: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    a = tl.make_block_ptr(a_ptr, (m, k), (k, 1), (pm * B, 0), (B, B), (1, 0))
    b = tl.make_block_ptr(b_ptr, (k, n), (1, k), (0, pn * B), (B, B), (0, 1))
    acc = tl.zeros((B, B), dtype=tl.float32)
    for _ in range(0, k, B):
        acc = tl.dot(
            tl.load(a, boundary_check=(0, 1), padding_option="zero"),
            tl.load(b, boundary_check=(0, 1), padding_option="zero"),  # GAP swapped_grid_matmul
            acc,
        )
        a, b = tl.advance(a, (0, B)), tl.advance(b, (B, 0))
    c = tl.make_block_ptr(c_ptr, (m, n), (n, 1), (pm * B, pn * B), (B, B), (1, 0))
    tl.store(c, acc, boundary_check=(0, 1))
