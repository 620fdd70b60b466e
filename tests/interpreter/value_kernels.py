"""Kernels that make NaNs, or read what is undefined, in ways that matter and in ways that do not.

`# BAD name` marks the line that is reported in the case of that name; the other cases are right.
"""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def nan_bugs(x_ptr, out_ptr, n, CASE: tl.constexpr, BLOCK: tl.constexpr):
    """x is 1, 2, 3, ... n; lanes beyond are masked off."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    y = x
    if CASE == "log of a difference":
        y = tl.log(x - 2)  # BAD log of a difference
    elif CASE == "root of a variance":
        spread = tl.sum(x, 0) / n - tl.sum(x * x, 0) / n
        y = x / tl.sqrt(spread)  # BAD root of a variance
    elif CASE == "zero times infinity":
        y = (x - x) * (1 / (x - x))  # BAD zero times infinity
    elif CASE == "mean of nothing":
        chosen = tl.where(x > n + 1, 1.0, 0.0)
        y = tl.sum(chosen * x, 0) / tl.sum(chosen, 0)  # BAD mean of nothing
    elif CASE == "overflow over overflow":
        e = tl.exp(x * 100)
        y = e / tl.sum(e, 0)  # BAD overflow over overflow
    elif CASE == "difference of infinities":
        far = tl.where(mask, float("-inf"), 0.0)
        y = far - far  # BAD difference of infinities
    elif CASE == "reciprocal root":
        y = tl.rsqrt(1 - x * x)  # BAD reciprocal root
    elif CASE == "logarithm of a loss":
        y = tl.log2(1 - x)  # BAD logarithm of a loss
    elif CASE == "a running maximum of nothing":
        best = tl.full([BLOCK], float("-inf"), tl.float32)
        new_best = tl.maximum(best, tl.where(x < 0, x, float("-inf")))
        y = tl.exp(best - new_best)  # BAD a running maximum of nothing
    elif CASE == "a sum of infinities":
        y = 1 / (x - 1) + -1 / (x - 1)  # BAD a sum of infinities
    elif CASE == "right: masked off when it is stored":
        y = tl.sqrt(tl.where(mask, x, -1.0))
    elif CASE == "right: dropped by a choice":
        y = tl.where(x > 5, tl.sqrt(x - 5), 0.0)
    elif CASE == "right: overwritten":
        tl.store(out_ptr + row * n + cols, tl.sqrt(0 - x), mask=mask)
        tl.debug_barrier()
    elif CASE == "right: only compared":
        y = tl.where(tl.sqrt(0 - x) > 0, 1.0, 2.0)
    elif CASE == "right: a maximum that leaves it out":
        y = tl.maximum(tl.sqrt(2 - x), x)
    elif CASE == "right: written down":
        y = tl.where(x > 3, float("nan"), x)
    elif CASE == "right: a fill":
        y = tl.load(x_ptr + row * n + cols, mask=cols < 2, other=float("nan"))
    elif CASE == "right: made of bits":
        y = (x.to(tl.int32) * 0 + 0x7FC00000).to(tl.float32, bitcast=True)
    elif CASE == "right: a branch that is not taken":
        if tl.sum(x, 0) < 0:
            y = tl.sqrt(0 - x)
    elif CASE == "right: a guarded quotient":
        y = tl.where(x > 1, (x - 1) / tl.where(x > 1, x - 1, 1.0), 0.0)
    elif CASE == "right: a sum of what is left":
        y = x + tl.sum(tl.where(x > 2, tl.sqrt(x - 2), 0.0), 0)
    tl.store(out_ptr + row * n + cols, y, mask=mask)


@tkdebug.jit
def widened(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + cols
    x = tl.load(x_ptr + at, mask=cols < n).to(tl.float32)
    tl.store(out_ptr + at, x + 1, mask=cols < n)


@tkdebug.jit
def fresh_reads(x_ptr, fresh_ptr, out_ptr, n, CASE: tl.constexpr, BLOCK: tl.constexpr):
    """Writes into a tensor of 2 * n elements that nothing has written before."""
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = x
    if CASE == "added to":
        before = tl.load(fresh_ptr + offs, mask=mask)  # BAD added to
        tl.store(fresh_ptr + offs, before + x, mask=mask)
    elif CASE == "half of it written":
        tl.store(fresh_ptr + offs, x, mask=mask)
        y = tl.load(fresh_ptr + n + offs, mask=mask, other=0.0)  # BAD half of it written
    elif CASE == "a sum":
        y = x + tl.sum(tl.load(fresh_ptr + offs, mask=mask, other=0.0), 0)  # BAD a sum
    elif CASE == "a counter":
        tl.atomic_add(fresh_ptr + pid, 1.0)  # BAD a counter
    elif CASE == "a maximum":
        tl.atomic_max(fresh_ptr + offs, x, mask=mask)  # BAD a maximum
    elif CASE == "a round too many":
        for at in range(3):
            if at < 2:
                tl.store(fresh_ptr + at, x_ptr.to(tl.int64).to(tl.float32) * 0 + at)
            y += tl.load(fresh_ptr + at)  # BAD a round too many
    elif CASE == "one element beside":
        tl.store(fresh_ptr + offs, x, mask=mask)
        y = tl.load(fresh_ptr + offs + 1, mask=mask, other=0.0)  # BAD one element beside
    elif CASE == "a scalar":
        y = x * tl.load(fresh_ptr + 2 * n - 1)  # BAD a scalar
    elif CASE == "every second element":
        tl.store(fresh_ptr + 2 * offs, x, mask=mask)
        y = tl.load(fresh_ptr + offs, mask=mask, other=0.0)  # BAD every second element
    elif CASE == "another program's":
        if pid == 0:
            y = tl.load(fresh_ptr + n + offs, mask=mask, other=0.0)  # BAD another program's
        else:
            tl.store(fresh_ptr + n + offs, x, mask=mask)
    elif CASE == "right: written before":
        tl.store(fresh_ptr + offs, x, mask=mask)
        tl.debug_barrier()
        y = tl.load(fresh_ptr + offs, mask=mask, other=0.0)
    elif CASE == "right: masked off":
        y = x + tl.load(fresh_ptr + offs, mask=offs < 0, other=0.0)
    elif CASE == "right: not used":
        tl.load(fresh_ptr + offs, mask=mask)
    elif CASE == "right: exchanged":
        tl.atomic_xchg(fresh_ptr + offs, x, mask=mask)
    elif CASE == "right: written in a loop":
        for at in range(4):
            tl.store(fresh_ptr + at, 1.0)
            y += tl.load(fresh_ptr + at)
    elif CASE == "right: what is written of it":
        tl.store(fresh_ptr + 2 * offs, x, mask=mask)
        tl.debug_barrier()
        y = tl.load(fresh_ptr + 2 * offs, mask=mask, other=0.0)
    elif CASE == "right: only stored to":
        tl.store(fresh_ptr + n + offs, x, mask=mask)
    elif CASE == "right: a counter that is set first":
        tl.store(fresh_ptr + pid, 0.0)
        tl.debug_barrier()
        tl.atomic_add(fresh_ptr + pid, 1.0)
    elif CASE == "right: a row that is written in parts":
        tl.store(fresh_ptr + offs, x, mask=offs < 3)
        tl.store(fresh_ptr + offs, -x, mask=mask & (offs >= 3))
        tl.debug_barrier()
        y = tl.load(fresh_ptr + offs, mask=mask, other=0.0)
    elif CASE == "right: a branch that is not taken":
        if n < 0:
            y = tl.load(fresh_ptr + offs, mask=mask, other=0.0)
    tl.store(out_ptr + pid * n + offs, y, mask=mask)


@tkdebug.jit
def without_other(x_ptr, out_ptr, n, CASE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)  # BAD load
    y = x
    if CASE == "a sum":
        y = x + tl.sum(x, 0)
    elif CASE == "a maximum":
        y = x - tl.max(x, 0)
    elif CASE == "a scan from the end":
        y = tl.cumsum(x, 0, reverse=True)
    elif CASE == "a branch":
        if tl.max(x, 0) > 3:
            y = x + 1
    elif CASE == "a product of sums":
        y = x * (tl.sum(x, 0) + tl.sum(x * x, 0))
    elif CASE == "right: a choice":
        y = x + tl.sum(tl.where(mask, x, 0.0), 0)
    elif CASE == "right: a factor":
        y = x + tl.sum(x * mask.to(tl.float32), 0)
    elif CASE == "right: an addend":
        y = tl.exp(x + tl.where(mask, 0.0, float("-inf")))
        y = y / tl.sum(y, 0)
    elif CASE == "right: elementwise":
        y = tl.exp(x) * 2 + x
    elif CASE == "right: a scan":
        y = tl.cumsum(x, 0)
    elif CASE == "right: a mask of the next load":
        y = tl.load(x_ptr + offs, mask=mask & (x > 2), other=0.0)
    elif CASE == "right: chosen twice":
        y = tl.where(mask, x, 0.0)
        y = y - tl.max(tl.where(mask, y, float("-inf")), 0)
    elif CASE == "right: both masks":
        y = tl.where(mask & (x > 1), x, 0.0)
        y += tl.sum(y, 0)
    elif CASE == "right: an atomic with the mask":
        tl.atomic_add(out_ptr + offs, x, mask=mask)
    elif CASE == "right: a loop":
        total = tl.zeros([BLOCK], tl.float32)
        for _ in range(3):
            total += tl.where(mask, x, 0.0)
        y = total + tl.sum(total, 0)
    tl.store(out_ptr + offs, y, mask=mask)
