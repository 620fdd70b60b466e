"""`--check padding`: reductions that masked-off elements change, and those that they do not."""

import sys
from functools import partial

import pytest
import torch
from differential import run
from marked_lines import line_of, only

import tkdebug
import tkdebug.language as tl
from tkdebug.interpreter.checks.padding.glance import PaddingOfBatches
from tkdebug.knobs import scope

line = partial(line_of, sys.modules[__name__])
BUDGETS = pytest.mark.parametrize("budget", [None, 64], ids=["whole", "single"])


@pytest.fixture(autouse=True)
def padding():
    with scope(checks=("padding",)):
        torch.manual_seed(0)
        yield


# Bugs


@tkdebug.jit
def row_max(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)  # LOAD max
    tl.store(out_ptr + row, tl.max(x, 0))  # BAD max


@BUDGETS
def test_a_maximum_of_negative_numbers_padded_by_zero(budget):
    x = torch.rand(4, 6)
    x[2] = torch.tensor([-3.0, -5, -4, -8, -9, -7])
    out = torch.zeros(4)
    fault = only(run(row_max, (4,), x, out, 6, BLOCK=8, budget=budget))
    assert (fault.kind, fault.line, fault.severity) == ("padding", line("BAD max"), "error")
    assert (fault.program_id, fault.tensor, fault.index, fault.count) == (
        (2, 0, 0),
        "out_ptr",
        2,
        1,
    )
    assert fault.message.startswith(
        f"this max takes in elements that the load at line {line('LOAD max')} masks off: "
        "0 in place of -3 is stored at"
    )
    assert fault.hint == 'pass other=float("-inf") there, which is neutral here'


@tkdebug.jit
def softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    e = tl.exp(x - tl.max(x, 0))
    total = tl.sum(e, 0)  # BAD softmax
    tl.store(out_ptr + row * n + cols, e / total, mask=cols < n)


@BUDGETS
def test_a_softmax_padded_by_zero(budget):
    fault = only(
        run(softmax, (3,), torch.randn(3, 5), torch.zeros(3, 5), 5, BLOCK=8, budget=budget)
    )
    assert (fault.line, fault.count) == (line("BAD softmax"), 15)
    assert "this sum takes in" in fault.message
    assert fault.hint is not None
    assert "tl.where(mask, x, 0)" in fault.hint


@tkdebug.jit
def layer_norm(x_ptr, w_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    w = tl.load(w_ptr + cols, mask=mask)
    mean = tl.sum(x, 0) / n
    centred = x - mean
    var = tl.sum(centred * centred, 0) / n  # BAD norm
    tl.store(out_ptr + row * n + cols, centred / tl.sqrt(var + eps) * w, mask=mask)


def test_a_variance_without_a_choice():
    x = 3 + torch.randn(3, 12)
    fault = only(run(layer_norm, (3,), x, torch.ones(12), torch.zeros(3, 12), 12, 1e-5, BLOCK=16))
    assert (fault.line, fault.program_id) == (line("BAD norm"), (0, 0, 0))


@tkdebug.jit
def two_pass_norm(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    mean = tl.sum(total, 0) / n
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0) - mean
        squares += x * x  # BAD two_pass
    tl.store(out_ptr, tl.sum(squares, 0) / n)


@pytest.mark.parametrize("n", [5, 21])
def test_a_variance_that_is_accumulated_in_a_loop(n):
    fault = only(run(two_pass_norm, (1,), 2 + torch.randn(n), torch.zeros(1), n, BLOCK=8))
    # Where the loop runs once what it gives is all padding there, and the sum takes it in.
    assert fault.line == line("BAD two_pass")


@tkdebug.jit
def nearest(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + cols, mask=cols < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.argmin(x, 0))  # BAD nearest


def test_an_argmin_padded_by_zero():
    out = torch.zeros(2, dtype=torch.int32)
    fault = only(run(nearest, (2,), 1 + torch.rand(2, 11), out, 11, BLOCK=16))
    assert (fault.line, fault.count) == (line("BAD nearest"), 2)
    assert "this argmin takes in" in fault.message
    assert "11 in place of" in fault.message


@tkdebug.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, n, D: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < n, other=0.0)
    m = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        within = cols[:, None] < n
        k = tl.load(k_ptr + cols[:, None] * D + d[None, :], mask=within, other=0.0)  # KEYS
        v = tl.load(v_ptr + cols[:, None] * D + d[None, :], mask=within, other=0.0)
        s = tl.dot(q, tl.trans(k))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        alpha = tl.exp(m - new)
        total = total * alpha + tl.sum(p, 1)  # BAD attention
        acc = acc * alpha[:, None] + tl.dot(p, v)
        m = new
    out = acc / total[:, None]
    tl.store(out_ptr + rows[:, None] * D + d[None, :], out, mask=rows[:, None] < n)


