"""Kernels that divide integers by zero or shift too far; only `# BAD` lines have faults."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def quotients(x_ptr, d_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    d = tl.load(d_ptr + offs, mask=offs < n)
    q = x // d  # BAD quotients
    tl.store(out_ptr + offs, q + 1, mask=offs < n)


@tkdebug.jit
def chosen(x_ptr, d_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    d = tl.load(d_ptr + offs)
    q = tl.where(d == 0, -1, x // d)
    r = (x % d) * (d != 0).to(tl.int32)
    f = (x // d).to(tl.float32) * tl.where(d == 0, 0.0, 1.0)
    is_multiple = (d != 0) & (x % d == 0)
    tl.store(out_ptr + offs, q + r + f.to(tl.int32) + is_multiple.to(tl.int32))
    tl.store(out_ptr + x // d, x, mask=d != 0)
    if (tl.max(d) == 0) | (tl.sum(x // tl.maximum(d, 1)) > 100):
        tl.store(out_ptr, 7)


@tkdebug.jit
def branches(d_ptr, out_ptr, BLOCK: tl.constexpr):
    d = tl.load(d_ptr + tl.program_id(0))
    out = 0
    if d != 0:
        out = 100 // d
    elif tl.program_id(0) == 0:
        out = 5
    tl.store(out_ptr + tl.program_id(0), out)


@tkdebug.jit
def carried(d_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = 0
    unused = 0
    for i in range(n):
        d = tl.load(d_ptr + i)
        total += (i + 8) // d  # BAD carried
        unused = unused * 2 + i % d
        unused = i
    tl.store(out_ptr, total + unused)


@tkdebug.jit
def addresses(x_ptr, out_ptr, group, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs // group)  # BAD addresses
    tl.store(out_ptr + offs, x)


@tkdebug.jit
def decides(out_ptr, every, BLOCK: tl.constexpr):
    if tl.program_id(0) % every == 0:  # BAD decides
        tl.store(out_ptr, 1)


@tkdebug.jit
def masks(x_ptr, out_ptr, every, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 1, mask=offs % every == 0)  # BAD masks


@tkdebug.jit
def moved(d_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    q = 12 // tl.load(d_ptr + rows)  # BAD moved
    tile = tl.trans(tl.broadcast_to(q[:, None], (M, N))).reshape(M * N)
    offs = tl.arange(0, M * N)
    tl.store(
        out_ptr + offs, tile, mask=columns.reshape(N)[:, None].broadcast_to(N, M).reshape(M * N) < 1
    )


@tkdebug.jit
def reduced(d_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    columns = tl.arange(0, N)[None, :]
    q = 12 // tl.load(d_ptr + rows * N + columns)  # BAD reduced
    tl.store(out_ptr + tl.arange(0, M), tl.sum(q, 1))
    tl.store(out_ptr + M + tl.arange(0, N), tl.cumsum(tl.sum(tl.where(q < 0, 0, q), 0), 0))


@tkdebug.jit
def multiplied(d_ptr, b_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    d = tl.load(d_ptr + at)
    kept = tl.where(i[None, :] < N - 1, 12 // d, 0)
    b = tl.load(b_ptr + at)
    c = tl.dot(kept.to(tl.float32), b, input_precision="ieee")
    tl.store(out_ptr + at, c)


@tkdebug.jit
def shifted(s_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    s = tl.load(s_ptr + offs, mask=offs < n, other=99)
    x = 1 << s  # BAD shifted
    tl.store(out_ptr + offs, x, mask=offs < n)


@tkdebug.jit
def two_of_them(d_ptr, e_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    a = offs // tl.load(d_ptr + offs)  # BAD first
    b = offs % tl.load(e_ptr + offs)  # BAD second
    tl.store(out_ptr + offs, a + b)


@tkdebug.jit
def divided(a, b):
    return a // b  # BAD divided


@tkdebug.jit
def calls(d_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, divided(offs, tl.load(d_ptr + offs)))  # CALL


@tkdebug.jit
def while_it_lasts(d_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    total = 0
    while i < 6:
        total += 60 // tl.load(d_ptr + i)  # BAD while_it_lasts
        i += 2
    tl.store(out_ptr + tl.program_id(0), total)


@tkdebug.jit
def lcm(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + offs)
    b = tl.load(y_ptr + offs)
    while tl.max(b) > 0:
        rest = tl.where(b > 0, a % b, 0)
        a, b = tl.where(b > 0, b, a), rest
    tl.store(out_ptr + offs, a)


@tkdebug.jit
def softmax_without_other(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)  # BAD softmax_without_other
    e = tl.exp(x - tl.max(x))
    tl.store(out_ptr + offs, e / tl.sum(e), mask=offs < n)
    tl.store(out_ptr, tl.sum(x))


@tkdebug.jit
def sound_without_other(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside)
    at = tl.load(index_ptr + offs, mask=inside)
    y = tl.load(x_ptr + at, mask=inside & (at >= 0))
    total = tl.sum(tl.where(inside, x, 0.0)) + tl.sum(x * tl.where(inside, 1.0, 0.0))
    total += tl.sum(tl.exp(x + tl.where(inside, 0.0, float("-inf"))))
    low = tl.load(x_ptr + offs, mask=inside, other=float("inf"))
    total += tl.min(low)
    if tl.max(tl.where(inside, x, 0.0)) > 3:
        total += 1
    tl.store(out_ptr + offs, x + tl.where(inside & (at >= 0), y, 0.0) + total, mask=inside)


@tkdebug.jit
def fp8_without_other(x_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    a = tl.load(x_ptr + at, mask=i[None, :] < n)  # BAD fp8_without_other
    b = tl.load(x_ptr + at, mask=i[:, None] < n, other=0.0)
    tl.store(out_ptr + at, tl.dot(a, b))
    c = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.dot(a + a, c))


@tkdebug.jit
def wholly_masked_product(x_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    c = tl.zeros((N, N), tl.float32)
    for k in range(0, tl.program_id(0) % 2 + 1):
        inside = k * N + i < tl.program_id(0) * n
        a = tl.load(x_ptr + at, mask=inside[None, :])  # BAD wholly_masked_product
        b = tl.load(x_ptr + at, mask=inside[:, None])
        c = tl.dot(a, b, c)
    tl.store(out_ptr + at, c)


@tkdebug.jit
def either(x_ptr, d_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    d = tl.load(d_ptr + offs)
    is_divided = (d == 0) | (x % d == 0)
    tl.store(out_ptr + offs, is_divided.to(tl.int32))


@tkdebug.jit
def either_bits(x_ptr, d_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    d = tl.load(d_ptr + offs)
    tl.store(out_ptr + offs, (d == 0).to(tl.int32) | (x // d))  # BAD either_bits


@tkdebug.jit
def in_some_programs(d_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    q = 7 // tl.load(d_ptr + offs)  # BAD in_some_programs
    if tl.program_id(0) > 1:
        tl.store(out_ptr + tl.program_id(0) * BLOCK + offs, q)


@tkdebug.jit
def counted(d_ptr, out_ptr, BLOCK: tl.constexpr):
    n = 4 // tl.load(d_ptr)  # BAD counted
    i = 0
    while i < n:
        i += 1
        n = tl.minimum(n, 4)
    tl.store(out_ptr, 1)


@tkdebug.jit
def flipped(x_ptr, d_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    q = tl.load(x_ptr + offs) // tl.load(d_ptr + offs)  # BAD flipped
    tl.store(out_ptr + offs, tl.flip(q), mask=offs < n)
