"""Kernels with one mistake each; `# FAULT` marks the line that must be reported."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def missing_mask(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)  # FAULT missing_mask
    tl.store(out_ptr + offs, x, mask=offs < n)


@tkdebug.jit
def wrong_mask(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs <= n
    x = tl.load(x_ptr + offs, mask=mask)  # FAULT wrong_mask load
    tl.store(out_ptr + offs, x, mask=mask)  # FAULT wrong_mask store


@tkdebug.jit
def wrong_stride(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    x = tl.load(x_ptr + row + cols, mask=cols < n)
    tl.store(out_ptr + row + cols, x, mask=cols < n)  # FAULT wrong_stride


@tkdebug.jit
def negative_index(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs - 1, mask=offs < n)  # FAULT negative_index
    tl.store(out_ptr + offs, x, mask=offs < n)


@tkdebug.jit
def read_row(ptr, offs):
    return tl.load(ptr + offs)  # FAULT read_row


@tkdebug.jit
def scaled_row(ptr, offs):
    return 2 * read_row(ptr, offs)  # CALL scaled_row


@tkdebug.jit
def in_device_function(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = scaled_row(x_ptr, offs)  # CALL in_device_function
    tl.store(out_ptr + offs, y, mask=offs < n)


@tkdebug.jit
def unmasked_store(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x)  # FAULT unmasked_store


@tkdebug.jit
def histogram(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.load(x_ptr + offs, mask=offs < n)
    tl.atomic_add(out_ptr + bins, 1, mask=offs < n)  # FAULT histogram


@tkdebug.jit
def wrong_rows(x_ptr, out_ptr, rows, cols, stride, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(1) * R + tl.arange(0, R)
    c = tl.program_id(0) * C + tl.arange(0, C)
    offs = r[:, None] * stride + c[None, :]
    x = tl.load(x_ptr + offs, mask=c[None, :] < cols)  # FAULT wrong_rows
    tl.store(out_ptr + offs, x, mask=(r[:, None] < rows) & (c[None, :] < cols))


@tkdebug.jit
def copy_2d(x_ptr, out_ptr, rows, cols, sr, sc, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(1) * R + tl.arange(0, R)
    c = tl.program_id(0) * C + tl.arange(0, C)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + r[:, None] * sr + c[None, :] * sc, mask=mask)  # FAULT copy_2d
    tl.store(out_ptr + r[:, None] * cols + c[None, :], x, mask=mask)


@tkdebug.jit
def last_iteration(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, tl.cdiv(n, BLOCK)):
        offs = k * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + pid * n + offs)  # FAULT last_iteration
    tl.store(out_ptr + pid, tl.sum(total))


@tkdebug.jit
def per_program_trips(x_ptr, out_ptr, counts_ptr, stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    count = tl.load(counts_ptr + pid)
    total = 0.0
    for k in range(0, count, BLOCK):
        total += tl.sum(tl.load(x_ptr + pid * stride + k + tl.arange(0, BLOCK)))  # FAULT trips
    tl.store(out_ptr + pid, total)


@tkdebug.jit
def under_branch(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    if pid % 2 == 1:
        x = tl.load(x_ptr + offs)  # FAULT under_branch
    else:
        x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + offs, x, mask=offs < n)


@tkdebug.jit
def block_pointer(
    x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr, CHECK: tl.constexpr
):
    r, c = tl.program_id(1) * R, tl.program_id(0) * C
    block = tl.make_block_ptr(x_ptr, (rows, cols), (cols, 1), (r, c), (R, C), (1, 0))
    out = tl.make_block_ptr(out_ptr, (rows, cols), (cols, 1), (r, c), (R, C), (1, 0))
    x = tl.load(block, boundary_check=CHECK)  # FAULT block_pointer
    tl.store(out, x, boundary_check=(0, 1))


@tkdebug.jit
def descriptor(x_ptr, out_ptr, rows, cols, claimed, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.program_id(1) * R, tl.program_id(0) * C
    source = tl.make_tensor_descriptor(x_ptr, (claimed, cols), (cols, 1), (R, C))
    target = tl.make_tensor_descriptor(out_ptr, (rows, cols), (cols, 1), (R, C))
    target.store([r, c], source.load([r, c]))  # FAULT descriptor


@tkdebug.jit
def int32_overflow(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + (pid * stride + offs))  # FAULT int32_overflow
    tl.store(out_ptr + pid * BLOCK + offs, x)


@tkdebug.jit
def locked(lock_ptr, x_ptr, out_ptr, n):
    pid = tl.program_id(0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr, tl.load(out_ptr) + tl.load(x_ptr + pid))  # FAULT locked
    tl.atomic_xchg(lock_ptr, 0)


@tkdebug.jit
def gather_rows(x_ptr, index_ptr, out_ptr, n, stride, R: tl.constexpr, C: tl.constexpr):
    rows = tl.program_id(0) * R + tl.arange(0, R)
    cols = tl.arange(0, C)
    keep = rows < n
    index = tl.load(index_ptr + rows, mask=keep, other=0)
    x = tl.load(x_ptr + index[:, None] * stride + cols[None, :], mask=keep[:, None])  # FAULT gather
    tl.store(out_ptr + rows[:, None] * C + cols[None, :], x, mask=keep[:, None])


@tkdebug.jit
def stale_address(address_ptr, out_ptr, BLOCK: tl.constexpr):
    x_ptr = tl.load(address_ptr).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs))  # FAULT stale_address


@tkdebug.jit
def three_axes(x_ptr, out_ptr, nx, ny, nz, BLOCK: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    offs = x * BLOCK + tl.arange(0, BLOCK)
    at = (z * ny + y) * nx + offs
    v = tl.load(x_ptr + at, mask=offs < nx)  # FAULT three_axes
    tl.store(out_ptr + at, v, mask=offs < nx)


@tkdebug.jit
def positional_masks(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None if EVEN else offs < n
    x = tl.load(x_ptr + offs, mask)  # FAULT positional load
    tl.store(out_ptr + offs, x, offs < n + 1)  # FAULT positional store


@tkdebug.jit
def masks_of_one_line(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(x_ptr + offs, mask=offs < n) + tl.load(y_ptr + offs, mask=offs <= n)  # FAULT two
    tl.store(out_ptr + offs, z, mask=offs < n)


@tkdebug.jit
def one_element(index_ptr, out_ptr):
    pid = tl.program_id(0)
    at = tl.load(index_ptr + pid + 1)  # FAULT one_element
    tl.atomic_add(out_ptr + at + pid, 1)  # FAULT one_atomic


@tkdebug.jit
def wrong_row(x_ptr, out_ptr, stride, CHECK: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) + 1
    if CHECK:
        block = tl.make_block_ptr(x_ptr + row * stride, (stride,), (1,), (0,), (BLOCK,), (0,))
        x = tl.load(block, boundary_check=(0,))  # FAULT wrong_row block
    else:
        offs = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + offs)  # FAULT wrong_row
    tl.store(out_ptr + (row - 1) * BLOCK + tl.arange(0, BLOCK), x)


@tkdebug.jit
def wrapped_product(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + (pid // 2 * 2 * stride + offs))
    tl.store(out_ptr + pid * BLOCK + offs, x)


@tkdebug.jit
def cast_pointer(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wide = x_ptr.to(tl.pointer_type(tl.float64))
    x = tl.load(wide + offs, mask=offs < n)  # FAULT cast_pointer
    tl.store(out_ptr + offs, x.to(tl.float32), mask=offs < n)


@tkdebug.jit
def constant_mask(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    offs = tl.program_id(0) * BLOCK + cols
    x = tl.load(x_ptr + offs, mask=cols < n)  # FAULT constant_mask
    tl.store(out_ptr + offs, x)


@tkdebug.jit
def strided(b_ptr, out_ptr, K, N, sbk, sbn, B: tl.constexpr):
    k = tl.arange(0, B)[:, None]
    n = tl.program_id(0) * B + tl.arange(0, B)[None, :]
    rows = b_ptr + k * sbk
    x = tl.load(rows + n * sbn, mask=(k < K) & (n < N))  # FAULT strided
    tl.store(out_ptr + k * B * 3 + n, x)


@tkdebug.jit
def gathered(x_ptr, index_ptr, out_ptr, N: tl.constexpr, M: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    index = tl.load(index_ptr + tl.arange(0, M))
    tl.store(out_ptr + tl.arange(0, M), tl.gather(x, index, 0))  # FAULT gathered


@tkdebug.jit
def words_of_rows(x_ptr, out_ptr, stride, n, B: tl.constexpr):
    words = x_ptr.to(tl.pointer_type(tl.int32)) + tl.program_id(0) * stride
    i = tl.arange(0, B)
    x = tl.load(words + i, mask=i < n)  # FAULT words_of_rows
    tl.store(out_ptr + tl.program_id(0) * B + i, x)
