"""Kernels that the tests of the Debug pane stop in; lines have `# <name>` comments."""

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
    return doubled


@triton.jit
def tiled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, n, BLOCK):  # round
        x = tl.load(x_ptr + rows[:, None] * n + k + tl.arange(0, BLOCK)[None, :])  # load
        acc += scaled(x, 2.0)  # add
    if tl.program_id(0) > 1:
        acc = acc * 2  # doubled
    tl.store(out_ptr + rows, tl.sum(acc, axis=1))  # store
