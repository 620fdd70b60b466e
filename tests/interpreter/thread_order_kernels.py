"""Kernels whose threads pass values through memory: ten that nothing orders, and their like."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def reversed_back(scratch, out, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # Stores a row and loads it from its end.
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * BLOCK
    tl.store(scratch + row + i, i * 1.0)  # FIRST reversed_back
    if HOW == "barrier":
        tl.debug_barrier()
    x = tl.load(scratch + row + BLOCK - 1 - i)  # SECOND reversed_back
    tl.store(out + row + i, x)


@tkdebug.jit
def rows_then_tile(state, out, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # Loads the rows of a state one by one, then overwrites them as a tile, one row up.
    i, rows = tl.arange(0, BLOCK), tl.arange(0, ROWS)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in tl.static_range(ROWS):
        total += tl.load(state + row * dim + i)  # FIRST rows_then_tile
    tile = state + rows[:, None] * dim + i[None, :]
    if HOW == "barrier":
        tl.debug_barrier()
    fresh = (rows[:, None] * 1.0 + i[None, :]).to(tl.float32)
    tl.store(tile, fresh)  # SECOND rows_then_tile
    tl.store(out + i, total)


@tkdebug.jit
def shifted_in_place(x, n, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # One program moves its row down by one element.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i + 1, mask=i + 1 < n)  # FIRST shifted_in_place
    if HOW == "barrier":
        tl.debug_barrier()
    tl.store(x + i, values, mask=i + 1 < n)  # SECOND shifted_in_place


@tkdebug.jit
def rows_cleared(x, out, ROWS: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # Loads the first half of each row as a tile, then clears all rows as one vector.
    rows, i, every = tl.arange(0, ROWS), tl.arange(0, BLOCK), tl.arange(0, 2 * ROWS * BLOCK)
    tile = tl.load(x + rows[:, None] * 2 * BLOCK + i[None, :])  # FIRST rows_cleared
    if HOW == "barrier":
        tl.debug_barrier()
    tl.store(x + every, 0.0)  # SECOND rows_cleared
    tl.store(out + rows[:, None] * BLOCK + i[None, :], tile)


@tkdebug.jit
def transposed_in_place(x, N: tl.constexpr):
    # The values go to other threads through shared memory, which orders these.
    i = tl.arange(0, N)
    tile = tl.load(x + i[:, None] * 2 * N + i[None, :])
    tl.store(x + i[:, None] + i[None, :] * 2 * N, tile)


@tkdebug.jit
def by_columns_and_rows(x, out, N: tl.constexpr):
    # Threads have the same places of memory in both tiles.
    i = tl.arange(0, N)
    by_rows, by_columns = i[:, None] * N + i[None, :], i[:, None] + i[None, :] * N
    tile = tl.load(x + by_rows)
    tl.store(x + by_columns, (by_rows * 2).to(tl.float32))
    tl.store(out + by_rows, tile)


@tkdebug.jit
def scalar_read_by_all(flag, out, value, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # The first thread stores what all threads load.
    i = tl.arange(0, BLOCK)
    pid = tl.program_id(0)
    tl.store(flag + pid, value)  # FIRST scalar_read_by_all
    if HOW == "barrier":
        tl.debug_barrier()
    elif HOW == "atomic":
        tl.atomic_add(out + pid * BLOCK, 0.0)
    x = tl.load(flag + pid)  # SECOND scalar_read_by_all
    if HOW == "one":
        tl.store(out + pid * BLOCK, x)
    else:
        tl.store(out + pid * BLOCK + i, x + i)


@tkdebug.jit
def counter_taken_by_all(counter, out, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # All threads load a place that the first one moves on.
    i = tl.arange(0, BLOCK)
    at = tl.load(counter)  # FIRST counter_taken_by_all
    if HOW == "barrier":
        tl.debug_barrier()
    tl.store(counter, at + 1)  # SECOND counter_taken_by_all
    if HOW != "alone":
        tl.store(out + at * BLOCK + i, i)


@tkdebug.jit
def halves_combined(x, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # A tree in memory: each round adds the upper half of what is left to the lower one.
    pid = tl.program_id(0) * BLOCK
    for step in tl.static_range(3):
        half = BLOCK >> (step + 1)
        i = tl.arange(0, BLOCK >> (step + 1))
        low = tl.load(x + pid + i)
        high = tl.load(x + pid + half + i)  # SECOND halves_combined
        tl.store(x + pid + i, low + high)  # FIRST halves_combined
        if HOW == "barrier":
            tl.debug_barrier()


@tkdebug.jit
def scan_in_rounds(x, rounds, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # Each round loads what another thread stored in the round before.
    i = tl.arange(0, BLOCK)
    step = 1
    for _ in range(rounds):
        own = tl.load(x + i)
        left = tl.load(x + i - step, mask=i >= step, other=0.0)  # FIRST scan_in_rounds
        if HOW == "barriers":
            tl.debug_barrier()
        tl.store(x + i, own + left)  # SECOND scan_in_rounds
        if HOW == "barriers":
            tl.debug_barrier()
        step *= 2


@tkdebug.jit
def two_stores(out, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # Which of two values stays depends on the threads.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    last = tl.program_id(0) * BLOCK + BLOCK - 1
    tl.store(out + i, i)  # FIRST two_stores
    if HOW == "barrier":
        tl.debug_barrier()
    if HOW == "same":
        tl.store(out + i, 2 * i)
    else:
        tl.store(out + last, -1)  # SECOND two_stores


@tkdebug.jit
def gathered_back(table, order, out, BLOCK: tl.constexpr, HOW: tl.constexpr):
    # A permutation through memory.
    i = tl.arange(0, BLOCK)
    to = tl.load(order + i)
    tl.store(table + to, i * 1.0)  # FIRST gathered_back
    if HOW == "sum":
        # Across warps, through shared memory.
        total = tl.sum(to * 1.0, 0)
        x = tl.load(table + i)
        tl.store(out + i, x + total)
    elif HOW == "back":
        tl.store(out + i, tl.load(table + to))
    else:
        x = tl.load(table + i)  # SECOND gathered_back
        tl.store(out + i, x)


# More look-alikes


@tkdebug.jit
def softmax_in_place(x, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0) * n, tl.arange(0, BLOCK)
    values = tl.load(x + row + i, mask=i < n, other=-float("inf"))
    e = tl.exp(values - tl.max(values, 0))
    tl.store(x + row + i, e / tl.sum(e, 0), mask=i < n)


@tkdebug.jit
def halves_rotated(x, HALF: tl.constexpr):
    # Each thread stores what it has loaded, in both halves.
    i = tl.arange(0, HALF)
    row = tl.program_id(0) * 2 * HALF
    a, b = tl.load(x + row + i), tl.load(x + row + HALF + i)
    tl.store(x + row + i, a * 0.5 - b)
    tl.store(x + row + HALF + i, b * 0.5 + a)


@tkdebug.jit
def two_passes(x, scratch, out, n, BLOCK: tl.constexpr):
    # The second pass loads what each thread stored in the first one.
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        e = tl.exp(tl.load(x + row + start + i))
        tl.store(scratch + row + start + i, e)
        total += e
    whole = tl.sum(total, 0)
    for start in range(0, n, BLOCK):
        tl.store(out + row + start + i, tl.load(scratch + row + start + i) / whole)


@tkdebug.jit
def other_rows(x, BLOCK: tl.constexpr):
    # Loads rows and stores others.
    i, rows = tl.arange(0, BLOCK), tl.arange(0, 4)
    first = tl.load(x + i)
    second = tl.load(x + BLOCK + i)
    tile = x + (2 + rows[:, None]) * BLOCK + i[None, :]
    tl.store(tile, (first + second)[None, :] + rows[:, None])


@tkdebug.jit
def accumulated(x, out, rounds, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for step in range(rounds):
        tl.store(out + i, tl.load(out + i) + tl.load(x + step * BLOCK + i))


@tkdebug.jit
def product_in_place(a, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    factor, before = tl.load(a + at), tl.load(c + at)
    tl.store(c + at, tl.dot(factor, before))


@tkdebug.jit
def updated(param, grad, moment, step, n, BLOCK: tl.constexpr):
    # An optimiser: three tensors in place, and a step that only its thread moves on.
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    m = tl.load(moment + i, mask=mask) * 0.9 + tl.load(grad + i, mask=mask)
    tl.store(moment + i, m, mask=mask)
    tl.store(param + i, tl.load(param + i, mask=mask) - m, mask=mask)
    if tl.program_id(0) == 0:
        tl.store(step, tl.load(step) + 1)


@tkdebug.jit
def shifted_at_one_line(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i + 1))  # ONCE shifted_at_one_line


@tkdebug.jit
def turned_in_rounds(x, rounds, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    first = tl.load(x + i)
    tl.debug_barrier()
    for step in range(rounds):
        j = tl.where(step % 2 == 0, i, BLOCK - 1 - i)
        tl.store(x + j, first + step)  # ROUNDS turned_in_rounds


@tkdebug.jit
def counted_by_one(step, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    count = tl.broadcast_to(tl.load(step), [BLOCK])
    place, mine = step + tl.zeros_like(i), i % 64 < n - 1 + (i == 0)
    tl.store(place, count + 1, mask=mine)  # COUNT counted_by_one


@tkdebug.jit
def ragged_rows(x, lengths, N: tl.constexpr, BLOCK: tl.constexpr):
    length = tl.load(lengths + tl.program_id(0))
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        row = x + tl.program_id(0) * N
        tl.store(row + i, tl.load(row + N - 1 - i, mask=i < length) * 2, mask=i < length)


@tkdebug.jit
def crossed(a, b, scale, other_scale, out, BLOCK: tl.constexpr):
    # Two arguments that may be one tensor.
    i = tl.arange(0, BLOCK)
    tl.store(a + i, i * tl.load(scale))  # FIRST crossed
    x = tl.load(b + BLOCK - 1 - i) * tl.load(other_scale)  # SECOND crossed
    tl.store(out + i, x)
