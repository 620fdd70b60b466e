"""Run in a process of its own: prints how far each kernel's peak memory rises above its start."""

import sys
from pathlib import Path

import torch

import tkdebug
import tkdebug.language as tl

SIZE = 1 << 21
BLOCK = 1024


@tkdebug.jit
def elementwise(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    a, b = tl.exp(x), tl.log(x + 1)
    tl.store(out_ptr + offs, (tl.sin(a) * tl.cos(b) + a + b) * x, mask=offs < n)


@tkdebug.jit
def gather(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offs, mask=offs < n, other=0)
    x = tl.load(x_ptr + index, mask=(index >= 0) & (index % 3 != 5), other=0.0)
    y = tl.load(x_ptr + (index * 7 + offs) % n)
    tl.store(out_ptr + index, x * y + 1, mask=offs < n)


@tkdebug.jit
def atomics(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offs, mask=offs < n, other=0)
    old = tl.atomic_add(out_ptr + index, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)
    tl.store(x_ptr + offs, old, mask=offs < n)


@tkdebug.jit
def tiles(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(x_ptr + offs)[:, None] * tl.arange(0, 16)[None, :]
    u = tl.where(t > 3.0, t, -t)
    tl.store(out_ptr + offs, tl.sum(u, 1) + tl.max(t, 1))


@tkdebug.jit
def combine(a, b):
    return a * b + a + b


@tkdebug.jit
def scan(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, tl.associative_scan(x, 0, combine), mask=offs < n)


@tkdebug.jit
def numbers(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.rand(5, offs), mask=offs < n)


def resident_kib(field):
    rows = Path("/proc/self/status").read_text().splitlines()
    return int(next(row for row in rows if row.startswith(field)).split()[1])


def rise_of(name):
    kernel = globals()[name]
    x, out = torch.rand(SIZE), torch.ones(SIZE)
    index = torch.randperm(SIZE, dtype=torch.int32)
    # A first launch loads what is loaded once.
    kernel.interpret[(8,)](x, index, out, 8 * BLOCK, BLOCK=BLOCK)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_kib("VmRSS")
    kernel.interpret[(SIZE // BLOCK,)](x, index, out, SIZE, BLOCK=BLOCK)
    return (resident_kib("VmHWM") - before) * 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        print(name, rise_of(name))
