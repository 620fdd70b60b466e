"""`--check narrowing`: conversions that lose what is then stored, and those that mean to."""

import sys
from functools import partial

import pytest
import torch
from differential import run
from marked_lines import line_of, only

import tkdebug
import tkdebug.language as tl
from tkdebug.knobs import scope

line = partial(line_of, sys.modules[__name__])


@pytest.fixture(autouse=True)
def narrowings():
    with scope(checks=("narrowing",)):
        yield


# Bugs


@tkdebug.jit
def quantise(x_ptr, out_ptr, scale, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    q = (x * scale).to(tl.int8)  # BORN quantise
    tl.store(out_ptr + offs, q, mask=offs < n)


def test_a_quantisation_without_a_clamp():
    x = torch.ones(20)
    x[13] = 3.0
    out = torch.zeros(20, dtype=torch.int8)
    fault = only(run(quantise, (3,), x, out, 100.0, 20, BLOCK=8))
    assert (fault.kind, fault.line, fault.severity) == ("narrowing", line("BORN quantise"), "error")
    assert (fault.program_id, fault.lane, fault.index) == ((1, 0, 0), (5,), 13)
    assert "300 does not fit int8 (-128 to 127); the result is stored" in fault.message
    assert fault.hint is not None
    assert "clamp" in fault.hint


@tkdebug.jit
def differences(x_ptr, out_ptr, shift, VIA: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs) - shift
    if VIA == "float":
        y = x.to(tl.float32).to(tl.uint8)  # BORN float difference
    else:
        y = x.to(tl.uint8)  # BORN int difference
    tl.store(out_ptr + offs, y.to(tl.float32))


@pytest.mark.parametrize(
    ("via", "least", "hint"),
    [("float", -3, "tl.clamp(x, 0.0, 255.0)"), ("int", -3, "wider"), ("int", -300, "wider")],
)
def test_a_negative_number_does_not_fit_an_unsigned_type(via, least, hint):
    x = torch.arange(8, dtype=torch.int32)
    fault = only(run(differences, (1,), x, torch.zeros(8), -least, via, BLOCK=8))
    assert (fault.kind, fault.line) == ("narrowing", line(f"BORN {via} difference"))
    assert f"{least} does not fit uint8 (0 to 255)" in fault.message
    assert hint in fault.hint


@pytest.mark.parametrize("via", ["float", "int"])
def test_numbers_that_fit_an_unsigned_type(via):
    x = torch.tensor([0, 1, 127, 128, 200, 255, 3, 4], dtype=torch.int32)
    assert not run(differences, (1,), x, torch.zeros(8), 0, via, BLOCK=8)


def test_a_nan_has_no_integer():
    x = torch.ones(8)
    x[3] = torch.nan
    fault = only(run(quantise, (1,), x, torch.zeros(8, dtype=torch.int8), 1.0, 8, BLOCK=8))
    assert "nan does not fit int8" in fault.message


@tkdebug.jit
def to_bytes(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, (x * 255).to(tl.uint8))  # BORN bytes


def test_a_negative_float_as_an_unsigned_integer():
    x = torch.tensor([0.0, 1.0, -0.5, 0.25])
    fault = only(run(to_bytes, (1,), x, torch.zeros(4, dtype=torch.uint8), BLOCK=4))
    assert (fault.line, fault.lane) == (line("BORN bytes"), (2,))
    assert "-127.5 does not fit uint8 (0 to 255)" in fault.message


@tkdebug.jit
def cast(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x.to(out_ptr.dtype.element_ty), mask=offs < n)  # BORN cast


def test_a_float_that_becomes_inf_in_fp16():
    x = torch.ones(10)
    x[9] = 7e4
    fault = only(run(cast, (3,), x, torch.zeros(10, dtype=torch.float16), 10, BLOCK=4))
    assert (fault.line, fault.severity) == (line("BORN cast"), "warning")
    assert (fault.program_id, fault.lane) == ((2, 0, 0), (1,))
    assert "70000 is too large for fp16, and becomes inf" in fault.message


def test_a_double_that_becomes_inf_in_fp32():
    x = torch.full((4,), 1e300, dtype=torch.float64)
    fault = only(run(cast, (1,), x, torch.zeros(4), 4, BLOCK=4))
    assert (fault.line, fault.count) == (line("BORN cast"), 4)


def test_a_float_that_becomes_inf_in_bf16():
    x = torch.full((4,), 3.4e38)
    fault = only(run(cast, (1,), x, torch.zeros(4, dtype=torch.bfloat16), 4, BLOCK=4))
    assert fault.line == line("BORN cast")


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (torch.int32, 100_000),
        (torch.int64, -(2**40)),
        (torch.uint16, 65_535),
        (torch.uint64, 2**63 + 2**40),
    ],
)
def test_an_integer_that_becomes_inf_in_fp16(source, value):
    x = torch.tensor([1, 32_767, value], dtype=source)
    fault = only(run(cast, (1,), x, torch.zeros(3, dtype=torch.float16), 3, BLOCK=4))
    assert (fault.line, fault.lane, fault.count) == (line("BORN cast"), (2,), 1)
    assert f"{value} is too large for fp16, and becomes inf" in fault.message


