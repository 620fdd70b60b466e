"""Kernels whose int32 offsets wrap or are negative remainders; `# WRAPS` and `# NEGATIVE` lines are
reported, the others not."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def rows(x_ptr, out_ptr, first, stride, n, BLOCK: tl.constexpr):
    row = first + tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n)  # WRAPS rows
    tl.store(out_ptr + tl.program_id(0) * BLOCK + cols, x)


@tkdebug.jit
def rows_in_int64(x_ptr, out_ptr, first, stride, n, BLOCK: tl.constexpr):
    row = first + tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + (row.to(tl.int64) * stride) % n + cols)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + cols, x)


@tkdebug.jit
def gathered(x_ptr, rows_ptr, out_ptr, stride, R: tl.constexpr, C: tl.constexpr):
    rows = tl.load(rows_ptr + tl.arange(0, R))
    cols = tl.arange(0, C)
    offs = rows[:, None] * stride + cols[None, :]  # WRAPS gathered
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + tl.arange(0, R)[:, None] * C + cols[None, :], x)


@tkdebug.jit
def offset_of(row, stride):
    return row * stride  # WRAPS offset_of


@tkdebug.jit
def carried(x_ptr, out_ptr, n, stride):
    offset = 0
    total = 0.0
    for _ in range(n):
        total += tl.load(x_ptr + offset)
        offset += offset_of(n, stride)  # CALL
    tl.store(out_ptr, total)


@tkdebug.jit
def hashed(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mixed = (offs + 7) * factor
    x = tl.load(x_ptr + tl.abs(mixed % n)) + tl.load(x_ptr + (mixed & (n - 1)))
    x += tl.load(x_ptr + ((mixed >> 3) & (n - 1)))
    tl.store(out_ptr + offs, x)


@tkdebug.jit
def masked_off(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs * stride, mask=offs < n, other=0.0)
    x += tl.load(x_ptr + tl.where(offs < n, offs * stride, 0))
    tl.store(out_ptr + offs, x)


@tkdebug.jit
def there_and_back(x_ptr, out_ptr, far, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK) + far
    offs = offs + far
    offs = offs - far
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.load(x_ptr + (offs - far)))


@tkdebug.jit
def unsigned(x_ptr, out_ptr, far, BLOCK: tl.constexpr):
    offs = (tl.arange(0, BLOCK) + far).to(tl.uint32) + far.to(tl.uint32)
    tl.store(
        out_ptr + tl.arange(0, BLOCK), tl.load(x_ptr + (offs.to(tl.int64) - 2 * far.to(tl.int64)))
    )


@tkdebug.jit
def remainders(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mixed = (offs + 7) * factor
    by_division = mixed - mixed // n * n
    by_division = tl.where(by_division < 0, by_division + n, by_division)
    by_shifts = mixed[:, None] - ((mixed >> 3) << 3)[:, None]
    by_bits = mixed - (mixed & -8)
    x = (
        tl.load(x_ptr + by_division)
        + tl.load(x_ptr + by_bits)
        + tl.sum(tl.load(x_ptr + by_shifts), 1)
    )
    tl.store(out_ptr + offs, x)


@tkdebug.jit
def differences(x_ptr, out_ptr, tile, factor, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    relative = (tile * factor + offs) - tile * factor
    between = (tile + 1) * factor - tile * factor - factor
    tl.store(out_ptr + offs, tl.load(x_ptr + relative + between))


@tkdebug.jit
def difference_of_one(x_ptr, out_ptr, row, stride, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + (row * stride - row + offs)))  # WRAPS difference


@tkdebug.jit
def aligned(x_ptr, out_ptr, row, stride, BY_BITS: tl.constexpr, BLOCK: tl.constexpr):
    offset = row * stride  # WRAPS aligned
    offset -= offset & 15 if BY_BITS else offset % 16
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offset + offs))


@tkdebug.jit
def hashed_and_negative(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slot = offs * factor % n  # WRAPS hashed_and_negative
    tl.store(out_ptr + offs, tl.load(x_ptr + slot, mask=offs < n))


@tkdebug.jit
def rolled(x_ptr, out_ptr, shift, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    source = (offs - shift) % n  # NEGATIVE
    tl.store(out_ptr + offs, tl.load(x_ptr + source, mask=offs < n), mask=offs < n)


@tkdebug.jit
def rolled_right(x_ptr, out_ptr, shift, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    source = (offs - shift) % n
    x = tl.load(x_ptr + tl.where(source < 0, source + n, source))
    x += tl.load(x_ptr + (source + n) % n)
    x += tl.load(x_ptr + source + tl.where(source < 0, n, 0))
    x += tl.load(x_ptr + source, mask=source >= 0, other=0.0)
    x += tl.load(x_ptr + tl.abs(source) % n)
    tl.store(out_ptr + offs, x + source)


@tkdebug.jit
def hashed_in_a_loop(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    state = tl.arange(0, BLOCK) + 1
    total = tl.zeros([BLOCK], tl.float32)
    for _ in range(4):
        state = state * factor + 12345
        slot = state % n
        total += tl.load(x_ptr + tl.where(slot < 0, -slot, slot))
        total += tl.load(x_ptr + (state - state // n * n), mask=slot >= 0)
    tl.store(out_ptr + tl.arange(0, BLOCK), total)


@tkdebug.jit
def next_of(x_ptr, places_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    place = tl.load(places_ptr + offs)
    x = tl.load(x_ptr + (place + 1))  # WRAPS next_of
    tl.store(out_ptr + offs, x)


@tkdebug.jit
def before(x_ptr, places_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    place = tl.load(places_ptr + offs)
    x = tl.load(x_ptr + (place - 1))  # WRAPS before
    tl.store(out_ptr + offs, x)