def test_scores_of_keys_past_the_end():
    q, k, v = torch.randn(3, 40, 16).unbind()
    fault = only(run(attention, (3,), q, k, v, torch.zeros(40, 16), 40, D=16, BLOCK=16))
    assert fault.line == line("BAD attention")
    # Not those of queries, which mask other rows.
    assert f"elements that the load at line {line('KEYS')} masks off" in fault.message


@tkdebug.jit
def matmul(a_ptr, b_ptr, c_ptr, K, other, BLOCK: tl.constexpr):
    r = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + r
        a = tl.load(a_ptr + r[:, None] * K + k[None, :], mask=k[None, :] < K, other=1.0)
        b = tl.load(b_ptr + k[:, None] * BLOCK + r[None, :], mask=k[:, None] < K, other=1.0)
        acc = tl.dot(a, b, acc)  # BAD matmul
    tl.store(c_ptr + r[:, None] * BLOCK + r[None, :], acc)


def test_a_matmul_whose_operands_are_padded_by_one():
    a, b = torch.randn(16, 24), torch.randn(24, 16)
    fault = only(run(matmul, (1,), a, b, torch.zeros(16, 16), 24, 0.0, BLOCK=16))
    assert (fault.line, fault.count) == (line("BAD matmul"), 256)
    assert "this product takes in" in fault.message


@tkdebug.jit
def logsumexp(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    m = tl.max(x, 0)
    tl.store(out_ptr, m + tl.log(tl.sum(tl.exp(x - m), 0)))  # BAD logsumexp


def test_a_logsumexp_padded_by_zero():
    fault = only(run(logsumexp, (1,), torch.randn(6), torch.zeros(1), 6, BLOCK=8))
    assert fault.line == line("BAD logsumexp")


@tkdebug.jit
def product(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    total = tl.reduce(x, 0, _times)  # BAD product
    tl.store(out_ptr, total)


@tkdebug.jit
def _times(a, b):
    return a * b


def test_a_product_padded_by_zero():
    fault = only(run(product, (1,), 1 + torch.rand(6), torch.zeros(1), 6, BLOCK=8))
    assert fault.line == line("BAD product")
    assert fault.hint is not None
    assert "other=1" in fault.hint


@tkdebug.jit
def suffix_sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=1.0)
    tl.store(out_ptr + cols, tl.cumsum(x, 0, reverse=True), mask=cols < n)  # BAD suffix


def test_a_scan_from_the_end():
    fault = only(run(suffix_sums, (1,), torch.rand(6), torch.zeros(6), 6, BLOCK=8))
    assert (fault.line, fault.count) == (line("BAD suffix"), 6)


@tkdebug.jit
def count_zeros(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0)
    tl.atomic_add(out_ptr, tl.sum((x == 0).to(tl.int32), 0))  # BAD count


def test_a_count_of_what_padding_is():
    x = torch.ones(13, dtype=torch.int32)
    fault = only(run(count_zeros, (2,), x, torch.zeros(1, dtype=torch.int32), 13, BLOCK=8))
    assert (fault.line, fault.program_id) == (line("BAD count"), (1, 0, 0))


@tkdebug.jit
def mean(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + cols, mask=cols < n, other=0.0)
    average = tl.sum(x, 0) / BLOCK  # BAD mean
    tl.store(out_ptr + tl.program_id(0), average)


def test_a_mean_over_the_whole_tile():
    fault = only(run(mean, (3,), 1 + torch.rand(3, 6), torch.zeros(3), 6, BLOCK=8))
    assert fault.line == line("BAD mean")
    assert "this mean counts elements" in fault.message


@tkdebug.jit
def column_max(x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    c = tl.arange(0, C)
    best = tl.full((C,), float("-inf"), tl.float32)
    for start in range(0, rows, R):
        r = start + tl.arange(0, R)
        inside = (r[:, None] < rows) & (c[None, :] < cols)
        x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=inside, other=0.0)
        best = tl.maximum(best, tl.max(x, 0))  # BAD column_max
    tl.store(out_ptr + c, best, mask=c < cols)


def test_columns_of_a_tile_whose_rows_are_padded():
    x = -1 - torch.rand(11, 5)
    fault = only(run(column_max, (1,), x, torch.zeros(5), 11, 5, R=4, C=8))
    assert (fault.line, fault.count) == (line("BAD column_max"), 5)


@tkdebug.jit
def block_max(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
    x = tl.load(block, boundary_check=(0,), padding_option="zero")
    tl.store(out_ptr, tl.max(x, 0))  # BAD block_max


@tkdebug.jit
def descriptor_max(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[n], strides=[1], block_shape=[BLOCK]).load([0])
    tl.store(out_ptr, tl.max(x, 0))  # BAD descriptor_max


@pytest.mark.parametrize("kernel", [block_max, descriptor_max])
def test_blocks_that_reach_past_the_end(kernel):
    x = -1 - torch.rand(12)
    fault = only(run(kernel, (1,), x, torch.zeros(1), 12, BLOCK=16))
    name = kernel.__name__
    assert (fault.line, fault.count) == (line(f"BAD {name}"), 1)


@tkdebug.jit
def quantise_rows(x_ptr, scale_ptr, zero_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    low = tl.min(x, 0)  # BAD quantise
    high = tl.max(x, 0)
    tl.store(scale_ptr + row, (high - low) / 255.0)
    tl.store(zero_ptr + row, low)


def test_the_range_of_positive_rows():
    x = 5 + torch.rand(3, 6)
    fault = only(run(quantise_rows, (3,), x, torch.zeros(3), torch.zeros(3), 6, BLOCK=8))
    assert fault.line == line("BAD quantise")
    assert fault.hint is not None
    assert 'other=float("inf")' in fault.hint


@tkdebug.jit
def cross_entropy(x_ptr, y_ptr, loss_ptr, n, fill, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * n
    largest, total = float("-inf"), 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=fill)
        larger = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), 0)  # BAD entropy
        largest = larger
    label = tl.load(x_ptr + tl.load(y_ptr + row))
    tl.store(loss_ptr + row, largest + tl.log(total) - label)


@pytest.mark.parametrize("n", [5, 21, 24])
def test_an_online_cross_entropy_padded_by_zero(n):
    x, y, loss = torch.randn(3, n), torch.arange(3), torch.zeros(3)
    assert not run(cross_entropy, (3,), x, y, loss, n, float("-inf"), BLOCK=8)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(x, y, reduction="none"))
    faults = run(cross_entropy, (3,), x, y, loss, n, 0.0, BLOCK=8)
    if n == 24:
        assert not faults
    else:
        assert only(faults).line == line("BAD entropy")
        assert only(faults).count == 3


