"""Kernels whose line tables tests look at."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def inner(x):
    return tl.sqrt(x)


@tkdebug.jit
def outer(x):
    once = inner(x)
    return inner(once) + 1.0


@tkdebug.jit
def nested(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    y = outer(x)
    tl.store(out_ptr + offs, y, mask=offs < n)


@tkdebug.jit
def crowded(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    total = tl.sum(x, axis=0)
    tl.store(out_ptr + offs, x * total)


@tkdebug.jit
def divided(x_ptr, y_ptr, out_ptr, TWICE: tl.constexpr):
    offs = tl.arange(0, 128)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    out = x // y
    if TWICE:
        out += (x + 5) // (y + 7)
    tl.store(out_ptr + offs, out)
