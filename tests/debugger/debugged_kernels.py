"""Kernels that the tests of the debugger stop in; tests find lines by their `# <name>` comments."""

from pathlib import Path

import tkdebug as triton
import tkdebug.language as tl

FILE = __file__


def line(name):
    """The number of the line that ends in `# name`."""
    lines = Path(FILE).read_text().splitlines()
    return next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {name}"))


@triton.jit
def scaled(x, factor):
    doubled = x * factor  # scaled body
    return doubled  # scaled return


@triton.jit
def twice_called(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)  # load
    a = scaled(x, 2.0)  # first call
    b = scaled(a, 3.0)  # second call
    tl.store(out_ptr + offs, a + b)  # store


@triton.jit
def divergent(x_ptr, out_ptr):
    i = tl.program_id(0)
    x = tl.load(x_ptr + i)
    if x > 0:  # test
        y = x * 2  # positive
    else:
        y = x - 1  # negative
    tl.store(out_ptr + i, y)  # join


@triton.jit
def summed(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):  # header
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)  # add
    tl.store(out_ptr + row, tl.sum(total, axis=0))  # after


@triton.jit
def locked(lock_ptr, count_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:  # spin
        pass
    count = tl.load(count_ptr)  # inside
    tl.store(count_ptr, count + 1)
    tl.atomic_xchg(lock_ptr, 0)  # unlock


@triton.jit
def overrun(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)  # faulty
    tl.store(out_ptr + offs, x)


@triton.jit
def breaking(out_ptr):
    value = tl.program_id(0) + 1
    breakpoint()  # call
    tl.store(out_ptr + tl.program_id(0), value)


@triton.jit
def born(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.program_id(0))
    y = tl.log(x)  # nan here
    z = y + 1  # nan seen
    tl.store(out_ptr + tl.program_id(0), z)


@triton.jit
def described(x_ptr, out_ptr, N: tl.constexpr):
    pair = (tl.program_id(0), N * 2)
    block = tl.make_block_ptr(x_ptr, (N, N), (N, 1), (6, 0), (2, N), (1, 0))
    descriptor = tl.make_tensor_descriptor(x_ptr, (N, N), (N, 1), (2, N))
    small = tl.load(block).to(tl.uint8)
    both = small.to(tl.float32) + descriptor.load([0, 0])
    tl.store(out_ptr + tl.arange(0, N), tl.sum(both, axis=0) + pair[0])  # described


@triton.jit
def product(a_ptr, b_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)  # depth
    acc = tl.zeros((SIZE, SIZE), tl.float32)
    _unused = i * 3
    for k in range(0, n, SIZE):
        a = tl.load(a_ptr + i[:, None] * n + k + i[None, :])
        b = tl.load(b_ptr + (k + i[:, None]) * SIZE + i[None, :])
        acc = tl.dot(a, b, acc)  # multiply
    tl.store(out_ptr + i[:, None] * SIZE + i[None, :], acc)


@triton.jit
def described_product(a, b, out_ptr, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, n, K):
        acc = tl.dot(a.load([0, k]), b.load([k, 0]), acc)
    tl.store(out_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], acc.to(tl.float16))


@triton.jit
def unrolled(x_ptr, out_ptr, n):
    total = 0.0
    for start in tl.range(0, n, loop_unroll_factor=2):
        x = tl.load(x_ptr + start)
        doubled = x * 2
        total += doubled
    tl.store(out_ptr, total)


@triton.jit
def doubled_blocks(x, out, SIZE: tl.constexpr):
    for i in range(0, 2):
        out.store([i * SIZE, 0], x.load([i * SIZE, 0]) * 2)


@triton.jit
def scaled_product(a_ptr, b_ptr, scale_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    acc = tl.zeros((SIZE, SIZE), tl.float32)
    for part in range(n):
        a = tl.load(a_ptr + i[:, None] * n * SIZE + part * SIZE + i[None, :])
        b = tl.load(b_ptr + (part * SIZE + i[:, None]) * SIZE + i[None, :])
        scale = tl.load(scale_ptr + part * SIZE + i)
        scaled_b = b * scale[None, :]  # scaled operand
        acc = tl.dot(a, scaled_b.to(tl.float16), acc)
    tl.store(out_ptr + i[:, None] * SIZE + i[None, :], acc)


@triton.jit
def segment_sum(fa, va, fb, vb):
    return fa | fb, tl.where(fb != 0, vb, va + vb)  # combined


@triton.jit
def segmented(x_ptr, flag_ptr, out_ptr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    x, flag = tl.load(x_ptr + i), tl.load(flag_ptr + i)
    _, sums = tl.associative_scan((flag, x), 0, segment_sum)
    tl.store(out_ptr + i, sums)


@triton.jit
def left_out(x_ptr, out_ptr, sums_ptr, rare_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    last = n - 1
    keep = offs < last  # mask
    tl.store(out_ptr + offs, x, mask=keep)  # masked store
    if pid > 5:  # never
        tl.store(rare_ptr + offs, x)  # rare store
    if pid == 2:  # early
        return
    tl.atomic_add(sums_ptr + offs, x, mask=keep)  # masked atomic


@triton.jit
def short_blocks(x, out, SIZE: tl.constexpr):
    row = tl.program_id(0) * SIZE  # row
    out.store([row, 0], x.load([row, 0]))  # short store


@triton.jit
def halved(x_ptr, out_ptr, n):
    x = tl.load(x_ptr)
    y = x * 0.5 if n == 2 else x  # chosen
    tl.store(out_ptr, y)


@triton.jit
def by_address(ptrs, x_ptr, SIZE: tl.constexpr):
    out_ptr = tl.load(ptrs + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i) * 2, mask=i < 3)  # address store