@tkdebug.jit
def group_norm(x_ptr, out_ptr, n, fill, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    total, squares = 0.0, 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + group * n + cols, mask=cols < n, other=fill)
        total += tl.sum(x)  # BAD group norm
        squares += tl.sum(x * x)  # BAD squares
    mean = total / n
    scale = 1 / tl.sqrt(squares / n - mean * mean + 1e-5)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + group * n + cols, mask=cols < n, other=mean)
        tl.store(out_ptr + group * n + cols, (x - mean) * scale, mask=cols < n)


def test_a_group_norm_padded_by_one():
    x, out = torch.randn(4, 27), torch.zeros(4, 27)
    assert not run(group_norm, (4,), x, out, 27, 0.0, BLOCK=8)
    faults = run(group_norm, (4,), x, out, 27, 1.0, BLOCK=8)
    assert {fault.line for fault in faults} == {line("BAD group norm"), line("BAD squares")}


@tkdebug.jit
def bins_of(
    x_ptr,
    out_ptr,
    n,
    BINS: tl.constexpr,
    OTHER: tl.constexpr,
    HOW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=OTHER)  # LOAD histogram
    if HOW == "masked":
        counts = tl.histogram(x, BINS, mask=offs < n)
    else:
        counts = tl.histogram(x, BINS)  # BAD histogram
    bins = tl.arange(0, BINS)
    if HOW == "corrected":
        rest = BLOCK - tl.minimum(BLOCK, n - tl.program_id(0) * BLOCK)
        counts -= tl.where(bins == 0, rest, 0)
    tl.atomic_add(out_ptr + bins, counts, mask=bins < 15 if HOW == "apart" else bins < BINS)


