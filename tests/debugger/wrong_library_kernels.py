"""Kernels as libraries have them, with one faulty line each, `# WRONG`, silently wrong."""

import tkdebug as triton
import tkdebug.language as tl


@triton.jit
def rms_norm(x_ptr, w_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + i, mask=i < n, other=0.0)
    scale = 1 / tl.sqrt(tl.sum(x * x, axis=0) + eps)  # WRONG
    w = tl.load(w_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + row * n + i, x * scale * w, mask=i < n)


@triton.jit
def rope(x_ptr, cos_ptr, sin_ptr, out_ptr, HALF: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, HALF)
    first = tl.load(x_ptr + row * 2 * HALF + i)
    second = tl.load(x_ptr + row * 2 * HALF + HALF + i)
    cos, sin = tl.load(cos_ptr + row * HALF + i), tl.load(sin_ptr + row * HALF + i)
    turned = first * cos + second * sin  # WRONG
    other = second * cos + first * sin
    tl.store(out_ptr + row * 2 * HALF + i, turned)
    tl.store(out_ptr + row * 2 * HALF + HALF + i, other)


@triton.jit
def swiglu(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + i, mask=i < n)
    up = tl.load(up_ptr + i, mask=i < n)
    activated = gate * tl.sigmoid(up)  # WRONG
    tl.store(out_ptr + i, activated * up, mask=i < n)


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, N: tl.constexpr, B: tl.constexpr, D: tl.constexpr
):
    i, d = tl.arange(0, B), tl.arange(0, D)
    q = tl.load(q_ptr + i[:, None] * D + d[None, :])
    acc = tl.zeros((B, D), tl.float32)
    largest = tl.full((B,), -float("inf"), tl.float32)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, N, B):
        rows = (start + i)[:, None] * D + d[None, :]
        k, v = tl.load(k_ptr + rows), tl.load(v_ptr + rows)
        scores = tl.dot(q, tl.trans(k)) * scale
        new = tl.maximum(largest, tl.max(scores, axis=1))
        p = tl.exp(scores - new[:, None])
        alpha = tl.exp(largest - new)
        total = total * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p, v, acc)  # WRONG
        largest = new
    tl.store(out_ptr + i[:, None] * D + d[None, :], acc / total[:, None])


@triton.jit
def cross_entropy(x_ptr, label_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + i, mask=i < n, other=0.0)  # WRONG
    largest = tl.max(x, axis=0)
    total = tl.sum(tl.exp(x - largest), axis=0)
    label = tl.load(label_ptr + row)
    picked = tl.load(x_ptr + row * n + label)
    tl.store(out_ptr + row, largest + tl.log(total) - picked)


@triton.jit
def grouped_scale(x_ptr, scale_ptr, out_ptr, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(scale_ptr + tl.program_id(0))  # WRONG
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x * scale)


@triton.jit
def moving_average(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    before = tl.load(x_ptr + i - 1, mask=i > 0, other=0.0)
    here = tl.load(x_ptr + i, mask=i < n, other=0.0)
    after = tl.load(x_ptr + i + 1, mask=i < n, other=0.0)  # WRONG
    tl.store(out_ptr + i, (before + here + after) / 3, mask=i < n)


@triton.jit
def layer_norm_of(x_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    centred = x - mean  # WRONG
    variance = tl.sum(centred * centred, axis=0) / n
    tl.store(out_ptr + i, centred / tl.sqrt(variance + eps), mask=mask)


@triton.jit
def transposed(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * C + c[None, :])
    turned = tl.reshape(x, (C, R))  # WRONG
    tl.store(out_ptr + c[:, None] * R + r[None, :], turned)


@triton.jit
def prefix(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    sums = tl.cumsum(x, axis=0, reverse=True)  # WRONG
    tl.store(out_ptr + i, sums - x)


@triton.jit
def quantised(x_ptr, out_ptr, scale_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    largest = tl.max(x, axis=0)  # WRONG
    scale = largest / 127.0
    tl.store(scale_ptr, scale)
    tl.store(out_ptr + i, (x / scale).to(tl.int8))


@triton.jit
def gathered(table_ptr, index_ptr, out_ptr, D: tl.constexpr):
    row = tl.program_id(0)
    index = tl.load(index_ptr + row)
    d = tl.arange(0, D)
    values = tl.load(table_ptr + index + d)  # WRONG
    tl.store(out_ptr + row * D + d, values)


@triton.jit
def huber(x_ptr, y_ptr, out_ptr, delta, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    error = tl.load(x_ptr + i) - tl.load(y_ptr + i)
    small = 0.5 * error * error
    large = delta * (tl.abs(error) - 0.5 * delta)
    loss = tl.where(tl.abs(error) < delta, large, small)  # WRONG
    tl.store(out_ptr, tl.sum(loss, axis=0) / BLOCK)


@triton.jit
def momentum(p_ptr, g_ptr, m_ptr, rate, decay, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p, g, m = tl.load(p_ptr + i), tl.load(g_ptr + i), tl.load(m_ptr + i)
    new = decay * m + g
    tl.store(m_ptr + i, new)
    step = p + rate * new  # WRONG
    tl.store(p_ptr + i, step)
