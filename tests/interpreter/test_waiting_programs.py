"""Programs that wait for each other: earlier ones, later ones, all of them, and in vain."""

import gc
import inspect
import signal
import threading
import weakref

import pytest
import torch
from differential import run

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.targets.registered_backends import backend_of, target_of
from tkdebug.errors import LaunchError
from tkdebug.knobs import scope
from tkdebug.runtime.compile.debugged_stages import fitting_programs, source_for_gpu
from tkdebug.runtime.cuda.platform import H200_PROPERTIES
from tkdebug.runtime.device.driver import DriverUtils

WIDTH = 4


def threads_of_programs():
    """Return the new threads that are left; other tests of this process may have their own."""
    return [t.name for t in threading.enumerate() if t.name.startswith("tkdebug-programs")]


def line(kernel, marker):
    lines, first = inspect.getsourcelines(kernel.fn)
    (place,) = [n for n, text in enumerate(lines) if text.rstrip().endswith("# " + marker)]
    return first + place


def flags(count):
    return torch.zeros(count, dtype=torch.int32)


@tkdebug.jit
def after_another(flag, x, out, step, HOW: tl.constexpr, BLOCK: tl.constexpr):
    # Each program adds its row to what the one `step` further on has left.
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    total = tl.load(x + pid * BLOCK + cols)
    other = pid + step
    if (other >= 0) & (other < tl.num_programs(0)):
        if HOW == "cas":
            while tl.atomic_cas(flag + other, 1, 1) != 1:
                pass
        elif HOW == "counting":
            tries = 0
            while tl.atomic_or(flag + other, 0) == 0:
                tries += 1
        elif HOW == "volatile":
            while tl.load(flag + other, volatile=True) == 0:
                pass
        elif HOW == "uncached":
            while tl.load(flag + other, cache_modifier=".cv") == 0:
                pass
        else:
            ready = tl.load(flag + other)
            while ready == 0:
                ready = tl.load(flag + other)
        total += tl.load(out + other * BLOCK + cols)
    tl.store(out + pid * BLOCK + cols, total)
    tl.debug_barrier()
    if HOW == "cas":
        tl.atomic_xchg(flag + pid, 1)
    else:
        tl.store(flag + pid, 1)


@pytest.mark.parametrize("how", ["cas", "counting", "volatile", "uncached", "plain"])
@pytest.mark.parametrize("step", [-1, 1, 3])
def test_programs_that_wait_for_one_other(how, step, capsys):
    count = 7
    x, out = torch.arange(float(count * WIDTH)).reshape(count, WIDTH), torch.zeros(count, WIDTH)
    after_another.interpret[(count,)](flags(count), x, out, step, HOW=how, BLOCK=WIDTH)
    expected = torch.zeros_like(x)
    for pid in range(count) if step < 0 else reversed(range(count)):
        expected[pid] = x[pid]
        if 0 <= pid + step < count:
            expected[pid] += expected[pid + step]
    assert torch.equal(out, expected)
    printed = capsys.readouterr().err
    assert printed == "" or "after_another: its programs may wait for each other" in printed
    assert threads_of_programs() == []


@pytest.mark.parametrize("how", ["cas", "volatile", "uncached"])
def test_waiting_for_another_program_is_no_race(how):
    arguments = (flags(4), torch.ones(4, WIDTH), torch.zeros(4, WIDTH), -1)
    with scope(checks=("race",)):
        assert run(after_another, (4,), *arguments, HOW=how, BLOCK=WIDTH) == []


@tkdebug.jit
def in_phases(arrived, x, phases, BLOCK: tl.constexpr):
    pid, count = tl.program_id(0), tl.num_programs(0)
    cols = tl.arange(0, BLOCK)
    for phase in range(phases):
        row = phase * count
        own = tl.load(x + (row + pid) * BLOCK + cols)
        next_one = tl.load(x + (row + (pid + 1) % count) * BLOCK + cols)
        tl.store(x + (row + count + pid) * BLOCK + cols, own + next_one)
        tl.debug_barrier()
        tl.atomic_add(arrived, 1)
        while tl.atomic_add(arrived, 0) < count * (phase + 1):
            pass