@BUDGETS
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_a_histogram_that_counts_padding(budget, dtype):
    x, out = torch.arange(20).to(dtype) % 15, torch.zeros(16, dtype=torch.int32)
    # 3.9 takes 32 bits alone.
    with scope(triton_version="3.8"):
        fault = only(run(bins_of, (2,), x, out, 20, 16, 0, "plain", BLOCK=16, budget=budget))
    assert (fault.kind, fault.line, fault.index) == ("padding", line("BAD histogram"), 0)
    assert fault.message.startswith(
        f"this histogram takes in elements that the load at line {line('LOAD histogram')} masks "
        "off: 12 in place of 0 is stored at"
    )
    assert fault.hint == "pass the load's mask to tl.histogram, too"


@pytest.mark.parametrize(
    ("other", "how", "n"),
    [
        (0, "masked", 20),
        (-1, "plain", 20),
        (16, "plain", 20),
        (15, "apart", 20),
        (0, "corrected", 20),
        (0, "plain", 32),
    ],
)
def test_histograms_that_count_no_padding(other, how, n):
    x, out = torch.arange(n, dtype=torch.int32) % 15, torch.zeros(16, dtype=torch.int32)
    assert run(bins_of, (2,), x, out, n, 16, other, how, BLOCK=16) == []
    assert torch.equal(out[:15].long(), torch.bincount(x, minlength=15))


@tkdebug.jit
def ranks(x_ptr, out_ptr, n, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)[:, None]
    rank = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.load(x_ptr + cols, mask=cols < n, other=OTHER)[None, :]
        is_before = cols[None, :] < offs[:, None]
        rank += tl.sum(((y < x) | ((y == x) & is_before)).to(tl.int32), 1)  # BAD ranks
    tl.store(out_ptr + offs, rank, mask=offs < n)


@BUDGETS
def test_ranks_that_count_padding(budget):
    x, out = torch.arange(20.0) - 5, torch.zeros(20, dtype=torch.int32)
    fault = only(run(ranks, (2,), x, out, 20, 0.0, BLOCK=16, budget=budget))
    assert (fault.line, fault.index, fault.count) == (line("BAD ranks"), 6, 14)
    assert not run(ranks, (2,), x, out, 20, float("inf"), BLOCK=16, budget=budget)
    assert out.tolist() == list(range(20))


@tkdebug.jit
def masked_and_padded(x_ptr, y_ptr, out_ptr, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n)
    y = tl.load(y_ptr + cols, mask=cols < n, other=3.0)
    x = tl.where(cols < n, x, 0.0)
    both = x * y if STEP == "product" else x + y
    tl.store(out_ptr + row, tl.sum(both))  # BAD sum with a mask


def test_padding_beside_what_was_cared_for():
    x, y, out = torch.rand(3, 6), torch.rand(6), torch.zeros(3)
    fault = only(run(masked_and_padded, (3,), x, y, out, 6, "sum", BLOCK=8))
    assert (fault.line, fault.count) == (line("BAD sum with a mask"), 3)
    assert not run(masked_and_padded, (3,), x, y, out, 6, "product", BLOCK=8)


@tkdebug.jit
def underflowing(x_ptr, out_ptr, n, other, HOW: tl.constexpr, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=other)  # LOAD underflowing
    if HOW == "min":
        m = tl.min(x, 0)  # BAD underflowing min
        e = tl.exp(m - x)
    elif HOW == "two":
        m = tl.max(x, 0)  # BAD underflowing two
        e = tl.exp2((x - m) * 1.4426950408889634)
    else:
        m = tl.max(x, 0)  # BAD underflowing
        e = tl.exp(x - m)
    total = tl.sum(e, 0)
    if HOW == "log":
        tl.store(out_ptr + row, m + tl.log(total))
    elif HOW == "eps":
        tl.store(out_ptr + row * n + cols, e / (total + 1e-9), mask=mask)
    elif HOW == "weighted":
        tl.store(out_ptr + row, tl.sum(e * x, 0) / total)
    else:
        tl.store(out_ptr + row * n + cols, e / total, mask=mask)


def found_underflowing(x, how="", other=0.0):
    return run(underflowing, (len(x),), x, torch.zeros_like(x), x.shape[1], other, how, BLOCK=16)


@pytest.mark.parametrize(
    ("how", "base"),
    [("", -200), ("", -1000), ("two", -200), ("min", 200), ("log", -200), ("eps", -300)],
)
def test_an_exponential_that_underflows_beside_the_padding(how, base):
    """The maximum and the sum both take padding in: one of them alone shows nothing."""
    x = base + torch.randn(3, 10)
    fault = only(found_underflowing(x, how))
    what = "min" if how == "min" else "max"
    assert fault.kind == "padding"
    assert fault.line == line(
        f"BAD underflowing {how}".strip().replace(" log", "").replace(" eps", "")
    )
    assert fault.message.startswith(
        f"this {what} takes in elements that the load at line {line('LOAD underflowing')} masks off"
    )
    assert "in place of" in fault.message
    assert "neutral here" in fault.hint


