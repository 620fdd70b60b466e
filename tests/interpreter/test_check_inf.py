"""`--check inf`: an Inf made of finite values that reaches memory, and the Infs that are meant."""

import sys
from functools import partial

import pytest
import torch
from differential import load_kernel, run
from marked_lines import line_of, only

import tkdebug
import tkdebug.language as tl
from tkdebug.checks import DEFAULT_CHECKS
from tkdebug.interpreter.checks.infs import InfsOfBatch
from tkdebug.knobs import scope

line = partial(line_of, sys.modules[__name__])


@pytest.fixture(autouse=True)
def infs():
    with scope(checks=("inf",)):
        yield


# Bugs


@tkdebug.jit
def softmax_without_max(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    e = tl.exp(x)  # BORN softmax
    tl.store(out_ptr + row * n + cols, e / tl.sum(e, 0), mask=cols < n)


def test_softmax_without_the_maximum():
    x = torch.zeros(4, 6)
    x[2, 3] = 100.0
    out = torch.zeros(4, 6)
    fault = only(run(softmax_without_max, (4,), x, out, 6, BLOCK=8))
    assert (fault.kind, fault.line) == ("inf", line("BORN softmax"))
    assert (fault.program_id, fault.lane) == ((2, 0, 0), (3,))
    assert "of exp(100), and stored as a NaN" in fault.message
    assert (fault.severity, fault.tensor, fault.index, fault.count) == ("error", "out_ptr", 15, 1)
    assert fault.hint is not None
    assert "maximum" in fault.hint
    with scope(checks=DEFAULT_CHECKS):
        by_default = run(softmax_without_max, (4,), x, out, 6, BLOCK=8)
    assert {fault.kind for fault in by_default} == {"inf", "nan"}


@tkdebug.jit
def divide(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    y = tl.load(y_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, tl.sqrt(x / y), mask=offs < n)  # BORN divide


def test_a_quotient_that_is_too_large_before_its_root():
    x, y = torch.ones(12), torch.ones(12)
    x[9], y[9] = 1e30, 1e-30
    fault = only(run(divide, (3,), x, y, torch.zeros(12), 12, BLOCK=4))
    assert (fault.line, fault.severity) == (line("BORN divide"), "warning")
    assert (fault.program_id, fault.lane, fault.index) == ((2, 0, 0), (1,), 9)
    assert "of 1e+30 / 1e-30, and stored at" in fault.message


@tkdebug.jit
def logsumexp_without_max(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=float("-inf"))
    e = tl.exp(x)  # BORN logsumexp
    tl.store(out_ptr, tl.log(tl.sum(e, 0)))


def test_logsumexp_without_the_maximum():
    x = torch.full((7,), 90.0)
    fault = only(run(logsumexp_without_max, (1,), x, torch.zeros(1), 7, BLOCK=8))
    assert (fault.line, fault.count) == (line("BORN logsumexp"), 1)


@tkdebug.jit
def softplus(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, tl.log(1 + tl.exp(x)))  # BORN softplus


def test_softplus_of_a_large_number():
    x = torch.tensor([0.0, 1.0, 95.0, -95.0])
    fault = only(run(softplus, (1,), x, torch.zeros(4), BLOCK=4))
    assert (fault.line, fault.lane) == (line("BORN softplus"), (2,))


@tkdebug.jit
def distance(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    square = x * x + y * y  # BORN distance
    tl.store(out_ptr + offs, tl.sqrt(square.to(tl.float32)))


def test_squares_in_fp16_that_overflow():
    x = torch.tensor([3.0, 300.0, 0.0, -4.0], dtype=torch.float16)
    y = torch.ones(4, dtype=torch.float16)
    fault = only(run(distance, (1,), x, y, torch.zeros(4), BLOCK=4))
    assert (fault.line, fault.lane) == (line("BORN distance"), (1,))
    assert "of 300 * 300" in fault.message


@tkdebug.jit
def rms_without_eps(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + offs)
    scale = tl.rsqrt(tl.sum(x * x, 0) / BLOCK)  # BORN rms
    tl.store(out_ptr + tl.program_id(0) * BLOCK + offs, x * scale)


def test_a_norm_of_zeros_without_epsilon():
    x = torch.ones(3, 8)
    x[1] = 0
    fault = only(run(rms_without_eps, (3,), x, torch.zeros(3, 8), BLOCK=8))
    assert (fault.line, fault.program_id, fault.count) == (line("BORN rms"), (1, 0, 0), 8)
    assert "as a NaN" in fault.message


@tkdebug.jit
def half_sum(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(x * x, 0))  # BORN half_sum


def test_a_sum_in_fp16_that_overflows():
    x = torch.full((64,), 60.0, dtype=torch.float16)
    fault = only(run(half_sum, (1,), x, torch.zeros(1), BLOCK=64))
    assert fault.line == line("BORN half_sum")


@tkdebug.jit
def half_product(a_ptr, b_ptr, out_ptr, K: tl.constexpr):
    r = tl.arange(0, 16)
    k = tl.arange(0, K)
    a = tl.load(a_ptr + r[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * 16 + r[None, :])
    c = tl.dot(a, b, out_dtype=tl.float16)  # BORN half_product
    tl.store(out_ptr + r[:, None] * 16 + r[None, :], c * 0.01)


def test_a_dot_in_fp16_that_overflows():
    a = torch.ones(16, 64, dtype=torch.float16)
    a[5] = 1000.0
    b = torch.full((64, 16), 10.0, dtype=torch.float16)
    out = torch.zeros(16, 16, dtype=torch.float16)
    fault = only(run(half_product, (1,), a, b, out, K=64))
    assert (fault.line, fault.lane, fault.count) == (line("BORN half_product"), (5, 0), 16)


def test_a_product_of_square_tiles_is_not_told_by_elements():
    a = torch.full((16, 16), 200.0, dtype=torch.float16)
    fault = only(run(half_product, (1,), a, a, torch.zeros(16, 16, dtype=torch.float16), K=16))
    assert fault.message.startswith("an Inf is made here and stored ")


@tkdebug.jit
def quantise(x_ptr, out_ptr, scale_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + offs)
    scale = tl.max(tl.abs(x), 0) / 127.0
    inverse = 1.0 / scale  # BORN quantise
    tl.store(scale_ptr + tl.program_id(0), inverse)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + offs, x * inverse)


def test_the_scale_of_a_block_of_zeros_is_reported_once():
    x = torch.ones(2, 8)
    x[0] = 0
    fault = only(run(quantise, (2,), x, torch.zeros(2, 8), torch.zeros(2), BLOCK=8))
    assert (fault.line, fault.program_id) == (line("BORN quantise"), (0, 0, 0))


@tkdebug.jit
def running_product(x_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    total = tl.full((BLOCK,), 1.0, tl.float32)
    for step in range(steps):
        total *= tl.load(x_ptr + step * BLOCK + offs)  # BORN product
    tl.store(out_ptr + offs, tl.exp(tl.log(total) / steps))


def test_a_product_that_overflows_in_a_loop():
    x = torch.ones(10, 4)
    x[:, 2] = 1e8
    fault = only(run(running_product, (1,), x, torch.zeros(4), 10, BLOCK=4))
    assert (fault.line, fault.lane, fault.count) == (line("BORN product"), (2,), 1)


@tkdebug.jit
def ragged_logsumexp(x_ptr, steps_ptr, out_ptr, N: tl.constexpr):
    pid = tl.program_id(0)
    total = 0.0
    for step in range(tl.load(steps_ptr + pid)):
        total += tl.exp(tl.load(x_ptr + pid * N + step))  # BORN ragged
    tl.store(out_ptr + pid, tl.log(total))


@pytest.mark.parametrize("budget", [None, 64])
def test_programs_whose_loops_end_at_different_times(budget):
    x = torch.ones(4, 3)
    x[1, 0] = 100.0
    x[3, 2] = 200.0
    steps, out = torch.tensor([3, 1, 2, 3]), torch.zeros(4)
    fault = only(run(ragged_logsumexp, (4,), x, steps, out, N=3, budget=budget))
    assert (fault.line, fault.program_id, fault.count) == (line("BORN ragged"), (1, 0, 0), 2)
    assert "of exp(100)" in fault.message


@tkdebug.jit
def in_a_branch(x_ptr, out_ptr):
    pid = tl.program_id(0)
    x = tl.load(x_ptr + pid)
    if x > 10:
        y = tl.exp(x * 10)  # BORN branch
    else:
        y = tl.exp(x)
    tl.store(out_ptr + pid, tl.log(1 + y))


@pytest.mark.parametrize("budget", [None, 64])
def test_programs_that_go_different_ways(budget):
    x = torch.tensor([1.0, 20.0, 2.0, 9.5])
    fault = only(run(in_a_branch, (4,), x, torch.zeros(4), budget=budget))
    assert (fault.line, fault.program_id, fault.count) == (line("BORN branch"), (1, 0, 0), 1)


@tkdebug.jit
def gate_in_place(q_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(q_ptr + offs, mask=offs < n, other=0.0)
    e = tl.exp2(q * 20)  # BORN in_place
    tl.store(q_ptr + offs, e / (1 + e), mask=offs < n)


def test_a_kernel_that_works_in_place():
    q = torch.ones(16)
    q[11] = 7.0
    fault = only(run(gate_in_place, (2,), q, 16, BLOCK=8))
    assert (fault.line, fault.program_id, fault.index) == (line("BORN in_place"), (1, 0, 0), 11)
    assert "exp2(140)" in fault.message


@tkdebug.jit
def added_atomically(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(out_ptr, tl.sum(tl.exp(x), 0))  # BORN atomic


def test_an_atomic_sum():
    x = torch.zeros(2, 4)
    x[1, 1] = 89.0
    fault = only(run(added_atomically, (2,), x, torch.zeros(1), BLOCK=4))
    assert (fault.line, fault.lane, fault.program_id) == (line("BORN atomic"), (1,), (1, 0, 0))


FUNCTION = """
import tkdebug
import tkdebug.language as tl
from tkdebug.language.extra import libdevice

@tkdebug.jit
def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, {expression})
"""


# exp(100) is beyond fp32; all of these are within it.
@pytest.mark.parametrize(
    "expression",
    [
        "tl.log2(tl.exp2(x + 50))",
        "-tl.sqrt(tl.exp(x))",
        "tl.sqrt_rn(tl.exp(x))",
        "tl.exp(x) * 1e-30",
        "tl.div_rn(tl.exp(x), 1e30)",
        "tl.sqrt(tl.fma(x * 1e20, x * 1e20, 1.0))",
        "tl.sqrt(tl.abs(x * 1e38 - 1.0))",
        "tl.where(x > 1, tl.exp(x), 0.0) * 1e-30",
        "tl.maximum(tl.exp(x), 1.0) * 1e-30",
        "tl.minimum(-tl.exp(x), 1.0) * 1e-30",
        "tl.log(tl.cumprod(x * 1e9, 0))",
        "tl.log(tl.sum(x * 1e36, 0))",
        "tl.max(tl.exp(x), 0) * 1e-30",
        "tl.reshape(tl.reshape(tl.exp(x), (2, BLOCK // 2)).trans(), (BLOCK,)) * 1e-30",
        "libdevice.log(libdevice.exp(x))",
        "libdevice.pow(x * 1e30, 2.0) * 1e-30",
    ],
)
def test_an_inf_on_the_way_to_a_finite_number(tmp_path, expression):
    kernel = load_kernel(tmp_path, FUNCTION.format(expression=expression))
    fault = only(run(kernel, (1,), torch.full((8,), 100.0), torch.zeros(8), BLOCK=8))
    assert (fault.kind, fault.severity) == ("inf", "warning")


# Look-alikes that are right


@tkdebug.jit
def softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * n + cols, e / tl.sum(e, 0), mask=cols < n)


def test_softmax_with_fills_is_right():
    assert not run(softmax, (4,), 100 * torch.rand(4, 6), torch.zeros(4, 6), 6, BLOCK=8)


@tkdebug.jit
def reciprocal(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + offs, 1.0 / x, mask=offs < n)


def test_lanes_that_are_masked_off_at_the_store_are_right():
    assert not run(reciprocal, (3,), torch.ones(10), torch.zeros(10), 10, BLOCK=4)


@tkdebug.jit
def sigmoid(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, 1.0 / (1.0 + tl.exp(-x)))


def test_a_division_by_inf_is_right():
    x = torch.tensor([-200.0, 0.0, 200.0, 1.0])
    out = torch.zeros(4)
    assert not run(sigmoid, (1,), x, out, BLOCK=4)
    assert out[0] == 0


@tkdebug.jit
def causal_lse(s_ptr, lse_ptr, n, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    cols = tl.arange(0, BLOCK)
    s = tl.load(s_ptr + rows[:, None] * BLOCK + cols[None, :])
    s = tl.where(cols[None, :] < rows[:, None] - n, s, float("-inf"))
    m = tl.max(s, 1)
    safe = tl.where(m == float("-inf"), 0.0, m)
    total = tl.sum(tl.exp2(s - safe[:, None]), 1)
    tl.store(lse_ptr + rows, m + tl.log2(total))


def test_the_logarithm_of_an_empty_sum_is_right():
    lse = torch.zeros(8)
    assert not run(causal_lse, (1,), torch.rand(8, 8), lse, 3, BLOCK=8)
    assert lse[0] == -torch.inf


@tkdebug.jit
def fill(out_ptr, value, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.where(offs < 2, float("inf"), value))


def test_infs_that_are_written_or_passed_are_right():
    assert not run(fill, (1,), torch.zeros(4), float("-inf"), BLOCK=4)


# Each is Inf in fp64, too, or beyond what fp32 has a number for.
@pytest.mark.parametrize(
    "expression",
    [
        "tl.exp(x)",
        "(tl.exp(x) - tl.exp(-x)) * 0.5",
        "tl.exp(x) * 2 + 1",
        "1.0 / (x - 100)",
        "x / (100 - x)",
        "tl.rsqrt(x - 100)",
        "-tl.log(x - 100)",
        "-tl.log(-tl.log(x / 100))",
        "tl.log(tl.log(x / 100))",
        "tl.where(x > 0, -3e38, 0.0) + -3e38",
        "tl.cumprod(x * 1e9, 0)",
        "tl.sum(x * 1e36, 0)",
        "x * x * 1e35",
        "libdevice.pow(x, x)",
        "libdevice.pow(x - 100, -0.5)",
        "libdevice.sinh(x)",
        "libdevice.expm1(x)",
        "tl.maximum(1.0 / (x - 100), 0.0)",
        "x / tl.exp(-2 * x)",
    ],
)
def test_a_function_that_has_no_number_there_is_right(tmp_path, expression):
    kernel = load_kernel(tmp_path, FUNCTION.format(expression=expression))
    out = torch.zeros(8)
    with scope(checks=DEFAULT_CHECKS):
        assert not run(kernel, (1,), torch.full((8,), 100.0), out, BLOCK=8)
    assert out.isinf().any()


# Of x = 100 and of 0: what overflows is dropped, or goes to 0.
@pytest.mark.parametrize(
    "expression",
    [
        "x / (1 + tl.exp(-x * x))",
        "2 / (1 + tl.exp(2 * x)) - 1",
        "tl.where(x > 20, x, tl.log(1 + tl.exp(x)))",
        "x * (1 - 2 / (1 + tl.exp(2 * tl.log(1 + tl.exp(x)))))",
        "tl.where(x == 0, 0.0, tl.rsqrt(x))",
        "tl.where(x > 0, x / x, 1.0)",
        "tl.minimum(tl.exp(x), 5.0)",
        "tl.exp(-tl.exp(x))",
        "1 / (1 / x + 1 / (x + 1))",
        "tl.exp(float('-inf') + x) + tl.exp(tl.where(x > 50, float('-inf'), x))",
        "tl.max(tl.where(x > 50, x, float('-inf')), 0)",
    ],
)
def test_a_function_that_drops_its_infs_is_right(tmp_path, expression):
    kernel = load_kernel(tmp_path, FUNCTION.format(expression=expression))
    out = torch.full((8,), -1.0)
    with scope(checks=DEFAULT_CHECKS):
        assert not run(kernel, (1,), torch.tensor([0.0, 100.0] * 4), out, BLOCK=8)
    assert out.isfinite().all()


@tkdebug.jit
def multiply(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) * tl.load(y_ptr + offs))


def test_a_product_of_the_input_in_the_type_of_the_input_is_right():
    x = torch.full((8,), 300.0, dtype=torch.float16)
    assert not run(multiply, (1,), x, x, torch.zeros_like(x), BLOCK=8)


def test_infs_that_are_loaded_are_right():
    x = torch.tensor([1.0, torch.inf, -torch.inf, 2.0])
    assert not run(divide, (1,), x, torch.ones(4), torch.zeros(4), 4, BLOCK=4)


@tkdebug.jit
def guarded(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.where(x == 0, 0.0, 1.0 / x)
    tl.store(out_ptr + offs, tl.where(x > 20, x, tl.log(1 + tl.exp(x))) + y)


def test_an_inf_that_a_choice_drops_is_right():
    x = torch.tensor([0.0, 100.0, 1.0, -2.0])
    assert not run(guarded, (1,), x, torch.zeros(4), BLOCK=4)


@tkdebug.jit
def clamped(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, tl.minimum(tl.exp(x), 1e6))


def test_an_inf_that_is_clamped_is_right():
    assert not run(clamped, (1,), torch.full((4,), 99.0), torch.zeros(4), BLOCK=4)


@tkdebug.jit
def online_softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    m = float("-inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n, other=float("-inf"))
        new = tl.maximum(m, tl.max(x, 0))
        total = total * tl.exp(m - new) + tl.sum(tl.exp(x - new), 0)
        m = new
    tl.store(out_ptr, m + tl.log(total))


def test_an_online_softmax_that_begins_at_minus_inf_is_right():
    assert not run(online_softmax, (1,), 50 * torch.rand(29), torch.zeros(1), 29, BLOCK=8)


@tkdebug.jit
def log_of_counts(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.log(tl.load(x_ptr + offs)))


def test_log_probabilities_of_zero_are_right():
    x = torch.tensor([0.0, 0.5, 0.5, 0.0])
    assert not run(log_of_counts, (1,), x, torch.zeros(4), BLOCK=4)


@tkdebug.jit
def masked_block(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    x_block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
    out_block = tl.make_block_ptr(out_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0,), padding_option="zero")
    tl.store(out_block, 1.0 / x, boundary_check=(0,))


def test_what_a_block_leaves_out_is_right():
    assert not run(masked_block, (1,), torch.ones(6), torch.zeros(6), 6, BLOCK=8)


@tkdebug.jit
def causal_scores(s_ptr, out_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, N)
    s = tl.load(s_ptr + row * N + cols)
    tl.store(out_ptr + row * N + cols, tl.where(cols <= row, s * 0.125, float("-inf")))


def test_scores_that_are_filled_up_are_right_at_no_cost(monkeypatch):
    def refuse(self, run):
        raise AssertionError("the batch runs again")

    monkeypatch.setattr(InfsOfBatch, "of_batch", refuse)
    s, out = torch.rand(8, 8), torch.zeros(8, 8)
    assert not run(causal_scores, (8,), s, out, N=8)
    assert out.isinf().sum() == 28
    s[3, 2] = torch.inf
    with pytest.raises(AssertionError, match="the batch runs again"):
        run(causal_scores, (8,), s, out, N=8)


@tkdebug.jit
def bits(out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    inf = tl.full((BLOCK,), 0x7F800000, tl.int32).to(tl.float32, bitcast=True)
    tl.store(out_ptr + offs, inf + offs)


def test_an_inf_made_of_bits_is_right():
    assert not run(bits, (1,), torch.zeros(4), BLOCK=4)


@tkdebug.jit
def cast_to_half(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs).to(tl.float16))


def test_a_cast_is_left_to_narrowing():
    x = torch.full((4,), 1e5)
    assert not run(cast_to_half, (1,), x, torch.zeros(4, dtype=torch.float16), BLOCK=4)


@tkdebug.jit
def decayed_scores(g_ptr, out_ptr, cleared, N: tl.constexpr):
    rows = tl.arange(0, N)
    g = tl.load(g_ptr + rows)
    for j in range(N):
        decay = tl.exp(g - tl.load(g_ptr + j))  # BORN decayed_scores
        tl.store(out_ptr + rows * N + j, decay * (g - g))
    tl.debug_barrier()
    above = rows[:, None] + cleared < rows[None, :]
    tl.store(out_ptr + rows[:, None] * N + rows[None, :], tl.zeros((N, N), tl.float32), mask=above)


@pytest.mark.parametrize("kind", ["inf", "nan"])
def test_what_the_kernel_overwrites_is_no_fault(kind):
    g = -100.0 * torch.arange(8)
    out = torch.zeros(8, 8)
    with scope(checks=(kind,)):
        assert not run(decayed_scores, (1,), g, out, 0, N=8)
        assert out.isfinite().all()
        # Of what it leaves, the first is reported.
        fault = only(run(decayed_scores, (1,), g, out, 1, N=8))
    assert (fault.kind, fault.count) == (kind, int(out.isnan().sum())) == (kind, 7)
    assert fault.index == 1
    if kind == "inf":
        assert (fault.line, fault.lane) == (line("BORN decayed_scores"), (0,))
        assert "of exp(100), and stored as a NaN" in fault.message