def test_integers_that_fp16_and_wider_floats_hold_are_no_fault():
    x = torch.tensor([-65_519, 65_519])
    assert not run(cast, (1,), x, torch.zeros(2, dtype=torch.float16), 2, BLOCK=2)
    large = torch.tensor([-(2**63), 2**62])
    assert not run(cast, (1,), large, torch.zeros(2, dtype=torch.bfloat16), 2, BLOCK=2)


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        (torch.int64, torch.int32, 3_000_000_000),
        (torch.int32, torch.int16, -40_000),
        (torch.int32, torch.int8, 200),
        (torch.int64, torch.uint8, 256),
        (torch.int32, torch.uint8, -200),
    ],
)
def test_an_integer_that_does_not_fit(source, target, value):
    x = torch.arange(6, dtype=source)
    x[4] = value
    fault = only(run(cast, (2,), x, torch.zeros(6, dtype=target), 6, BLOCK=4))
    assert (fault.line, fault.lane, fault.count) == (line("BORN cast"), (0,), 1)
    name = str(target).removeprefix("torch.")
    assert f"{value} does not fit {name} ({torch.iinfo(target).min} to " in fault.message


@tkdebug.jit
def gather_rows(x_ptr, rows_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.load(rows_ptr + tl.program_id(0))
    start = (row * stride).to(tl.int32)  # BORN gather
    x = tl.load(x_ptr + start + cols, mask=cols < n)
    tl.store(out_ptr + tl.program_id(0) * n + cols, x, mask=cols < n)


def test_an_index_that_is_cut_off():
    x = torch.zeros(64)
    rows = torch.tensor([0, 3], dtype=torch.int64)
    faults = run(gather_rows, (2,), x, rows, torch.zeros(2, 8), 1 << 31, 8, BLOCK=8)
    fault = next(fault for fault in faults if fault.kind == "narrowing")
    assert (fault.line, fault.program_id) == (line("BORN gather"), (1, 0, 0))
    assert "6442450944 does not fit int32" in fault.message
    assert "is the address accessed at" in fault.message


@tkdebug.jit
def rope_positions(pos_ptr, out_ptr, theta, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    angle = tl.load(pos_ptr + offs) * theta
    turns = (angle * 1e9).to(tl.int32)  # BORN rope
    tl.store(out_ptr + offs, angle - turns.to(tl.float32) / 1e9)


def test_whole_turns_that_overflow():
    pos = torch.arange(4, dtype=torch.float32)
    fault = only(run(rope_positions, (1,), pos, torch.zeros(4), 1.0, BLOCK=4))
    assert (fault.line, fault.lane, fault.count) == (line("BORN rope"), (3,), 1)


@tkdebug.jit
def scores(q_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float16)
    for step in range(steps):
        q = tl.load(q_ptr + step * BLOCK + offs)
        total += (q * q).to(tl.float16)  # BORN scores
    tl.store(out_ptr + offs, total)


def test_an_inf_that_goes_round_a_loop():
    q = torch.ones(5, 8)
    q[1, 6] = 300.0
    fault = only(run(scores, (1,), q, torch.zeros(8), 5, BLOCK=8))
    assert (fault.line, fault.lane, fault.count) == (line("BORN scores"), (6,), 1)


@tkdebug.jit
def histogram(x_ptr, count_ptr, width, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.atomic_add(count_ptr + (x / width).to(tl.int8), 1)  # BORN histogram


def test_an_offset_that_is_too_narrow():
    x = torch.tensor([1.0, 2.0, 140.0, 3.0])
    count = torch.zeros(256, dtype=torch.int32)
    faults = run(histogram, (1,), x, count[128:], 1.0, BLOCK=4)
    fault = next(fault for fault in faults if fault.kind == "narrowing")
    assert (fault.line, fault.lane) == (line("BORN histogram"), (2,))


@tkdebug.jit
def counted_atomically(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(out_ptr, tl.sum(x, 0).to(tl.int32))  # BORN counted


def test_a_sum_that_is_added_atomically():
    x = torch.full((2, 4), 10**9, dtype=torch.int64)
    x[0] = 0
    fault = only(run(counted_atomically, (2,), x, torch.zeros(1, dtype=torch.int32), BLOCK=4))
    assert (fault.line, fault.program_id) == (line("BORN counted"), (1, 0, 0))


@tkdebug.jit
def product_with_decay(x_ptr, g_ptr, out_ptr, N: tl.constexpr):
    rows, cols = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * N + cols)
    decayed = tl.exp2(tl.load(g_ptr + rows * N + cols)).to(x.dtype)  # NARROW decay
    tl.store(out_ptr + rows * N + cols, tl.dot(x, decayed))


def test_an_inf_that_a_product_with_zero_makes_a_nan():
    x, g, out = torch.zeros(16, 16, dtype=torch.float16), torch.zeros(16, 16), torch.zeros(16, 16)
    assert not run(product_with_decay, (1,), x, g, out, N=16)
    g[3, 5] = 20.0
    fault = only(run(product_with_decay, (1,), x, g, out, N=16))
    assert (fault.line, fault.count, fault.lane) == (line("NARROW decay"), 16, (3, 5))
    assert "is too large for fp16, and becomes inf" in fault.message


# Look-alikes that are right


@tkdebug.jit
def quantise_clamped(x_ptr, out_ptr, scale, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=1e9)
    q = tl.clamp(x * scale, -128.0, 127.0).to(tl.int8)
    tl.store(out_ptr + offs, q, mask=offs < n)


def test_a_clamp_is_right():
    x = 1000 * torch.randn(20)
    out = torch.zeros(20, dtype=torch.int8)
    assert not run(quantise_clamped, (3,), x, out, 100.0, 20, BLOCK=8)


@tkdebug.jit
def masked_off(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=float("-inf"))
    tl.store(out_ptr + offs, x.to(tl.int8), mask=offs < n)


def test_lanes_that_are_masked_off_are_right():
    assert not run(masked_off, (1,), torch.ones(5), torch.zeros(5, dtype=torch.int8), 5, BLOCK=8)


def test_a_mask_that_covers_all_is_right():
    out = torch.zeros(8, dtype=torch.int8)
    assert not run(masked_off, (1,), torch.ones(8), out, 8, BLOCK=8)


@tkdebug.jit
def random(out_ptr, seed, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.rand(seed, offs) + tl.randn(seed, offs)
    tl.store(out_ptr + offs, x + tl.randint(seed, offs).to(tl.float32))


@pytest.mark.parametrize("seed", [7, 2**40 + 3])
def test_random_numbers_are_right(seed):
    assert not run(random, (1,), torch.zeros(64), seed, BLOCK=64)


@tkdebug.jit
def loaded_seed(seed_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.rand(tl.load(seed_ptr), offs))


def test_a_seed_of_64_bits_is_right():
    seed = torch.tensor([2**62 + 12345], dtype=torch.int64)
    assert not run(loaded_seed, (1,), seed, torch.zeros(16), BLOCK=16)


@tkdebug.jit
def hashed(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs).to(tl.int64)
    h = (x ^ (x << 13)) * 2654435761
    tl.store(out_ptr + offs, h.to(tl.int32))


@tkdebug.jit
def congruential(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs).to(tl.int64)
    tl.store(out_ptr + offs, (x * 1664525 + 1013904223).to(tl.int32))


def test_hashes_are_right():
    x = torch.arange(1 << 20, (1 << 20) + 16, dtype=torch.int32)
    assert not run(hashed, (1,), x, torch.zeros(16, dtype=torch.int32), BLOCK=16)
    assert not run(congruential, (1,), x, torch.zeros(16, dtype=torch.int32), BLOCK=16)


@tkdebug.jit
def pack(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    low = tl.load(x_ptr + 2 * offs) & 0xF
    high = tl.load(x_ptr + 2 * offs + 1) & 0xF
    tl.store(out_ptr + offs, (low | (high << 4)).to(tl.int8))


def test_packed_nibbles_are_right():
    x = torch.arange(16, dtype=torch.int32)
    assert not run(pack, (1,), x, torch.zeros(8, dtype=torch.int8), BLOCK=8)


@tkdebug.jit
def halves(x_ptr, low_ptr, high_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(low_ptr + offs, x.to(tl.int32))
    tl.store(high_ptr + offs, (x >> 32).to(tl.int32))


def test_a_word_that_is_taken_apart_is_right():
    x = torch.full((4,), (5 << 32) + 3_000_000_000, dtype=torch.int64)
    low, high = torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    assert not run(halves, (1,), x, low, high, BLOCK=4)


@tkdebug.jit
def lowest_byte(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, x.to(tl.int16) & 0xFF)


def test_lower_bits_that_are_masked_out_are_right():
    x = torch.arange(1 << 20, (1 << 20) + 8, dtype=torch.int32)
    assert not run(lowest_byte, (1,), x, torch.zeros(8, dtype=torch.int16), BLOCK=8)


def test_an_unsigned_byte_is_right():
    x = torch.arange(0, 256, dtype=torch.int32)
    assert not run(cast, (64,), x, torch.zeros(256, dtype=torch.uint8), 256, BLOCK=4)


def test_infs_that_stay_infs_are_right():
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0])
    assert not run(cast, (1,), x, torch.zeros(4, dtype=torch.float16), 4, BLOCK=4)


def test_an_fp8_that_saturates_is_right():
    x = torch.tensor([1e5, -1e5, 1.0, 400.0])
    assert not run(cast, (1,), x, torch.zeros(4, dtype=torch.float8_e4m3fn), 4, BLOCK=4)


@tkdebug.jit
def half_exp(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs).to(tl.float16).to(tl.float32)
    tl.store(out_ptr + offs, tl.exp(-x))


def test_an_inf_of_which_nothing_comes_is_right():
    assert not run(half_exp, (1,), torch.full((4,), 1e6), torch.zeros(4), BLOCK=4)


@tkdebug.jit
def exponential(x_ptr, out_ptr, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs).to(tl.float32)
    y = tl.exp(x) if FACTOR is None else tl.exp(x) * FACTOR
    tl.store(out_ptr + offs, y.to(out_ptr.dtype.element_ty))  # BORN exponential


def test_a_function_of_the_input_that_has_no_number_is_right():
    x = torch.full((4,), 12.0, dtype=torch.float16)
    assert not run(exponential, (1,), x, torch.zeros_like(x), None, BLOCK=4)


def test_a_product_that_has_no_number():
    x = torch.full((4,), 11.0, dtype=torch.float16)
    fault = only(run(exponential, (1,), x, torch.zeros_like(x), 2.0, BLOCK=4))
    assert fault.line == line("BORN exponential")


@tkdebug.jit
def argmax_of_a_row(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=float("-inf"))
    tl.store(out_ptr, tl.argmax(x, 0).to(tl.int64))
    tl.store(out_ptr + 1, tl.program_id(0).to(tl.int64).to(tl.int32))


def test_small_integers_of_wide_types_are_right():
    x = torch.rand(200)
    assert not run(argmax_of_a_row, (1,), x, torch.zeros(2, dtype=torch.int64), 200, BLOCK=256)


@tkdebug.jit
def chosen(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, tl.where(tl.abs(x) < 100, x.to(tl.int8), 0))


def test_what_a_choice_drops_is_right():
    x = torch.tensor([1.0, 1e6, torch.nan, -3.0])
    assert not run(chosen, (1,), x, torch.zeros(4, dtype=torch.int8), BLOCK=4)


@tkdebug.jit
def summed(
    x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, WIDEN: tl.constexpr, SCAN: tl.constexpr
):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    if WIDEN:
        x = x.to(tl.int32)
    if SCAN:
        tl.store(out_ptr + at, tl.cumsum(x, 1))
    else:
        tl.store(out_ptr, tl.sum(tl.sum(x, 1, keep_dims=True)))  # BORN summed


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
@pytest.mark.parametrize("scan", [False, True])
def test_a_sum_stored_as_the_type_that_was_summed_wraps(dtype, scan):
    x = torch.full((4, 512), 100, dtype=dtype)
    assert not run(summed, (1,), x, torch.zeros_like(x), 4, 512, WIDEN=False, SCAN=scan)


def test_a_sum_that_was_asked_to_be_wide_is_not_to_wrap():
    x, out = torch.full((4, 16), 100, dtype=torch.int8), torch.zeros(64, dtype=torch.int8)
    fault = only(run(summed, (1,), x, out, 4, 16, WIDEN=True, SCAN=False))
    assert fault.line == line("BORN summed")


def test_a_sum_stored_as_another_type_is_not_to_wrap():
    x, out = torch.full((4, 512), 100, dtype=torch.int16), torch.zeros(8, dtype=torch.int8)
    fault = only(run(summed, (1,), x, out, 4, 512, WIDEN=False, SCAN=False))
    assert fault.line == line("BORN summed")