def test_rows_of_which_only_some_underflow():
    x = torch.tensor([-200.0, 3.0, 1.0])[:, None] + torch.randn(3, 10).abs()
    (at_max, *others) = sorted(found_underflowing(x), key=lambda fault: fault.line)
    assert (at_max.line, at_max.program_id) == (line("BAD underflowing"), (0, 0, 0))
    assert all(fault.program_id != (0, 0, 0) for fault in others)


@tkdebug.jit
def weights_of_keys_far_off(q_ptr, k_ptr, v_ptr, out_ptr, n, D: tl.constexpr, N: tl.constexpr):
    d, keys = tl.arange(0, D), tl.arange(0, N)
    mask = keys[:, None] < n
    at = keys[:, None] * D + d[None, :]
    q = tl.load(q_ptr + d)
    k = tl.load(k_ptr + at, mask=mask, other=0.0)  # LOAD far off
    v = tl.load(v_ptr + at, mask=mask, other=0.0)
    s = tl.sum(q[None, :] * k, axis=1)
    p = tl.exp(s - tl.max(s, axis=0))  # BAD far off
    p = p / tl.sum(p, axis=0)
    tl.store(out_ptr + d, tl.sum(p[:, None] * v, axis=0))


def test_scores_that_underflow_beside_those_of_padding():
    q, k, v = torch.ones(16), torch.full((10, 16), -20.0), torch.randn(10, 16)
    faults = run(weights_of_keys_far_off, (1,), q, k, v, torch.zeros(16), 10, D=16, N=16)
    assert {fault.line for fault in faults} == {line("BAD far off")}


# Look-alikes that are right


@tkdebug.jit
def right_softmax(x_ptr, out_ptr, n, other, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * n + cols, e / tl.sum(e, 0), mask=cols < n)


