"""Kernels that store to fresh tensors, all of them or not; `# GAP name` marks the line reported."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, 2 * tl.load(x_ptr + offs, mask=mask), mask=mask)  # GAP double


@tkdebug.jit
def by_descriptor(x_ptr, out_desc, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    out_desc.store([pid * BLOCK], x)  # GAP by_descriptor


@tkdebug.jit
def none_at_all(out_ptr, BLOCK: tl.constexpr):  # GAP none_at_all
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1.0)


@tkdebug.jit
def part_sums(x_ptr, parts_ptr, n, part, width, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    end = tl.minimum(part, n - pid * part)
    x = tl.load(x_ptr + pid * part + offs, mask=offs < end)
    tl.store(parts_ptr + pid * width + offs, x, mask=offs < end)  # GAP part_sums


@tkdebug.jit
def add_parts(parts_ptr, out_ptr, n, part, width, ALL: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    end = width if ALL else tl.minimum(part, n - pid * part)
    x = tl.load(parts_ptr + pid * width + offs, mask=offs < end, other=0.0)  # READ parts
    tl.store(out_ptr + pid, tl.sum(x))


@tkdebug.jit
def add_into(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.atomic_add(out_ptr + offs, x, mask=offs < n)  # GAP add_into


@tkdebug.jit
def lower_half(a_ptr, out_ptr, n, BLOCK: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    a = tl.load(a_ptr + rows * n + cols, mask=(rows < n) & (cols < n), other=0)
    a = tl.where(rows >= cols, a, 0)
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.sum(a, 1), mask=tl.arange(0, BLOCK) < n)


@tkdebug.jit
def store_lower_half(a_ptr, n, BLOCK: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    mask = (rows < n) & (cols <= rows)
    tl.store(a_ptr + rows * n + cols, tl.zeros((BLOCK, BLOCK), tl.int32) + 1, mask=mask)


@tkdebug.jit
def through_workspace(x_ptr, work_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    if tl.program_id(0) > 0:
        tl.store(work_ptr + i, x)
        x = tl.load(work_ptr + i)
    tl.store(out_ptr + i, x)


@tkdebug.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@tkdebug.jit
def fill_rest(out_ptr, start, n, BLOCK: tl.constexpr):
    offs = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 0.0, mask=offs < n)


@tkdebug.jit
def norm(x_ptr, out_ptr, mean_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    mean = tl.sum(x) / n
    tl.store(mean_ptr + row, mean)
    tl.store(out_ptr + row * n + cols, x - mean, mask=cols < n)  # GAP norm


@tkdebug.jit
def rounds(out_ptr, n, many, BLOCK: tl.constexpr):
    for _ in range(many):
        offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offs, 1.0, mask=offs < n)  # GAP rounds
