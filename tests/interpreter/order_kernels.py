"""Kernels whose programs put each other in order, rightly and wrongly.

With `BUG`, one kernel has both forms: "" is right, and comments mark the lines of the others.
"""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def split_k(x, parts, count, out, BUG: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    # Each program sums its share of a row; the last one to arrive adds the shares.
    row, split = tl.program_id(0), tl.program_id(1)
    cols = tl.arange(0, BLOCK)
    acc = tl.load(x + (row * SPLITS + split) * BLOCK + cols)
    place = parts + (row * SPLITS + split) * BLOCK + cols
    if BUG == "counted first":
        arrived = tl.atomic_add(count + row, 1)  # COUNT split_k counted first
        tl.store(place, acc)  # STORE split_k counted first
    elif BUG == "relaxed":
        tl.store(place, acc)  # STORE split_k relaxed
        tl.debug_barrier()
        arrived = tl.atomic_add(count + row, 1, sem="relaxed")  # COUNT split_k relaxed
    elif BUG == "acquire only":
        tl.store(place, acc)  # STORE split_k acquire only
        arrived = tl.atomic_add(count + row, 1, sem="acquire")  # COUNT split_k acquire only
    elif BUG == "release only":
        tl.store(place, acc)  # STORE split_k release only
        arrived = tl.atomic_add(count + row, 1, sem="release")  # COUNT split_k release only
    elif BUG == "cta":
        tl.store(place, acc)  # STORE split_k cta
        arrived = tl.atomic_add(count + row, 1, scope="cta")  # COUNT split_k cta
    elif BUG == "not counted":
        tl.store(place, acc)  # STORE split_k not counted
        tl.atomic_add(count + row, 1)  # COUNT split_k not counted
        arrived = split
    else:
        tl.store(place, acc)  # STORE split_k
        tl.debug_barrier()
        arrived = tl.atomic_add(count + row, 1)  # COUNT split_k
    wanted = SPLITS - 1
    if BUG == "one too early":
        wanted = SPLITS - 2
    if arrived == wanted:
        total = tl.zeros([BLOCK], tl.float32)
        for other in range(SPLITS):
            total += tl.load(parts + (row * SPLITS + other) * BLOCK + cols)  # LOAD split_k
        tl.store(out + row * BLOCK + cols, total)
        tl.store(count + row, 0)


@tkdebug.jit
def locked_sum(x, lock, out, BUG: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    value = tl.load(x + pid * BLOCK + cols)
    if BUG == "loaded outside":
        old = tl.load(out + cols)  # LOAD locked_sum loaded outside
    if BUG == "relaxed":
        while tl.atomic_cas(lock, 0, 1, sem="relaxed") == 1:
            pass
    elif BUG == "exchange":
        while tl.atomic_xchg(lock, 1) == 1:
            pass
    elif BUG == "acquire and release":
        while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
            pass
    elif BUG == "two locks":
        while tl.atomic_cas(lock + pid % 2, 0, 1) == 1:
            pass
    else:
        while tl.atomic_cas(lock, 0, 1) == 1:  # LOCK locked_sum
            pass
    if BUG != "loaded outside":
        old = tl.load(out + cols)  # LOAD locked_sum
    if BUG == "unlocked first":
        tl.atomic_xchg(lock, 0)
    tl.store(out + cols, old + value)  # STORE locked_sum
    tl.debug_barrier()
    if BUG == "relaxed":
        tl.atomic_xchg(lock, 0, sem="relaxed")
    elif BUG == "acquire and release":
        tl.atomic_xchg(lock, 0, sem="release")
    elif BUG == "two locks":
        tl.atomic_xchg(lock + pid % 2, 0)
    elif BUG == "unlocked plainly":
        tl.store(lock, 0)  # UNLOCK locked_sum unlocked plainly
    elif BUG != "unlocked first":
        tl.atomic_xchg(lock, 0)


@tkdebug.jit
def fence():
    tl.inline_asm_elementwise(
        "fence.acq_rel.gpu; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )


@tkdebug.jit
def grid_barrier(arrived, x, phases, BUG: tl.constexpr, BLOCK: tl.constexpr):
    pid, count = tl.program_id(0), tl.num_programs(0)
    cols = tl.arange(0, BLOCK)
    for phase in range(phases):
        row = phase * count
        own = tl.load(x + (row + pid) * BLOCK + cols)
        other = tl.load(x + (row + (pid + 1) % count) * BLOCK + cols)  # LOAD grid_barrier
        if BUG == "arrives first":
            tl.atomic_add(arrived, 1)
        tl.store(x + (row + count + pid) * BLOCK + cols, own + other)  # STORE grid_barrier
        tl.debug_barrier()
        if BUG == "relaxed arrival":
            tl.atomic_add(arrived, 1, sem="relaxed")
        elif BUG != "arrives first":
            tl.atomic_add(arrived, 1, sem="release")
        if BUG == "relaxed poll":
            while tl.atomic_add(arrived, 0, sem="relaxed") < count * (phase + 1):
                pass
        elif BUG == "relaxed poll, then acquire":
            while tl.atomic_add(arrived, 0, sem="relaxed") < count * (phase + 1):
                pass
            tl.atomic_add(arrived, 0, sem="acquire")
        elif BUG == "fence":
            while tl.atomic_add(arrived, 0, sem="relaxed") < count * (phase + 1):
                pass
            fence()
        elif BUG == "volatile":
            while tl.load(arrived, volatile=True) < count * (phase + 1):
                pass
        elif BUG == "does not wait":
            tl.atomic_add(arrived, 0, sem="acquire")
        elif BUG == "waits for too few":
            while tl.atomic_add(arrived, 0, sem="acquire") < count * phase + 1:
                pass
        else:
            while tl.atomic_add(arrived, 0, sem="acquire") < count * (phase + 1):
                pass


@tkdebug.jit
def ticket_lock(next_ticket, serving, x, BUG: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    ticket = tl.atomic_add(next_ticket, 1)
    if BUG != "never waits":
        while tl.atomic_add(serving, 0) != ticket:
            pass
    tl.store(x + cols, tl.load(x + cols) * 2 + pid)  # RACE ticket_lock
    tl.debug_barrier()
    tl.atomic_add(serving, 1)


@tkdebug.jit
def look_back(x, out, sums, flags, BUG: tl.constexpr, BLOCK: tl.constexpr):
    # A scan in one pass: each program takes the sum of all before it from the one before.
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    scan = tl.cumsum(tl.load(x + pid * BLOCK + cols), 0)
    total = tl.sum(tl.load(x + pid * BLOCK + cols), 0)
    if BUG == "flag first":
        tl.atomic_xchg(flags + pid, 1, sem="release")
    tl.store(sums + 2 * pid, total)
    tl.debug_barrier()
    if BUG != "flag first":
        tl.atomic_xchg(flags + pid, 1, sem="release")
    before = 0.0
    at = pid - 1
    while at >= 0:
        state = tl.atomic_add(flags + at, 0, sem="acquire")
        while state == 0:
            state = tl.atomic_add(flags + at, 0, sem="acquire")
        if BUG == "wrong slot":
            before += tl.load(sums + 2 * at + 1)  # RACE look_back wrong slot
        else:
            before += tl.load(sums + 2 * at + state - 1)  # RACE look_back
        at = tl.where(state == 2, -1, at - 1)
    tl.store(sums + 2 * pid + 1, before + total)
    tl.debug_barrier()
    tl.atomic_xchg(flags + pid, 2, sem="release")
    tl.store(out + pid * BLOCK + cols, scan + before)


@tkdebug.jit
def packed_look_back(x, out, state, BLOCK: tl.constexpr):
    # The sum and its flag in one word, so that relaxed atomics do.
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    values = tl.load(x + pid * BLOCK + cols)
    before = 0
    if pid > 0:
        word = tl.atomic_add(state + pid - 1, 0, sem="relaxed")
        while word == 0:
            word = tl.atomic_add(state + pid - 1, 0, sem="relaxed")
        before = word - 1
    tl.atomic_xchg(state + pid, before + tl.sum(values, 0) + 1, sem="relaxed")
    tl.store(out + pid * BLOCK + cols, tl.cumsum(values, 0) + before)


@tkdebug.jit
def persistent(x, out, counter, tiles, BUG: tl.constexpr, BLOCK: tl.constexpr):
    # Programs fetch tiles; each tile is doubled in place, or shifted into its neighbour.
    cols = tl.arange(0, BLOCK)
    tile = tl.atomic_add(counter, 1)
    while tile < tiles:
        at = tile * BLOCK + cols
        if BUG == "neighbour":
            tl.store(out + at + 1, tl.load(x + at))  # RACE persistent neighbour
        tl.store(out + at, 2 * tl.load(x + at))  # STORE persistent neighbour
        tile = tl.atomic_add(counter, 1)


@tkdebug.jit
def bounded(slots, x, out, BLOCK: tl.constexpr, MOST: tl.constexpr, BUG: tl.constexpr):
    # A semaphore of MOST slots; with one it is a lock.
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    entered = 0
    while entered == 0:
        if tl.atomic_add(slots, 1) < MOST:
            entered = 1
        else:
            tl.atomic_add(slots, -1)
    if BUG == "shared":
        tl.store(out + cols, tl.load(out + cols) + pid)  # RACE bounded shared
    else:
        tl.store(out + pid * BLOCK + cols, tl.load(x + pid * BLOCK + cols) + pid)
    tl.debug_barrier()
    tl.atomic_add(slots, -1)


@tkdebug.jit
def hand_over(flags, data, out, BUG: tl.constexpr, BLOCK: tl.constexpr):
    # Program 0 stores what all others wait for.
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    if pid == 0:
        if BUG == "flag first":
            tl.atomic_xchg(flags, 1)  # TOLD hand_over flag first
        tl.store(data + cols, cols + 1)  # STORE hand_over
        tl.debug_barrier()
        if BUG == "volatile poll":
            tl.store(flags, 1)
        elif BUG == "plain flag":
            tl.store(flags, 1)  # FLAG hand_over plain flag
        elif BUG == "another flag":
            tl.atomic_xchg(flags + 1, 1)
            tl.atomic_xchg(flags, 1, sem="relaxed")
        elif BUG == "relaxed flag":
            tl.atomic_xchg(flags, 1, sem="relaxed")  # TOLD hand_over relaxed flag
        elif BUG == "stale":
            tl.atomic_xchg(flags, 1)  # TOLD hand_over stale
            tl.store(data + cols, cols + 2)  # STORE hand_over stale
        elif BUG != "flag first":
            tl.atomic_xchg(flags, 1)
    else:
        if BUG == "plain poll":
            while tl.load(flags) == 0:  # POLL hand_over plain poll
                pass
        elif BUG == "waits afterwards":
            early = tl.load(data + cols)  # LOAD hand_over waits afterwards
            while tl.atomic_add(flags, 0) == 0:
                pass
            tl.store(out + pid * BLOCK + cols, early)
        elif BUG == "volatile poll":
            while tl.load(flags, volatile=True) == 0:
                pass
        elif BUG == "uncached poll":
            while tl.load(flags, cache_modifier=".cv") == 0:
                pass
        else:
            while tl.atomic_add(flags, 0) == 0:  # POLL hand_over
                pass
        if BUG != "waits afterwards":
            tl.store(out + pid * BLOCK + cols, tl.load(data + cols))  # LOAD hand_over


@tkdebug.jit
def histogram(x, bins, arrived, out, BUG: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    # All count with relaxed atomics; then a barrier; then all read plainly.
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + pid * BLOCK + cols), 1, sem="relaxed")
    tl.debug_barrier()
    if BUG != "no barrier":
        tl.atomic_add(arrived, 1)
        while tl.atomic_add(arrived, 0) < tl.num_programs(0):
            pass
    else:
        tl.atomic_add(arrived, 1)
    bin = tl.arange(0, BINS)
    tl.store(out + pid * BINS + bin, tl.load(bins + bin))  # RACE histogram


@tkdebug.jit
def stream_k(
    x,
    partial,
    done,
    out,
    per_tile,
    per_program,
    total,
    BUG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Whoever begins a tile adds what later programs have of it.
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    at = pid * per_program
    end = tl.minimum(at + per_program, total)
    while at < end:
        tile = at // per_tile
        tile_end = (tile + 1) * per_tile
        stop = tl.minimum(tile_end, end)
        acc = tl.zeros([BLOCK], tl.float32)
        for k in range(at, stop):
            acc += tl.load(x + k * BLOCK + cols)
        if at == tile * per_tile:
            later, reached = pid + 1, stop
            while reached < tile_end:
                while tl.load(done + later, cache_modifier=".cv") != 1:
                    pass
                acc += tl.load(partial + later * BLOCK + cols)  # LOAD stream_k
                reached += per_program
                later += 1
            tl.store(out + tile * BLOCK + cols, acc)
        elif BUG == "no flag":
            tl.store(done + pid, 1, cache_modifier=".wt")
            tl.store(partial + pid * BLOCK + cols, acc)  # STORE stream_k no flag
        else:
            tl.store(partial + pid * BLOCK + cols, acc)
            tl.debug_barrier()
            tl.store(done + pid, 1, cache_modifier=".wt")
        at = stop


@tkdebug.jit
def all_clear_then_read(x, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x + offs, offs)
    tl.store(out + tl.program_id(0) * BLOCK + offs, tl.load(x + offs))


@tkdebug.jit
def all_clear_then_add(x, out):
    tl.store(x, 0)  # CLEAR all_clear_then_add
    old = tl.atomic_add(x, 1)  # ADD all_clear_then_add
    tl.store(out + tl.program_id(0), old)


@tkdebug.jit
def again_and_again(
    x, index, rounds, SCATTERED: tl.constexpr, BUG: tl.constexpr, BLOCK: tl.constexpr
):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    for step in range(rounds):
        if SCATTERED:
            tl.store(x + tl.load(index + offs), pid * rounds + step)
        else:
            tl.store(x + offs, pid * rounds + step)
    if BUG:
        tl.store(x + (offs + BLOCK) % (BLOCK * tl.num_programs(0)), -1)  # RACE again_and_again