@tkdebug.jit
def softmax_with_a_choice(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    m = tl.max(x, 0)  # too large where all are negative: e and its sum shrink by one factor
    e = tl.where(cols < n, tl.exp(x - m), 0.0)
    tl.store(out_ptr + row * n + cols, e / tl.sum(e, 0), mask=cols < n)


@BUDGETS
def test_softmaxes_are_right(budget):
    x = -1 - torch.rand(3, 5)
    out = torch.zeros(3, 5)
    assert not run(right_softmax, (3,), x, out, 5, 0.0, BLOCK=8, budget=budget)
    assert not run(softmax_with_a_choice, (3,), x, out, 5, BLOCK=8, budget=budget)
    torch.testing.assert_close(out, x.softmax(1))


@pytest.mark.parametrize(
    ("how", "base", "other"),
    [
        ("", -200, float("-inf")),
        ("two", -200, float("-inf")),
        ("min", 200, float("inf")),
        ("log", -200, float("-inf")),
        ("eps", -300, float("-inf")),
        ("", 200, 0.0),
        ("min", -200, 0.0),
        ("two", 300, 0.0),
        ("log", 200, 0.0),
        ("eps", 150, -1e4),
        ("weighted", 200, 0.0),
    ],
)
def test_exponentials_that_underflow_in_the_padding_alone_are_right(how, base, other):
    x = base + torch.randn(3, 10)
    assert not found_underflowing(x, how, other)


def test_rows_that_overflow_by_themselves_tell_nothing_of_their_padding():
    x = torch.tensor([float("inf"), float("nan")])[:, None] + torch.randn(2, 10)
    assert not found_underflowing(x)


@tkdebug.jit
def right_norm(x_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    mean = tl.sum(x, 0) / n
    centred = tl.where(cols < n, x - mean, 0.0)
    var = tl.sum(centred * centred, 0) / n
    tl.store(out_ptr + row * n + cols, (x - mean) / tl.sqrt(var + eps), mask=cols < n)


def test_a_norm_with_a_choice_is_right():
    assert not run(right_norm, (3,), 3 + torch.randn(3, 12), torch.zeros(3, 12), 12, 0.1, BLOCK=16)


@tkdebug.jit
def norm_by_multiplied_mask(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + cols, mask=mask, other=0.0)
    centred = (x - tl.sum(x, 0) / n) * mask.to(tl.float32)
    tl.store(out_ptr, tl.sum(centred * centred, 0) / n)


def test_a_mask_as_a_factor_is_right():
    assert not run(norm_by_multiplied_mask, (1,), 3 + torch.randn(6), torch.zeros(1), 6, BLOCK=8)


@tkdebug.jit
def max_of_relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    tl.store(out_ptr, tl.max(tl.maximum(x, 0.0), 0))
    tl.store(out_ptr + 1, tl.max(tl.abs(x), 0) / 127.0)


def test_a_maximum_of_what_is_not_negative_is_right():
    assert not run(max_of_relu, (1,), torch.randn(6), torch.zeros(2), 6, BLOCK=8)


@tkdebug.jit
def convolution(x_ptr, w_ptr, out_ptr, n, K: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, K)
    at = offs[:, None] + k[None, :] - K // 2
    x = tl.load(x_ptr + at, mask=(at >= 0) & (at < n), other=0.0)
    w = tl.load(w_ptr + k)
    tl.store(out_ptr + offs, tl.sum(x * w[None, :], 1), mask=offs < n)


def test_a_halo_of_zeros_is_right():
    assert not run(
        convolution, (3,), torch.randn(20), torch.randn(4), torch.zeros(20), 20, K=4, BLOCK=8
    )


@tkdebug.jit
def average_pool(x_ptr, out_ptr, n, K: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = offs[:, None] * 2 + tl.arange(0, K)[None, :] - 1
    x = tl.load(x_ptr + at, mask=(at >= 0) & (at < n), other=0.0)
    tl.store(out_ptr + offs, tl.sum(x, 1) / K, mask=offs * 2 < n)


def test_an_average_that_counts_its_padding_is_right():
    assert not run(average_pool, (3,), 1 + torch.rand(40), torch.zeros(20), 40, K=4, BLOCK=8)


@tkdebug.jit
def rows_past_the_end(x_ptr, out_ptr, rows, n, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    inside = (r[:, None] < rows) & (c[None, :] < n)
    x = tl.load(x_ptr + r[:, None] * n + c[None, :], mask=inside, other=float("-inf"))
    x = tl.where(r[:, None] < rows, x, 7.0)
    tl.store(out_ptr + r, tl.max(x, 1), mask=r < rows)


def test_rows_that_are_padding_as_a_whole_are_right():
    assert not run(rows_past_the_end, (2,), torch.randn(6, 5), torch.zeros(6), 6, 5, R=4, C=8)


@tkdebug.jit
def matmul_padded_once(a_ptr, b_ptr, c_ptr, M, K, BLOCK: tl.constexpr):
    r = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + r
        inside = (k[None, :] < K) & (r[:, None] < M)
        a = tl.load(a_ptr + r[:, None] * K + k[None, :], mask=inside, other=0.0)
        b = tl.load(b_ptr + k[:, None] * BLOCK + r[None, :], mask=k[:, None] < K, other=1.0)
        acc += tl.dot(a, b)
    tl.store(c_ptr + r[:, None] * BLOCK + r[None, :], acc, mask=r[:, None] < M)


def test_a_product_of_which_one_operand_is_padded_by_zero_is_right():
    a, b = torch.randn(11, 24), torch.randn(24, 16)
    assert not run(matmul_padded_once, (1,), a, b, torch.zeros(11, 16), 11, 24, BLOCK=16)


@tkdebug.jit
def right_attention(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, n, D: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < n, other=0.0)
    m = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + cols[:, None] * D + d[None, :], mask=cols[:, None] < n, other=0.0)
        v = tl.load(v_ptr + cols[:, None] * D + d[None, :], mask=cols[:, None] < n, other=0.0)
        s = tl.dot(q, tl.trans(k))
        s += tl.where((cols < n)[None, :] & (rows[:, None] >= cols[None, :]), 0.0, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        alpha = tl.exp(m - new)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p, v)
        m = new
    tl.store(out_ptr + rows[:, None] * D + d[None, :], acc / total[:, None], mask=rows[:, None] < n)
    tl.store(lse_ptr + rows, m + tl.log(total), mask=rows < n)


@BUDGETS
def test_scores_that_are_masked_by_an_addend_are_right(budget):
    q, k, v = torch.randn(3, 40, 16).unbind()
    out, lse = torch.zeros(40, 16), torch.zeros(40)
    assert not run(right_attention, (3,), q, k, v, out, lse, 40, D=16, BLOCK=16, budget=budget)


@tkdebug.jit
def sums_of_splits(x_ptr, lengths_ptr, out_ptr, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    row, split = tl.program_id(0), tl.program_id(1)
    begin = split * SPLIT
    end = tl.minimum(tl.load(lengths_ptr + row), begin + SPLIT)
    largest = -1e30
    total = 1.0
    for start in range(begin, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * 64 + cols, mask=cols < end, other=0.0)
        new = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), 0)  # BAD splits
        largest = new
    tl.store(out_ptr + row * tl.num_programs(1) + split, tl.maximum(total, 0.5))


@BUDGETS
def test_programs_whose_loop_has_no_round_tell_nothing(budget):
    x, lengths = torch.randn(3, 64), torch.tensor([5, 37, 64])
    out = torch.zeros(3, 4)
    fault = only(run(sums_of_splits, (3, 4), x, lengths, out, BLOCK=8, SPLIT=16, budget=budget))
    assert (fault.line, fault.program_id) == (line("BAD splits"), (0, 0, 0))
    assert fault.count == 2  # the last splits of the first two rows


@tkdebug.jit
def scores_of_a_block(q_ptr, k_ptr, lse_ptr, acc_ptr, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, BLOCK)
    q = tl.load(q_ptr + rows[:, None] * BLOCK + d[None, :], mask=rows[:, None] < n, other=0.0)
    m = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + cols[:, None] * BLOCK + d[None, :], mask=cols[:, None] < n, other=0.0)
        s = tl.dot(q, tl.trans(k))
        if HOW == "where":
            s = tl.where((cols < n)[None, :], s, float("-inf"))
        elif HOW == "addend":
            s += tl.where(cols < n, 0.0, float("-inf"))[None, :]
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        alpha = tl.exp(m - new)
        total = total * alpha + tl.sum(p, 1)  # BAD scores
        acc = acc * alpha[:, None] + tl.dot(p, k)
        m = new
    # The outputs have room for whole blocks of rows.
    tl.store(lse_ptr + rows, m + tl.log(total))
    tl.store(acc_ptr + rows[:, None] * BLOCK + d[None, :], acc)


@BUDGETS
@pytest.mark.parametrize("how", ["where", "addend"])
def test_rows_past_the_end_are_right_in_outputs_that_have_room_for_them(how, budget):
    q, k = torch.randn(2, 21, 16).unbind()
    lse, acc = torch.zeros(32), torch.zeros(32, 16)
    assert not run(scores_of_a_block, (2,), q, k, lse, acc, 21, how, BLOCK=16, budget=budget)


@BUDGETS
def test_rows_before_the_end_are_still_looked_at(budget):
    q, k = (torch.randn(2, 21, 16) * 0.1).unbind()
    lse, acc = torch.zeros(32), torch.zeros(32, 16)
    fault = only(run(scores_of_a_block, (2,), q, k, lse, acc, 21, "", BLOCK=16, budget=budget))
    assert (fault.line, fault.index) == (line("BAD scores"), 0)
    assert fault.count == 21


@tkdebug.jit
def lookup(x_ptr, keep_ptr, out_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    keep = tl.load(keep_ptr + cols) != 0
    x = tl.load(x_ptr + cols, mask=keep, other=0.0)
    tl.store(out_ptr, tl.max(x, 0))


def test_a_mask_that_was_loaded_is_right():
    keep = torch.tensor([1, 1, 0, 1], dtype=torch.int32)
    assert not run(lookup, (1,), -1 - torch.rand(4), keep, torch.zeros(1), BLOCK=4)


@tkdebug.jit
def dropout(x_ptr, out_ptr, seed, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=tl.rand(seed, cols) > 0.5, other=0.0)
    tl.store(out_ptr, tl.max(x, 0))


def test_a_dropout_is_right():
    assert not run(dropout, (1,), -1 - torch.rand(16), torch.zeros(1), 3, BLOCK=16)


@tkdebug.jit
def corrected(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0)
    zeros = tl.sum((x == 0).to(tl.int32), 0)
    tl.store(out_ptr, zeros - (BLOCK - n))
    e = tl.sum(tl.exp(x.to(tl.float32)), 0) - (BLOCK - n).to(tl.float32)
    tl.store(out_ptr + 1, e.to(tl.int32))


def test_padding_that_is_taken_away_afterwards_is_right():
    x = torch.ones(6, dtype=torch.int32)
    assert not run(corrected, (1,), x, torch.zeros(2, dtype=torch.int32), 6, BLOCK=8)


@tkdebug.jit
def two_halves(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + cols, mask=cols < n, other=0.0)
    b = tl.load(b_ptr + cols - n, mask=cols >= n, other=0.0)
    tl.store(out_ptr, tl.min(a + b, 0))
    tl.store(out_ptr + 1, tl.min(tl.where(cols < n, a, b), 0))


def test_two_loads_that_fill_each_others_gaps_are_right():
    a, b = 1 + torch.rand(5), 1 + torch.rand(3)
    assert not run(two_halves, (1,), a, b, torch.zeros(2), 5, BLOCK=8)


@tkdebug.jit
def prefix_sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=3.0)
    tl.store(out_ptr + cols, tl.cumsum(x, 0), mask=cols < n)


def test_a_scan_whose_padding_comes_last_is_right():
    assert not run(prefix_sums, (1,), torch.rand(6), torch.zeros(6), 6, BLOCK=8)


@tkdebug.jit
def right_mean(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    tl.store(out_ptr, tl.sum(x, 0) / n)
    tl.store(out_ptr + 1, tl.sum(x, 0) / 8)


def test_means_are_right():
    assert not run(right_mean, (1,), torch.rand(13), torch.zeros(2), 13, BLOCK=16)


def test_a_whole_tile_is_right():
    assert not run(mean, (3,), 1 + torch.rand(3, 8), torch.zeros(3), 8, BLOCK=8)
    assert not run(row_max, (4,), -1 - torch.rand(4, 8), torch.zeros(4), 8, BLOCK=8)


@tkdebug.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=5.0)
    tl.store(out_ptr + offs, x + tl.load(y_ptr + offs, mask=offs < n), mask=offs < n)


def test_a_kernel_without_reductions_is_right():
    assert not run(add, (3,), torch.rand(20), torch.rand(20), torch.zeros(20), 20, BLOCK=8)


@tkdebug.jit
def sum_with_gaps_filled(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    y = tl.load(y_ptr + cols)
    tl.store(out_ptr, tl.max(x + y, 0))


def test_padding_that_meets_data_of_a_load_without_a_mask_is_right():
    x, y = -1 - torch.rand(5), -torch.rand(8)
    assert not run(sum_with_gaps_filled, (1,), x, y, torch.zeros(1), 5, BLOCK=8)


@tkdebug.jit
def neighbours_swapped(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=9.0)
    pairs = tl.reshape(x, (BLOCK // 2, 2))
    second = tl.arange(0, 2)[None, :]
    left = tl.sum(pairs * (1 - second), 1)
    right = tl.sum(pairs * second, 1)
    least = tl.minimum(left, right)
    tl.store(out_ptr + tl.arange(0, BLOCK // 2), least)


def test_a_sum_that_picks_one_element_is_right():
    # As networks that sort do it; what was filled in for the sake of the order is a number there.
    out = torch.zeros(4)
    assert not run(neighbours_swapped, (1,), torch.rand(5), out, 5, BLOCK=8)
    assert out[3] == 9


# How much is looked at


@pytest.fixture
def followed(monkeypatch):
    """The first programs of the batches whose padding was followed op by op."""
    batches = []
    of_batch = PaddingOfBatches.of_batch

    def noted(self, run):
        batches.append(run.first)
        return of_batch(self, run)

    monkeypatch.setattr(PaddingOfBatches, "of_batch", noted)
    return batches


@tkdebug.jit
def row_softmax(x_ptr, out_ptr, n, fill, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=fill)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * n + cols, e / tl.sum(e, 0), mask=cols < n)


def test_a_glance_is_enough_where_fills_are_neutral(followed):
    x, out = torch.randn(3, 5), torch.zeros(3, 5)
    assert not run(row_softmax, (3,), x, out, 5, float("-inf"), BLOCK=8)
    assert not run(row_softmax, (3,), torch.randn(3, 8), torch.zeros(3, 8), 8, 0.0, BLOCK=8)
    assert followed == []
    fault = only(run(row_softmax, (3,), x, out, 5, 0.0, BLOCK=8))
    assert "this sum takes in" in fault.message
    # The batch ran again; from now on padding is followed at once.
    assert followed == [0]
    assert not run(row_softmax, (3,), x, out, 5, float("-inf"), BLOCK=8)
    assert followed == [0, 0]


def test_only_batches_that_need_it_run_again(followed):
    @tkdebug.jit
    def sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        pid = tl.program_id(0)
        offs = pid * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + pid, tl.sum(tl.load(x_ptr + offs, mask=offs < n, other=1.0), 0))

    fault = only(run(sums, (4,), torch.zeros(30), torch.zeros(4), 30, BLOCK=8, budget=64))
    assert (fault.program_id, fault.count) == ((3, 0, 0), 1)
    assert followed == [3]
