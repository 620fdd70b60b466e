"""Correct kernels of many shapes, and the smallest kernels of bugs that were fixed."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def copy_1d(x_ptr, out_ptr, n, stride_x, stride_out, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs * stride_x, mask=mask)
    tl.store(out_ptr + offs * stride_out, x, mask=mask)


@tkdebug.jit
def copy_2d(x_ptr, out_ptr, m, n, sxm, sxn, som, son, M: tl.constexpr, N: tl.constexpr):
    r = tl.program_id(1) * M + tl.arange(0, M)
    c = tl.program_id(0) * N + tl.arange(0, N)
    mask = (r[:, None] < m) & (c[None, :] < n)
    x = tl.load(x_ptr + r[:, None] * sxm + c[None, :] * sxn, mask=mask)
    tl.store(out_ptr + r[:, None] * som + c[None, :] * son, x, mask=mask)


@tkdebug.jit
def copy_3d(x_ptr, out_ptr, a, b, c, s0, s1, s2, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(2) * A + tl.arange(0, A)[:, None, None]
    j = tl.program_id(1) * B + tl.arange(0, B)[None, :, None]
    k = tl.program_id(0) * C + tl.arange(0, C)[None, None, :]
    mask = (i < a) & (j < b) & (k < c)
    x = tl.load(x_ptr + i * s0 + j * s1 + k * s2, mask=mask, other=-1)
    tl.store(out_ptr + (i * b + j) * c + k, x, mask=mask)


@tkdebug.jit
def reversed_copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + (n - 1 - offs), tl.load(x_ptr + offs, mask=mask), mask=mask)


@tkdebug.jit
def windows(x_ptr, out_ptr, rows, W: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, W)
    mask = r[:, None] < rows
    x = tl.load(x_ptr + r[:, None] + k[None, :], mask=mask)
    tl.store(out_ptr + r[:, None] * W + k[None, :], x, mask=mask)


@tkdebug.jit
def both_sides(x_ptr, out_ptr, n, shift, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = offs - shift
    x = tl.load(x_ptr + at, mask=(at >= 0) & (at < n), other=-7.0)
    tl.store(out_ptr + offs, x, mask=offs < n)


@tkdebug.jit
def stencil(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x_ptr + offs - 1, mask=(offs > 0) & (offs <= n), other=0.0)
    right = tl.load(x_ptr + offs + 1, mask=offs + 1 < n, other=0.0)
    tl.store(out_ptr + offs, left + right, mask=offs < n)


@tkdebug.jit
def band(x_ptr, out_ptr, n, N: tl.constexpr):
    r = tl.arange(0, N)[:, None]
    c = tl.arange(0, N)[None, :]
    mask = (r < n) & (c <= r) & (c > r - 3)
    x = tl.load(x_ptr + r * n + c, mask=mask, other=0.0)
    tl.store(out_ptr + r * n + c, x, mask=(r < n) & (c < n))


@tkdebug.jit
def nothing_to_do(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid * BLOCK >= n:
        return
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@tkdebug.jit
def guarded_scalar(x_ptr, out_ptr, n):
    pid = tl.program_id(0)
    if pid < n:
        tl.store(out_ptr + pid, tl.load(x_ptr + pid) + 1)


@tkdebug.jit
def persistent(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offs = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 2, mask=offs < n)


@tkdebug.jit
def ragged(x_ptr, starts_ptr, out_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    start, stop = tl.load(starts_ptr + pid), tl.load(starts_ptr + pid + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(start, stop, BLOCK):
        offs = k + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offs, mask=offs < stop, other=0.0)
    tl.store(out_ptr + pid, tl.sum(total))


@tkdebug.jit
def carried_pointers(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    source = x_ptr + pid * stride + offs
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, tl.cdiv(n, BLOCK)):
        total += tl.load(source, mask=offs < n - k * BLOCK, other=0.0)
        source += BLOCK
    tl.store(out_ptr + pid * BLOCK + offs, total)


@tkdebug.jit
def stored_at_one_place(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + offs), tl.load(b_ptr + offs)
    tl.store(out_ptr + tl.program_id(0) + offs * 0, a + b)


@tkdebug.jit
def stored_across(a_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    """Rows two apart and columns six apart meet: 3 * 2 is 1 * 6."""
    r, c = tl.arange(0, R), tl.arange(0, C)
    a = tl.load(a_ptr + r[:, None] * C + c[None, :])
    tl.store(out_ptr + r[:, None] * 2 + c[None, :] * 6, a)


@tkdebug.jit
def stored_repeated(a_ptr, b_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, C)
    a = tl.load(a_ptr + r[:, None] * C + c[None, :])
    b = tl.load(b_ptr + r[:, None] * C + c[None, :])
    tl.store(out_ptr + tl.program_id(0) * R + r[:, None] + c[None, :] * 0, a * b)


@tkdebug.jit
def in_place(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    before = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, before * 2, mask=mask)
    after = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, after + before, mask=mask)


@tkdebug.jit
def swap_halves(x_ptr, HALF: tl.constexpr):
    base = tl.program_id(0) * 2 * HALF
    offs = tl.arange(0, HALF)
    low = tl.load(x_ptr + base + offs)
    high = tl.load(x_ptr + base + HALF + offs)
    tl.store(x_ptr + base + offs, high)
    tl.store(x_ptr + base + HALF + offs, low)


@tkdebug.jit
def divide_int(x_ptr, y_ptr, q_ptr, r_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x, y = tl.load(x_ptr + offs, mask=mask), tl.load(y_ptr + offs, mask=mask, other=1)
    tl.store(q_ptr + offs, x // y, mask=mask)
    tl.store(r_ptr + offs, x % y, mask=mask)


@tkdebug.jit
def divide_scalars(x_ptr, y_ptr, q_ptr, r_ptr):
    pid = tl.program_id(0)
    x, y = tl.load(x_ptr + pid), tl.load(y_ptr + pid)
    tl.store(q_ptr + pid, x // y)
    tl.store(r_ptr + pid, x % y)


@tkdebug.jit
def compare_scalars(x_ptr, y_ptr, out_ptr):
    pid = tl.program_id(0)
    x, y = tl.load(x_ptr + pid), tl.load(y_ptr + pid)
    bits = (x < y).to(tl.int32) + 2 * (x <= y).to(tl.int32) + 4 * (x == y).to(tl.int32)
    bits += 8 * (x > y).to(tl.int32) + 16 * (x >= y).to(tl.int32) + 32 * (x != y).to(tl.int32)
    tl.store(out_ptr + pid, bits)


@tkdebug.jit
def compare_tile_to_scalar(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    x = tl.load(x_ptr + pid) + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + pid)
    tl.store(out_ptr + pid * BLOCK + tl.arange(0, BLOCK), (x < y).to(tl.int32))


@tkdebug.jit
def argmax_of(x_ptr, value_ptr, index_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    value, index = tl.max(x, axis=0, return_indices=True)
    tl.store(value_ptr, value)
    tl.store(index_ptr, index)
    low, where = tl.min(x, axis=0, return_indices=True)
    tl.store(value_ptr + 1, low)
    tl.store(index_ptr + 1, where)


@tkdebug.jit
def compose(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@tkdebug.jit
def compose_all(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    a, b = tl.load(a_ptr + offs), tl.load(b_ptr + offs)
    x, y = tl.reduce((a, b), 0, compose)
    tl.store(out_ptr + tl.program_id(0) * 2, x)
    tl.store(out_ptr + tl.program_id(0) * 2 + 1, y)


@tkdebug.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@tkdebug.jit
def reduce_of_one(x_ptr, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = -tl.load(x_ptr + offs[:, None])
    top = tl.reduce(x, 1, larger)
    y = tl.exp(x)
    tl.store(out_ptr + offs, top)
    tl.store(out_ptr + N + offs[:, None], y)


@tkdebug.jit
def fill_of_reused_operand(x_ptr, out_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    s = tl.load(x_ptr + tl.program_id(0))
    column = tl.exp(tl.zeros((N,), tl.float32) + s)
    row = tl.load(x_ptr + offs, mask=offs < n, other=3.0)
    difference = column - row
    tl.store(out_ptr + tl.program_id(0) * N + offs, tl.exp(difference))


@tkdebug.jit
def atomics_in_order(out_ptr, old_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.atomic_add(out_ptr + offs % BINS, offs + 1, mask=offs < n)
    tl.store(old_ptr + offs, old, mask=offs < n)


@tkdebug.jit
def lock_in_the_body(lock_ptr, out_ptr):
    taken = tl.atomic_cas(lock_ptr, 0, 1)
    while taken == 1:
        taken = tl.atomic_cas(lock_ptr, 0, 1)
    tl.store(out_ptr, tl.load(out_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)


@tkdebug.jit
def grouped(pointers_ptr, sizes_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    x = tl.load(pointers_ptr + 2 * pid).to(tl.pointer_type(tl.float32))
    y = tl.load(pointers_ptr + 2 * pid + 1).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, BLOCK)
    mask = offs < tl.load(sizes_ptr + pid)
    tl.store(y + offs, tl.load(x + offs, mask=mask) * 2, mask=mask)


@tkdebug.jit
def unsigned_offsets(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.uint32)
    # n - 2**31 more than fits int32 when read as signed.
    big = offs + 2147483648
    tl.store(out_ptr + (big - 2147483648), tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@tkdebug.jit
def pointer_by_branch(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    if pid % 2 == 0:
        source = x_ptr + offs
    else:
        source = y_ptr + offs * 2
    tl.store(out_ptr + pid * BLOCK + offs, tl.load(source))


@tkdebug.jit
def reinterpret(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    words = tl.load(x_ptr.to(tl.pointer_type(tl.int32)) + offs, mask=offs < n)
    halves = tl.load(x_ptr.to(tl.pointer_type(tl.int16)) + 2 * offs + 1, mask=offs < n)
    tl.store(out_ptr + 2 * offs, words, mask=offs < n)
    tl.store(out_ptr + 2 * offs + 1, halves.to(tl.int32), mask=offs < n)


@tkdebug.jit
def fp8_copy(x_ptr, out_ptr, index_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    index = tl.load(index_ptr + offs, mask=mask, other=0)
    x = tl.load(x_ptr + index, mask=mask)
    y = tl.load(x_ptr + offs, mask=mask, other=1.0)
    tl.store(out_ptr + index, tl.where(offs % 2 == 0, x, y), mask=mask)


@tkdebug.jit
def bool_memory(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=True)
    tl.store(out_ptr + offs, ~x & (offs % 3 != 0), mask=offs < n)


@tkdebug.jit
def grid_barrier(counter_ptr):
    tl.atomic_add(counter_ptr, 1)
    while tl.load(counter_ptr, volatile=True) < tl.num_programs(0):
        pass


@tkdebug.jit
def work_queue(queue_ptr, out_ptr, n):
    item = tl.atomic_add(queue_ptr, 1)
    while item < n:
        tl.store(out_ptr + item, item * item)
        item = tl.atomic_add(queue_ptr, 1)


@tkdebug.jit
def shifted_in_place(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    before = tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, before * 0 - 1)
    tl.store(out_ptr + offs, before)


@tkdebug.jit
def float_atomics(x_ptr, out_ptr, old_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    if KIND == "add":
        old = tl.atomic_add(out_ptr + offs % 3, x, mask=mask)
    elif KIND == "max":
        old = tl.atomic_max(out_ptr + offs % 3, x, mask=mask)
    elif KIND == "min":
        old = tl.atomic_min(out_ptr + offs % 3, x, mask=mask)
    else:
        old = tl.atomic_xchg(out_ptr + offs % 3, x, mask=mask)
    tl.store(old_ptr + offs, old, mask=mask)


@tkdebug.jit
def compare_and_swap(out_ptr, old_ptr, x_ptr):
    pid = tl.program_id(0)
    x = tl.load(x_ptr + pid)
    tl.store(old_ptr + pid, tl.atomic_cas(out_ptr, x, x + 1))


@tkdebug.jit
def random_numbers_64(out_ptr, BLOCK: tl.constexpr):
    """A linear congruential generator, whose constants are about as large as int64."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = (offs + 5).to(tl.int64) * 6364136223846793005 + 1442695040888963407
    state = state * -7046029254386353131 - state * 3
    tl.store(out_ptr + offs, state)


@tkdebug.jit
def rows_of_either(a_ptr, b_ptr, out_ptr, stride, A: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    if tl.program_id(1) == 0:
        size = A
        row_ptr = a_ptr + row * stride
    else:
        size = B
        row_ptr = b_ptr + row * stride
    at = tl.arange(0, B)
    x = tl.load(row_ptr + at, mask=at < size, other=0.0)
    tl.store(out_ptr + (row * 2 + tl.program_id(1)) * B + at, x)
