"""Kernels with faults that are looked for when asked; `# RACE` and such mark the lines to tell."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def all_store_here(out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, offs + tl.program_id(0))  # RACE all_store_here


@tkdebug.jit
def all_store_the_same(out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, offs)
    tl.store(out_ptr + offs, tl.load(out_ptr + offs) + 1 - 1)


@tkdebug.jit
def shift_in_place(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs + 1, mask=offs + 1 < n)  # READ shift_in_place
    tl.store(x_ptr + offs, x, mask=offs < n)  # RACE shift_in_place


@tkdebug.jit
def mirror_through_memory(x_ptr, scratch_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(scratch_ptr + offs, tl.load(x_ptr + offs))  # WRITE mirror_through_memory
    x = tl.load(scratch_ptr + n - 1 - offs)  # RACE mirror_through_memory
    tl.store(x_ptr + offs, x)


@tkdebug.jit
def copy_shifted(from_ptr, to_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(from_ptr + offs, mask=offs < n)  # READ copy_shifted
    tl.store(to_ptr + n - 1 - offs, x, mask=offs < n)  # RACE copy_shifted


@tkdebug.jit
def scale_in_place(x_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, 2 * BLOCK, BLOCK):
        offs = tl.program_id(0) * 2 * BLOCK + start + tl.arange(0, BLOCK)
        tl.store(x_ptr + offs, 2 * tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@tkdebug.jit
def scatter(out_ptr, index_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.load(index_ptr + offs), offs)  # RACE scatter


@tkdebug.jit
def clear_and_add(out_ptr, BLOCK: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(out_ptr, 5)  # WRITE clear_and_add
    tl.atomic_add(out_ptr, 1)  # RACE clear_and_add


@tkdebug.jit
def add_atomically(out_ptr):
    tl.atomic_add(out_ptr, 1)


@tkdebug.jit
def add_plainly(out_ptr):
    tl.store(out_ptr, tl.load(out_ptr) + 1)  # RACE add_plainly


@tkdebug.jit
def last_one_sums(parts_ptr, count_ptr, out_ptr, P: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(parts_ptr + pid, pid + 1)
    if tl.atomic_add(count_ptr, 1) == P - 1:
        tl.store(out_ptr, tl.sum(tl.load(parts_ptr + tl.arange(0, P))))


@tkdebug.jit
def bytes_and_words(out_ptr, WORDS: tl.constexpr):
    pid = tl.program_id(0)
    word = out_ptr.to(tl.pointer_type(tl.int32))
    if pid < 4:
        tl.store(out_ptr + pid, pid + 1)
    elif WORDS:
        tl.store(word, 0x01020304)  # RACE bytes_and_words
    else:
        tl.store(word + 1, 0x01020304)


@tkdebug.jit
def through_addresses(a_ptr, b_ptr, out_ptr):
    pid = tl.program_id(0)
    target = tl.where(pid < 2, a_ptr, b_ptr)
    tl.store(target + pid % 2, pid)
    if pid == 3:
        tl.store(a_ptr, 9)  # RACE through_addresses


@tkdebug.jit
def write_some(x_ptr, n, BLOCK: tl.constexpr):  # KERNEL write_some
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, offs, mask=offs < n)


@tkdebug.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 2 * tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)  # UNWRITTEN


@tkdebug.jit
def count_up(x_ptr, EXCHANGE: tl.constexpr):
    offs = tl.arange(0, 4)
    if EXCHANGE:
        tl.atomic_xchg(x_ptr + offs, 1)
    else:
        tl.atomic_add(x_ptr + offs, 1)  # UNWRITTEN count_up


@tkdebug.jit
def take_lock(lock_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:  # UNWRITTEN take_lock
        pass


@tkdebug.jit
def add_after_a_flag(flag_ptr, out_ptr):
    tl.atomic_xchg(flag_ptr, 1)
    total = tl.load(out_ptr)
    tl.store(out_ptr, total + 1)  # RACE add_after_a_flag


@tkdebug.jit
def store_at(out_ptr, place):
    tl.store(out_ptr + place, tl.program_id(0).to(tl.int8))  # RACE store_at


@tkdebug.jit
def add_shares(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + offs, mask=offs < n, other=0.0)
    shares = x / tl.sum(x, 0)  # BORN add_shares
    tl.atomic_add(out_ptr + offs, shares, mask=offs < n)  # ADDED add_shares


@tkdebug.jit
def softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0) * n, tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + offs, mask=offs < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))  # BORN softmax
    tl.store(out_ptr + row + offs, e / tl.sum(e, 0), mask=offs < n)  # STORED softmax


@tkdebug.jit
def guarded(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, tl.where(x > 0, tl.log(x), 0.0) + tl.where(x == 0, 0.0, x / x))


@tkdebug.jit
def sum_of_roots(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid, offs = tl.program_id(0), tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for k in range(n + pid):
        acc += tl.sqrt(tl.load(x_ptr + k * BLOCK + offs))  # BORN sum_of_roots
    if pid == 1:
        acc = 2 * acc
    tl.store(out_ptr + pid * BLOCK + offs, acc)


@tkdebug.jit
def halving(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.program_id(0))
    n = 0
    while n < 3:
        x = x / (2 - n)  # BORN halving
        x = x - x
        n += 1
    tl.store(out_ptr + tl.program_id(0), x)


@tkdebug.jit
def swapping(x_ptr, out_ptr, n):
    x = tl.load(x_ptr)
    a = tl.sqrt(x)  # BORN swapping
    b = tl.log(x)
    for _ in range(n):
        a, b = b, a
    tl.store(out_ptr, a)
    tl.store(out_ptr + 1, tl.where(n == 0, b, 0.0))


@tkdebug.jit
def accumulate(x_ptr, h_ptr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + offs)
    old = tl.load(h_ptr + offs)
    if KIND == "add":
        new = old + x
    elif KIND == "add in a loop":
        new = old
        for _ in range(x_ptr.to(tl.int64).to(tl.int32) % 2 + 2):
            new += x
    elif KIND == "subtract":
        new = old - x * 2
    elif KIND == "max":
        new = tl.maximum(x, old)
    elif KIND == "double":
        new = old + (old - x)
    elif KIND == "from it":
        new = x - old
    else:
        new = old * x
    tl.store(h_ptr + offs, new)  # RACE accumulate


@tkdebug.jit
def load_then_add(x_ptr, out_ptr):
    tl.store(out_ptr + tl.program_id(0), tl.load(x_ptr))
    tl.atomic_add(x_ptr, 1)  # RACE load_then_add


@tkdebug.jit
def fill_without_mask(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=float("inf"))
    tl.store(out_ptr + offs, x - x)  # BORN fill_without_mask


@tkdebug.jit
def in_some_programs(x_ptr, out_ptr):
    x = tl.load(x_ptr)
    if tl.program_id(0) > 1:
        tl.store(out_ptr + tl.program_id(0), x - x)  # BORN in_some_programs


@tkdebug.jit
def filled_with_nan(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("nan"))
    tl.store(out_ptr + row * BLOCK + cols, x * 2)


@tkdebug.jit
def filled(like_ptr, out_ptr, value, uses: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    like = tl.load(like_ptr + offs).to(tl.float32) * 2
    tl.store(out_ptr + offs, like if uses else tl.full((BLOCK,), value, tl.float32))


@tkdebug.jit
def roots(x_ptr, out_ptr, shift: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs).to(tl.float32)
    tl.store(out_ptr + offs, tl.sqrt(x - 1.0 if shift else x))