@pytest.mark.parametrize("count", [1, 2, 9])
def test_barriers_of_all_programs(count):
    phases = 5
    x = torch.zeros(phases + 1, count, WIDTH)
    x[0] = torch.arange(float(count * WIDTH)).reshape(count, WIDTH)
    expected = x.clone()
    for phase in range(phases):
        expected[phase + 1] = expected[phase] + expected[phase].roll(-1, 0)
    in_phases.interpret[(count,)](flags(1), x, phases, BLOCK=WIDTH)
    assert torch.equal(x, expected)


@tkdebug.jit
def stream_k(x, partial, done, out, per_tile, per_program, total, BLOCK: tl.constexpr):
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
            # Whoever begins a tile adds what later programs have of it.
            helper, reached = pid + 1, stop
            while reached < tile_end:
                while tl.load(done + helper, cache_modifier=".cv") != 1:
                    pass
                acc += tl.load(partial + helper * BLOCK + cols)
                reached += per_program
                helper += 1
            tl.store(out + tile * BLOCK + cols, acc)
        else:
            tl.store(partial + pid * BLOCK + cols, acc)
            tl.debug_barrier()
            tl.store(done + pid, 1, cache_modifier=".wt")
        at = stop


@pytest.mark.parametrize(("per_tile", "tiles", "programs"), [(7, 5, 6), (16, 2, 9), (3, 4, 12)])
def test_stream_k_whose_tiles_later_programs_finish(per_tile, tiles, programs):
    total = per_tile * tiles
    x = torch.arange(float(total * WIDTH)).reshape(total, WIDTH)
    out = torch.zeros(tiles, WIDTH)
    stream_k.interpret[(programs,)](
        x,
        torch.zeros(programs, WIDTH),
        flags(programs),
        out,
        per_tile,
        -(-total // programs),
        total,
        BLOCK=WIDTH,
    )
    assert torch.equal(out, x.reshape(tiles, per_tile, WIDTH).sum(1))


def test_programs_that_take_turns_in_inference_mode():
    with torch.inference_mode():
        x = torch.ones(3, 4, WIDTH)
        in_phases.interpret[(4,)](flags(1), x, 2, BLOCK=WIDTH)
        assert torch.equal(x[2], torch.full((4, WIDTH), 4.0))


@tkdebug.jit
def by_ticket(next_ticket, serving, order, x, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    ticket = tl.atomic_add(next_ticket, 1)
    while tl.atomic_add(serving, 0) != ticket:
        pass
    cols = tl.arange(0, BLOCK)
    tl.store(x + cols, tl.load(x + cols) * 2 + pid)
    tl.store(order + ticket, pid)
    tl.debug_barrier()
    tl.atomic_add(serving, 1)


def test_ticket_lock():
    count, order = 9, flags(9)
    x = torch.zeros(WIDTH, dtype=torch.int64)
    by_ticket.interpret[(count,)](flags(1), flags(1), order, x, BLOCK=WIDTH)
    expected = 0
    for pid in order.tolist():
        expected = expected * 2 + pid
    assert sorted(order.tolist()) == list(range(count))
    assert x.tolist() == [expected] * WIDTH


@tkdebug.jit
def holding_a_lock(lock, flag, out):
    # Program 0 waits for program 2 while it holds the lock that program 1 wants.
    pid = tl.program_id(0)
    if pid < 2:
        taken = 0
        while taken == 0:
            if tl.atomic_cas(lock, 0, 1) == 0:
                if pid == 0:
                    while tl.atomic_cas(flag, 1, 1) == 0:
                        pass
                tl.store(out + pid, tl.load(out + 2) + 1)
                tl.store(out + 2, tl.load(out + pid))
                tl.debug_barrier()
                tl.atomic_xchg(lock, 0)
                taken = 1
    else:
        tl.store(out + 2, 10)
        tl.debug_barrier()
        tl.atomic_xchg(flag, 1)


def test_program_that_waits_while_it_holds_a_lock():
    out = flags(3)
    holding_a_lock.interpret[(3,)](flags(1), flags(1), out)
    assert out.tolist() == [11, 12, 12]


@tkdebug.jit
def in_vain(flag, out, n):
    pid = tl.program_id(0)
    tl.store(out + pid, pid + 1)
    if pid < n:
        while tl.atomic_cas(flag, 1, 1) == 0:  # WAIT
            pass


def test_waiting_in_vain_is_an_error_and_leaves_no_thread():
    out = flags(6)
    seen = weakref.ref(out)
    with pytest.raises(LaunchError) as caught:
        in_vain.interpret[(6,)](flags(1), out, 4)
    text = str(caught.value)
    assert text.startswith(f"{__file__}:{line(in_vain, 'WAIT')}: program (")
    assert "of 6 programs 2 have ended, 4 wait, 0 have not begun" in text
    assert threads_of_programs() == []
    assert out.tolist() == [1, 2, 3, 4, 5, 6]
    del out, caught
    gc.collect()
    assert seen() is None


@pytest.fixture
def small_gpu(monkeypatch):
    """A GPU of two multiprocessors, each of which holds two programs of 32 warps."""
    gpu = {**H200_PROPERTIES, "multiprocessor_count": 2}
    monkeypatch.setattr(DriverUtils, "get_device_properties", lambda self, device: gpu)
    monkeypatch.setattr("tkdebug.interpreter.scheduler._PATIENCE_S", 0.05)


@pytest.mark.usefixtures("small_gpu")
def test_more_programs_that_wait_than_a_gpu_holds():
    with pytest.raises(LaunchError, match="so do all others that a GPU holds at once") as caught:
        in_phases.interpret[(6,)](flags(1), torch.zeros(12, WIDTH), 1, BLOCK=WIDTH, num_warps=32)
    text = str(caught.value)
    assert "4 (2 on each of 2 multiprocessors, by " in text
    assert "32 warps)" in text
    assert "of 6 programs 0 have ended, 4 wait, 2 have not begun; launch at most 4" in text
    assert threads_of_programs() == []


@pytest.mark.usefixtures("small_gpu")
@pytest.mark.parametrize(("programs", "warps"), [(4, 32), (9, 4)])
def test_programs_that_wait_and_fit_on_a_gpu(programs, warps):
    x = torch.ones(2, programs, WIDTH)
    in_phases.interpret[(programs,)](flags(1), x, 1, BLOCK=WIDTH, num_warps=warps)
    assert torch.equal(x[1], torch.full((programs, WIDTH), 2.0))


@tkdebug.jit
def after_the_next_began(began, order, last):
    # Each waits for the next to begin, which does not wait for it: two at once are enough.
    pid = tl.program_id(0)
    tl.atomic_xchg(began + pid, 1)
    if pid < last:
        while tl.atomic_add(began + pid + 1, 0) == 0:
            pass
    tl.store(order + pid, pid)


@pytest.mark.usefixtures("small_gpu")
def test_programs_whose_wait_ends_make_room_for_others():
    order = flags(11)
    after_the_next_began.interpret[(11,)](flags(12), order, 10, num_warps=32)
    assert order.tolist() == list(range(11))


@tkdebug.jit
def with_a_large_tile(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    tl.store(out + at, tl.dot(tl.load(x + at), tl.trans(tl.load(x + at))))


def fitting(multiprocessors=10, **options):
    x, out = torch.ones(128, 128), torch.zeros(128, 128)
    kernel = with_a_large_tile.interpret.warmup(x, out, BLOCK=128, grid=(1,), **options)
    src = source_for_gpu(kernel.src, None, (x, out, 128))
    return fitting_programs(src, kernel.module, multiprocessors)


def test_shared_memory_limits_how_many_programs_fit():
    programs, limit = fitting()
    assert programs == 10
    assert "bytes of shared memory" in limit


def test_without_code_generation_warps_limit_how_many_programs_fit(monkeypatch):
    backend = backend_of(target_of("sm_90a"))
    monkeypatch.setattr(type(backend), "obstacle", lambda self: "no assembler")
    assert fitting(num_warps=8) == (80, "8 on each of 10 multiprocessors, by 8 warps")


@tkdebug.jit
def wrong_step(flag, out, step):
    pid = tl.program_id(0)
    if pid == 0:
        while tl.atomic_cas(flag, 1, 1) == 0:
            pass
    else:
        for i in range(0, 4, step):  # STEP
            tl.store(out, i)


def test_error_in_a_program_that_another_waits_for():
    with pytest.raises(LaunchError, match="a loop's step is 0") as caught:
        wrong_step.interpret[(2,)](flags(1), flags(1), 0)
    assert f":{line(wrong_step, 'STEP')}: " in str(caught.value)
    assert threads_of_programs() == []


@tkdebug.jit
def endless_later(flag, out, n):
    pid = tl.program_id(0)
    if pid == 1:
        tl.atomic_xchg(flag, n)
        if n == 1:
            while tl.atomic_cas(flag + 1, 1, 1) == 0:
                pass
        i = -1
        while i < n:  # ENDLESS
            tl.store(out, i)
    while tl.atomic_cas(flag, 1, 1) == 0:  # WAIT
        pass
    tl.atomic_xchg(flag + 1, 1)


@pytest.mark.parametrize(("n", "where"), [(0, "WAIT"), (1, "ENDLESS")])
def test_interrupt_while_another_thread_runs(n, where, capsys):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            endless_later.interpret[(2,)](flags(2), flags(1), n)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    printed = capsys.readouterr().err
    assert f"in the loop at line {line(endless_later, where)}\n" in printed
    assert threads_of_programs() == []


@tkdebug.jit
def nan_after_a_wait(flag, x, out):
    pid = tl.program_id(0)
    value = tl.load(x + pid)
    quotient = value / value  # BORN
    if pid == 0:
        while tl.atomic_cas(flag, 1, 1) == 0:
            pass
    else:
        tl.atomic_xchg(flag, 1)
    tl.store(out + pid, quotient)


def test_nans_of_programs_that_took_turns():
    with scope(checks=("nan",)):
        faults = run(nan_after_a_wait, (2,), flags(1), torch.tensor([0.0, 1.0]), torch.zeros(2))
    (fault,) = faults
    assert fault.line == line(nan_after_a_wait, "BORN")
    assert fault.program_id == (0, 0, 0)


@tkdebug.jit
def not_waiting(x, out, n, BLOCK: tl.constexpr):
    # Loads in the loop, of memory that is written, but the loop does not hang on them.
    pid = tl.program_id(0)
    cols = pid * BLOCK + tl.arange(0, BLOCK)
    i = 0
    while i < n:
        tl.store(out + cols, tl.load(out + cols) + tl.load(x + i))
        i += 1


@tkdebug.jit
def searching(x, out, n):
    # The loop hangs on what it loads, but goes on to other elements.
    pid = tl.program_id(0)
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if tl.load(x + middle) < pid:
            low = middle + 1
        else:
            high = middle
    tl.store(out + pid, low)


def test_loops_that_wait_for_nobody_run_as_one_batch(capsys):
    x, out = torch.arange(5.0), torch.zeros(3 * WIDTH)
    not_waiting.interpret[(3,)](x, out, 5, BLOCK=WIDTH)
    assert torch.equal(out, torch.full_like(out, 10.0))
    table = torch.tensor([0, 2, 4, 6], dtype=torch.int32)
    found = flags(8)
    searching.interpret[(8,)](table, found, 4)
    assert torch.equal(found.long(), torch.searchsorted(table, torch.arange(8, dtype=torch.int32)))
    assert "wait" not in capsys.readouterr().err
