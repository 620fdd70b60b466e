"""Kernels that lose precision in a known way, each with the line and the cause.

A story is a function that launches; its line is the one that ends in `# here`.
"""

from __future__ import annotations

import torch

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def half_product(a, b, c, K, N: tl.constexpr, BK: tl.constexpr):
    i, k = tl.arange(0, N), tl.arange(0, BK)
    acc = tl.zeros((N, N), tl.float16)
    for start in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + start + k[None, :])
        y = tl.load(b + (start + k[:, None]) * N + i[None, :])
        acc = tl.dot(x, y, acc, out_dtype=tl.float16)  # here
    tl.store(c + i[:, None] * N + i[None, :], acc.to(tl.float32))


def launch_half_product():
    a, b = torch.rand(32, 512).half(), torch.rand(512, 32).half()
    half_product[(1,)](a, b, torch.zeros(32, 32), 512, 32, 32)


@tkdebug.jit
def half_sum(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros((B,), tl.float16)
    for start in range(0, n, B):
        total += tl.load(x + start + i)  # here
    tl.store(o, tl.sum(total.to(tl.float32)))


def launch_half_sum():
    half_sum[(1,)](torch.rand(1 << 14).half(), torch.zeros(1), 1 << 14, 64)


@tkdebug.jit
def truncated_sum(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros((B,), tl.bfloat16)
    for start in range(0, n, B):
        row = tl.load(x + start + i)
        total = (total.to(tl.float32) + row).to(tl.bfloat16)  # here
    tl.store(o + i, total.to(tl.float32))


def launch_truncated_sum():
    truncated_sum[(1,)](torch.rand(1 << 12), torch.zeros(64), 1 << 12, 64)


@tkdebug.jit
def unscaled_softmax(x, o, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    s = tl.load(x + row * N + i)
    e = tl.exp(s)  # here
    tl.store(o + row * N + i, e / tl.sum(e, 0))


def launch_unscaled_softmax():
    unscaled_softmax[(4,)](torch.randn(4, 64) * 60, torch.zeros(4, 64), 64)


@tkdebug.jit
def one_pass_variance(x, o, n, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    v = tl.load(x + row * N + i)
    mean = tl.sum(v, 0) / n
    square = tl.sum(v * v, 0) / n
    variance = square - mean * mean  # here
    tl.store(o + row, variance)


def launch_one_pass_variance():
    x = torch.randn(8, 256) + 300
    one_pass_variance[(8,)](x, torch.zeros(8), 256, 256)


@tkdebug.jit
def tf32_scores(q, k, o, N: tl.constexpr, D: tl.constexpr):
    i, d = tl.arange(0, N), tl.arange(0, D)
    a = tl.load(q + i[:, None] * D + d[None, :])
    b = tl.load(k + i[None, :] * D + d[:, None])
    s = tl.dot(a, b)  # here
    p = tl.exp(s - tl.max(s, 1)[:, None])
    tl.store(o + i[:, None] * N + i[None, :], p / tl.sum(p, 1)[:, None])


def launch_tf32_scores():
    q, k = torch.randn(32, 64), torch.randn(32, 64)
    tf32_scores[(1,)](q, k, torch.zeros(32, 32), 32, 64)


@tkdebug.jit
def rounded_weights(s, v, o, N: tl.constexpr, D: tl.constexpr):
    i, d = tl.arange(0, N), tl.arange(0, D)
    x = tl.load(s + i[:, None] * N + i[None, :])
    w = tl.load(v + i[:, None] * D + d[None, :])
    p = tl.exp(x - tl.max(x, 1)[:, None])
    total = tl.sum(p, 1)
    low = p.to(tl.bfloat16)  # here
    tl.store(o + i[:, None] * D + d[None, :], tl.dot(low, w) / total[:, None])


def launch_rounded_weights():
    s, v = torch.randn(64, 64), torch.randn(64, 32).bfloat16()
    rounded_weights[(1,)](s, v, torch.zeros(64, 32), 64, 32)


@tkdebug.jit
def rotary(x, y, c, s, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    cos, sin = tl.load(c + i), tl.load(s + i)
    left = a * cos
    right = b * sin
    tl.store(o + i, left - right)  # here


def launch_rotary():
    angle = torch.rand(256) * 0.5 + 0.5
    x = torch.sin(angle) * 3
    y = torch.cos(angle) * 3 * (1 + 1e-4 * torch.randn(256))
    rotary[(1,)](x, y, torch.cos(angle), torch.sin(angle), torch.zeros(256), 256)


@tkdebug.jit
def rounded_state(x, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    state = tl.zeros((N,), tl.bfloat16)
    for t in range(n):
        new = state.to(tl.float32) * 0.9 + tl.load(x + t * N + i)
        state = new.to(tl.bfloat16)  # here
    tl.store(o + i, state.to(tl.float32))


def launch_rounded_state():
    rounded_state[(1,)](torch.randn(64, 64), torch.zeros(64), 64, 64)


@tkdebug.jit
def toward_zero(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    low = tl.cast(v, tl.bfloat16, fp_downcast_rounding="rtz")  # here
    tl.store(o + i, low.to(tl.float32) * 3.0)


def launch_toward_zero():
    toward_zero[(1,)](torch.rand(512) + 1, torch.zeros(512), 512)


@tkdebug.jit
def cut_bits(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i) * 1.5
    bits = v.to(tl.int32, bitcast=True) & -65536
    low = bits.to(tl.float32, bitcast=True)  # here
    tl.store(o + i, low * 3.0)


def launch_cut_bits():
    cut_bits[(1,)](torch.rand(512) + 1, torch.zeros(512), 512)


@tkdebug.jit
def tiny_gradients(g, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(g + i) * 1e-4
    low = v.to(tl.float16)  # here
    tl.store(o + i, low.to(tl.float32) * 1e4)


def launch_tiny_gradients():
    tiny_gradients[(1,)](torch.rand(256) * 1e-3, torch.zeros(256), 256)


@tkdebug.jit
def half_scores(q, k, o, N: tl.constexpr, D: tl.constexpr):
    i, d = tl.arange(0, N), tl.arange(0, D)
    a = tl.load(q + i[:, None] * D + d[None, :])
    b = tl.load(k + i[None, :] * D + d[:, None])
    s = tl.dot(a, b).to(tl.float16)  # here
    tl.store(o + i[:, None] * N + i[None, :], s.to(tl.float32) * 0.01)


def launch_half_scores():
    q, k = torch.rand(16, 64).half() * 60, torch.rand(16, 64).half() * 60
    half_scores[(1,)](q, k, torch.zeros(16, 16), 16, 64)


@tkdebug.jit
def residual(a, b, c, o, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y, z = tl.load(a + i), tl.load(b + i), tl.load(c + i)
    tl.store(o + i, x * y - z)  # here


def launch_residual():
    a, b = torch.rand(256) + 1, torch.rand(256) + 1
    residual[(1,)](a, b, a * b, torch.zeros(256), 256)


@tkdebug.jit
def running_sum(x, o, n):
    total = 0.0
    for k in range(n):
        total += tl.load(x + k)  # here
    tl.store(o, total)


def launch_running_sum():
    running_sum[(1,)](torch.rand(3000), torch.zeros(1), 3000)


@tkdebug.jit
def long_index(o, base, N: tl.constexpr):
    i = tl.arange(0, N)
    place = (base + i).to(tl.float32)  # here
    tl.store(o + i, place)


def launch_long_index():
    long_index[(1,)](torch.zeros(64), (1 << 26) + 5, 64)


@tkdebug.jit
def half_atomics(x, o, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.atomic_add(o + tl.arange(0, N), tl.load(x + i))  # here


def launch_half_atomics():
    half_atomics[(64,)](torch.rand(64 * 16).half(), torch.zeros(16).half(), 16)


@tkdebug.jit
def half_reduction(x, o, N: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * N + tl.arange(0, N))
    total = tl.sum(v, 0)  # here
    tl.store(o + tl.program_id(0), total.to(tl.float32))


def launch_half_reduction():
    half_reduction[(4,)](torch.rand(4 * 1024).half(), torch.zeros(4), 1024)


@tkdebug.jit
def exponential(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, tl.exp(v))  # here


def launch_exponential():
    exponential[(1,)](torch.randn(512), torch.zeros(512), 512)


@tkdebug.jit
def half_constant(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    scale = tl.full((N,), 0.1, tl.float16)  # here
    tl.store(o + i, v * scale.to(tl.float32))


def launch_half_constant():
    half_constant[(1,)](torch.rand(128), torch.zeros(128), 128)


@tkdebug.jit
def quantized(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    low = v.to(tl.float8e4nv)  # here
    tl.store(o + i, low.to(tl.float32))


def launch_quantized():
    quantized[(1,)](torch.randn(256), torch.zeros(256), 256)


@tkdebug.jit
def approximate_tanh(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    t = tl.inline_asm_elementwise(  # here
        "tanh.approx.f32 $0, $1;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(o + i, t)


def launch_approximate_tanh():
    approximate_tanh[(1,)](torch.randn(256), torch.zeros(256), 256)


@tkdebug.jit
def truncated_integers(x, o, s, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    scale = tl.load(s)
    low = (v / scale).to(tl.int8)  # here
    tl.store(o + i, low.to(tl.float32) * scale)


def launch_truncated_integers():
    truncated_integers[(1,)](torch.randn(256), torch.zeros(256), torch.tensor([4 / 127]), 256)


@tkdebug.jit
def fused_difference(a, b, c, d, o, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i), tl.load(b + i)
    z, w = tl.load(c + i), tl.load(d + i)
    product = z * w
    tl.store(o + i, tl.fma(x, y, -product))  # here


def launch_fused_difference():
    a, b = torch.rand(256) + 1, torch.rand(256) + 1
    fused_difference[(1,)](a, b, b, a, torch.zeros(256), 256)


STORIES = {
    "approximate_tanh": "approximate",
    "truncated_integers": "biased",
    "fused_difference": "contraction",
    "half_product": "accumulator",
    "half_sum": "accumulator",
    "truncated_sum": "accumulator",
    "unscaled_softmax": "overflow",
    "one_pass_variance": "cancellation",
    "tf32_scores": "tf32",
    "rounded_weights": "storage",
    "rotary": "cancellation",
    "rounded_state": "storage",
    "toward_zero": "biased",
    "cut_bits": "biased",
    "tiny_gradients": "underflow",
    "half_scores": "overflow",
    "residual": "cancellation",
    "running_sum": "order",
    "long_index": "storage",
    "half_atomics": "accumulator",
    "half_reduction": "accumulator",
    "exponential": "approximate",
    "half_constant": "storage",
    "quantized": "storage",
}
