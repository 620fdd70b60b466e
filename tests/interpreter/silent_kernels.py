"""Kernels that give wrong numbers without a word, and, with RIGHT, the same kernels fixed.

`# BAD name` marks the line that is reported.
"""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def amax_scale(x_ptr, scale_ptr, n, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """The largest logarithm of a row, a block at a time; all of them are negative."""
    row = tl.program_id(0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf") if RIGHT else 0.0)
        best = tl.maximum(best, x)  # BAD max
    tl.store(scale_ptr + row, tl.max(best, 0))


@tkdebug.jit
def nearest(points_ptr, query_ptr, out_ptr, n, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """The distance to the nearest of `n` points."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    query = tl.load(query_ptr + row)
    points = tl.load(points_ptr + cols, mask=cols < n, other=0.0)
    distance = tl.abs(points - query)
    if RIGHT:
        distance = tl.where(cols < n, distance, float("inf"))
    tl.store(out_ptr + row, tl.min(distance, 0))  # BAD min


@tkdebug.jit
def l1_loss(x_ptr, target_ptr, out_ptr, n, shift, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of |x + shift - target|, a part for each program."""
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    target = tl.load(target_ptr + offs, mask=mask, other=0.0)
    error = tl.abs(x + shift - target)
    if RIGHT:
        error = tl.where(mask, error, 0.0)
    tl.store(out_ptr + pid, tl.sum(error, 0))  # BAD sum


@tkdebug.jit
def greedy_token(logits_ptr, out_ptr, n, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    fill = float("-inf") if RIGHT else 0.0
    logits = tl.load(logits_ptr + row * n + cols, mask=cols < n, other=fill)
    tl.store(out_ptr + row, tl.argmax(logits, 0))  # BAD argmax


@tkdebug.jit
def log_sum_exp(x_ptr, out_ptr, n, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best, total = float("-inf"), 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        fill = float("-inf") if RIGHT else 0.0
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=fill)
        new_best = tl.maximum(best, tl.max(x, 0))
        part = tl.sum(tl.exp(x - new_best), 0)  # BAD logsumexp
        total = total * tl.exp(best - new_best) + part
        best = new_best
    tl.store(out_ptr + row, best + tl.log(total))


@tkdebug.jit
def rms_norm(x_ptr, w_ptr, out_ptr, n, eps, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    if RIGHT:
        mean_square = tl.sum(x * x, 0) / n
    else:
        mean_square = tl.sum(x * x, 0) / BLOCK  # BAD mean
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * n + cols, x * tl.rsqrt(mean_square + eps) * w, mask=mask)


@tkdebug.jit
def layer_norm(x_ptr, w_ptr, b_ptr, out_ptr, n, eps, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    centred = x - tl.sum(x, 0) / n
    if RIGHT:
        centred = tl.where(mask, centred, 0.0)
    variance = tl.sum(centred * centred, 0) / n  # BAD variance
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0)
    out = centred * tl.rsqrt(variance + eps) * w + b
    tl.store(out_ptr + row * n + cols, out, mask=mask)


@tkdebug.jit
def rewards_to_go(rewards_ptr, out_ptr, n, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """For each step the sum of the rewards from there to the end."""
    row = tl.program_id(0)
    steps = tl.arange(0, BLOCK)
    rewards = tl.load(rewards_ptr + row * n + steps, mask=steps < n, other=0.0) - 0.5
    if RIGHT:
        rewards = tl.where(steps < n, rewards, 0.0)
    sums = tl.cumsum(rewards, 0, reverse=True)  # BAD scan
    tl.store(out_ptr + row * n + steps, sums, mask=steps < n)


@tkdebug.jit
def linear_attention_state(
    k_ptr, v_ptr, state_ptr, n, RIGHT: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):
    """The sum of phi(k) v^T, where phi is elu + 1 and of 0 it is 1."""
    head = tl.program_id(0)
    d = tl.arange(0, D)
    state = tl.zeros([D, D], tl.float32)
    for start in range(0, n, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        mask = (rows < n)[:, None]
        at = head * n * D + rows[:, None] * D + d[None, :]
        k = tl.load(k_ptr + at, mask=mask, other=0.0)
        v = tl.sigmoid(tl.load(v_ptr + at, mask=mask, other=0.0))
        phi = tl.where(k > 0, k + 1, tl.exp(k))
        if RIGHT:
            phi = tl.where(mask, phi, 0.0)
        state = tl.dot(tl.trans(phi), v, state, input_precision="ieee")  # BAD dot
    tl.store(state_ptr + head * D * D + d[:, None] * D + d[None, :], state)


@tkdebug.jit
def squared_norm(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)  # BAD never read
    tl.atomic_add(out_ptr, tl.sum(x * x, 0))


@tkdebug.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, RIGHT: tl.constexpr, B: tl.constexpr, BLOCK_K: tl.constexpr
):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    cols = tl.program_id(1) * B + tl.arange(0, B)
    inner = tl.arange(0, BLOCK_K)
    acc = tl.zeros([B, B], tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K) if RIGHT else K // BLOCK_K):
        at = k * BLOCK_K + inner
        a_mask = (rows[:, None] < M) & (at[None, :] < K)
        b_mask = (at[:, None] < K) & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + at[None, :], mask=a_mask, other=0.0)  # BAD tail
        b_ptrs = b_ptr + at[:, None] * N + cols[None, :]
        b = tl.load(b_ptrs, mask=b_mask, other=0.0)  # BAD other tail
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c_mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, mask=c_mask)


@tkdebug.jit
def split_dot(a_ptr, b_ptr, out_ptr, K, part, overlap, BLOCK: tl.constexpr):
    """A dot product in parts of `part` elements, which are added up."""
    begin = tl.program_id(0) * part
    end = tl.minimum(begin + part + overlap, K)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(begin, end, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + offs, mask=offs < end, other=0.0)  # BAD split of a
        total += a * tl.load(b_ptr + offs, mask=offs < end, other=0.0)  # BAD split of b
    tl.atomic_add(out_ptr, tl.sum(total, 0))


@tkdebug.jit
def scale_rows(x_desc, out_ptr, M, N, RIGHT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    if RIGHT:
        x = x_desc.load([pid_m * BM, pid_n * BN])
    else:
        x = x_desc.load([pid_n * BM, pid_m * BN])  # BAD descriptor
    rows, cols = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], 2 * x, mask=mask)


@tkdebug.jit
def quantise(x_ptr, scale_ptr, out_ptr, n, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    q = tl.floor(x / tl.load(scale_ptr) + 0.5)
    if RIGHT:
        q = tl.clamp(q, -128.0, 127.0)
    tl.store(out_ptr + row * n + cols, q.to(tl.int8), mask=cols < n)  # BAD float to int


@tkdebug.jit
def first_match(x_ptr, out_ptr, n, wanted, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """Stores the first position of a value; 16 bits do not hold every position."""
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0)
    place = tl.min(tl.where((cols < n) & (x == wanted), cols, n), 0)
    tl.store(out_ptr, place if RIGHT else place.to(tl.int16))  # BAD int to int


@tkdebug.jit
def unscale_gradient(dy_ptr, out_ptr, n, scale, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + offs, mask=offs < n, other=0.0)
    total = dy.to(tl.float32) * scale
    if RIGHT:
        total = tl.clamp(total, -65504.0, 65504.0)
    tl.store(out_ptr + offs, total.to(tl.float16), mask=offs < n)  # BAD fp16


@tkdebug.jit
def sum_by_last(
    x_ptr,
    parts_ptr,
    arrived_ptr,
    out_ptr,
    RIGHT: tl.constexpr,
    GRID: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The last program to arrive adds up what the others have stored."""
    pid = tl.program_id(0)
    part = tl.sum(tl.load(x_ptr + pid * BLOCK + tl.arange(0, BLOCK)), 0)
    if RIGHT:
        tl.store(parts_ptr + pid, part)
        arrived = tl.atomic_add(arrived_ptr, 1)
    else:
        arrived = tl.atomic_add(arrived_ptr, 1)
        tl.store(parts_ptr + pid, part)
    if arrived == GRID - 1:
        parts = tl.load(parts_ptr + tl.arange(0, GRID))  # BAD race
        tl.store(out_ptr, tl.sum(parts, 0))


@tkdebug.jit
def router_weights(x_ptr, out_ptr, n, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    if RIGHT:
        x = x - tl.max(x, 0)
    e = tl.exp(x)  # BAD inf
    tl.store(out_ptr + row * n + cols, e / (1 + tl.sum(e, 0)), mask=cols < n)


@tkdebug.jit
def row_statistics(x_ptr, mean_ptr, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows[:, None] < m) & (cols[None, :] < n)
    x = tl.load(x_ptr + rows[:, None] * n + cols[None, :], mask=mask, other=0.0)
    tl.store(mean_ptr + rows, tl.sum(x, 1) / n, mask=rows < m)  # BAD unwritten


@tkdebug.jit
def gelu_rows(
    x_ptr,
    out_ptr,
    M,
    N,
    stride_m,
    stride_n,
    RIGHT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    if RIGHT:
        offs = rows[:, None] * stride_m + cols[None, :] * stride_n
        x = tl.load(x_ptr + offs, mask=mask)
    else:
        offs = rows[:, None] * stride_n + cols[None, :] * stride_m
        x = tl.load(x_ptr + offs, mask=mask)  # BAD strides
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], x * tl.sigmoid(1.702 * x), mask=mask)


@tkdebug.jit
def row_l2(x_ptr, out_ptr, m, n, RIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = row * n + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < n if RIGHT else offs < m * n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)  # BAD next row
    tl.store(out_ptr + row, tl.sqrt(tl.sum(x * x, 0)))
