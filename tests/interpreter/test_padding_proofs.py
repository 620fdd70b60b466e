"""Padding that certainly changes nothing: of which kernels that is shown, and of which not."""

import math

import pytest
import torch
from differential import run
from marked_lines import only

import tkdebug
import tkdebug.language as tl
from tkdebug.interpreter.checks.padding.facts import PaddingFacts
from tkdebug.interpreter.checks.padding.glance import PaddingCheck
from tkdebug.knobs import scope


@pytest.fixture(autouse=True)
def shown(monkeypatch):
    """Return for each launch whether nothing has to be looked at."""
    found = []
    begins = PaddingCheck.launch_begins

    def noted(self, launch):
        found.append(not PaddingFacts.of(launch.module).loads)
        begins(self, launch)

    monkeypatch.setattr(PaddingCheck, "launch_begins", noted)
    with scope(checks=("padding",)):
        torch.manual_seed(0)
        yield found


@tkdebug.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, n, BUG: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    offs_q = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    q_mask = offs_q[:, None] < n
    q = tl.load(q_ptr + offs_q[:, None] * D + d[None, :], mask=q_mask, other=0.0)
    best = tl.full([B], float("-inf"), tl.float32)
    total = tl.zeros([B], tl.float32)
    acc = tl.zeros([B, D], tl.float32)
    inside_before = tl.arange(0, B) < n
    for start in range(0, n, B):
        offs_k = start + tl.arange(0, B)
        inside = offs_k < n
        k = tl.load(k_ptr + offs_k[None, :] * D + d[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") - 3.0
        if BUG == "wrong axis":
            scores = tl.where(inside[:, None], scores, float("-inf"))
        elif BUG == "mask of the round before":
            scores = tl.where(inside_before[None, :], scores, float("-inf"))
        elif BUG == "one key too many":
            scores = tl.where((offs_k <= n)[None, :], scores, float("-inf"))
        elif BUG != "no mask":
            scores = tl.where(inside[None, :], scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - new_best[:, None])
        shrink = tl.exp(best - new_best)
        total = total * shrink + tl.sum(weights, 1)
        v_fill = 1.0 if BUG == "values" else 0.0
        v = tl.load(v_ptr + offs_k[:, None] * D + d[None, :], mask=inside[:, None], other=v_fill)
        if BUG == "values":
            weights = tl.where(inside[None, :], weights, 0.5)
        acc = tl.dot(weights, v, acc * shrink[:, None], input_precision="ieee")
        best = new_best
        inside_before = inside
    out = acc / total[:, None]
    tl.store(out_ptr + offs_q[:, None] * D + d[None, :], out, mask=q_mask)


def attend(bug):
    q, k, v, out = (torch.randn(40, 16) for _ in range(4))
    return run(attention, (3,), q, k, v, out, 40, BUG=bug, D=16, B=16), (q, k, v, out)


def test_attention_is_shown_to_be_right(shown):
    faults, (q, k, v, out) = attend("")
    assert not faults
    assert shown == [True]
    torch.testing.assert_close(out, torch.softmax(q @ k.T, 1) @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "bug", ["no mask", "wrong axis", "mask of the round before", "one key too many", "values"]
)
def test_attention_with_a_bug_is_not(shown, bug):
    faults, _ = attend(bug)
    assert {fault.kind for fault in faults} == {"padding"}
    assert shown == [False]


@tkdebug.jit
def normed(x_ptr, w_ptr, out_ptr, n, eps, CHOOSES: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_row = x_ptr + row * n
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_row + cols, mask=cols < n, other=0.0)
    mean = tl.sum(total, 0) / n
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n, other=0.0) - mean
        if CHOOSES:
            x = tl.where(cols < n, x, 0.0)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / n + eps)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = (tl.load(x_row + cols, mask=cols < n, other=0.0) - mean) * scale
        tl.store(out_ptr + row * n + cols, x * tl.load(w_ptr + cols, mask=cols < n), mask=cols < n)


def test_a_layer_norm_in_blocks_is_shown_by_the_choice_that_it_needs(shown):
    x, w, out = torch.randn(2, 21) + 4, torch.randn(21), torch.zeros(2, 21)
    assert not run(normed, (2,), x, w, out, 21, 1e-5, CHOOSES=True, BLOCK=8)
    torch.testing.assert_close(
        out, torch.nn.functional.layer_norm(x, (21,), w), rtol=1e-4, atol=1e-5
    )
    fault = only(run(normed, (2,), x, w, out, 21, 1e-5, CHOOSES=False, BLOCK=8))
    assert fault.kind == "padding"
    assert shown == [True, False]


@tkdebug.jit
def loss(x_ptr, target_ptr, out_ptr, n, FILL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best, total = float("-inf"), 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=FILL)
        new_best = tl.maximum(best, tl.max(x, 0))
        total = total * tl.exp(best - new_best) + tl.sum(tl.exp(x - new_best), 0)
        best = new_best
    picked = tl.load(x_ptr + row * n + tl.load(target_ptr + row))
    tl.store(out_ptr + row, tl.log(total) + best - picked)


def test_an_online_loss_is_shown_by_its_fill(shown):
    x, target, out = torch.randn(3, 21) - 5, torch.tensor([2, 0, 20]), torch.zeros(3)
    assert not run(loss, (3,), x, target, out, 21, FILL=-math.inf, BLOCK=16)
    wanted = torch.nn.functional.cross_entropy(x, target, reduction="none")
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)
    fault = only(run(loss, (3,), x, target, out, 21, FILL=0.0, BLOCK=16))
    assert fault.kind == "padding"
    assert shown == [True, False]


@tkdebug.jit
def product(a_ptr, b_ptr, out_ptr, m, k, FILL: tl.constexpr, B: tl.constexpr):
    rows, cols = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B)
    acc = tl.zeros([B, B], tl.float32)
    for start in range(0, k, B):
        inner = start + tl.arange(0, B)
        mask = (rows[:, None] < m) & (inner[None, :] < k)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], mask=mask, other=FILL)
        b = tl.load(b_ptr + inner[:, None] * B + cols[None, :], mask=inner[:, None] < k, other=FILL)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(out_ptr + rows[:, None] * B + cols[None, :], acc, mask=rows[:, None] < m)


def test_a_product_is_shown_by_its_zeros(shown):
    a, b, out = torch.randn(20, 24), torch.randn(24, 16), torch.zeros(20, 16)
    assert not run(product, (2,), a, b, out, 20, 24, FILL=0.0, B=16)
    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-5)
    assert {f.kind for f in run(product, (2,), a, b, out, 20, 24, FILL=1.0, B=16)} == {"padding"}
    assert shown == [True, False]


@tkdebug.jit
def row_mean(x_ptr, out_ptr, n, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, 0) / COUNT)


def test_a_mean_over_the_tile_is_not_shown(shown):
    fault = only(run(row_mean, (2,), torch.rand(2, 6), torch.zeros(2), 6, COUNT=8, BLOCK=8))
    assert "mean counts" in fault.message
    assert not run(row_mean, (2,), torch.rand(2, 6), torch.zeros(2), 6, COUNT=6, BLOCK=8)
    assert shown == [False, True]


@tkdebug.jit
def weight_gradient(
    x_ptr, dy_ptr, out_ptr, m, n, BUG: tl.constexpr, R: tl.constexpr, C: tl.constexpr
):
    cols = tl.arange(0, C)
    total = tl.zeros([C], tl.float32)
    for start in range(0, m, R):
        rows = start + tl.arange(0, R)
        mask = (rows[:, None] < m) & (cols[None, :] < n)
        at = rows[:, None] * n + cols[None, :]
        dy = tl.load(dy_ptr + at, mask=mask, other=2.0 if BUG else 0.0)
        x = tl.load(x_ptr + at, mask=mask, other=1.0 if BUG else 0.0)
        total += tl.sum(dy * x, 0)
    tl.store(out_ptr + cols, total, mask=cols < n)


def test_rows_that_are_summed_up_in_blocks(shown):
    x, dy, out = torch.randn(7, 5), torch.randn(7, 5), torch.zeros(5)
    assert not run(weight_gradient, (1,), x, dy, out, 7, 5, BUG=False, R=4, C=8)
    torch.testing.assert_close(out, (x * dy).sum(0), rtol=1e-4, atol=1e-5)
    faults = run(weight_gradient, (1,), x, dy, out, 7, 5, BUG=True, R=4, C=8)
    assert {fault.kind for fault in faults} == {"padding"}
    assert shown == [True, False]


@tkdebug.jit
def halves(x_ptr, out_ptr, n, NEUTRAL: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=float("-inf") if NEUTRAL else 0.0)
    even, odd = tl.split(tl.reshape(x, [BLOCK // 2, 2]))
    tl.store(out_ptr, tl.max(even, 0))
    tl.store(out_ptr + 1, tl.max(odd, 0))


def test_tiles_that_are_taken_apart(shown):
    x, out = -torch.rand(11), torch.zeros(2)
    assert not run(halves, (1,), x, out, 11, NEUTRAL=True, BLOCK=16)
    assert {f.kind for f in run(halves, (1,), x, out, 11, NEUTRAL=False, BLOCK=16)} == {"padding"}
    assert shown == [True, False]


@tkdebug.jit
def causal_attention(
    q_ptr, k_ptr, v_ptr, out_ptr, n, scale, BUG: tl.constexpr, D: tl.constexpr, B: tl.constexpr
):
    # Of keys past the end only queries past the end see any.
    offs_q, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    at_q = offs_q[:, None] * D + d[None, :]
    if BUG == "queries of another sequence":
        q = tl.load(q_ptr + at_q)
    elif BUG == "another length":
        q = tl.load(q_ptr + at_q, mask=offs_q[:, None] < n - 1, other=0.0)
    else:
        q = tl.load(q_ptr + at_q, mask=offs_q[:, None] < n, other=0.0)
    best, total = tl.full([B], float("-inf"), tl.float32), tl.zeros([B], tl.float32)
    acc = tl.zeros([B, D], tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * B, B):
        offs_k = start + tl.arange(0, B)
        inside = offs_k < n
        k = tl.load(k_ptr + offs_k[None, :] * D + d[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale - 3.0
        if BUG == "turned":
            scores = tl.where(offs_q[:, None] <= offs_k[None, :], scores, float("-inf"))
        elif BUG == "window":
            sees = (offs_q[:, None] >= offs_k[None, :]) & (offs_q[:, None] - offs_k[None, :] < 99)
            scores = tl.where(sees, scores, float("-inf"))
        elif BUG == "one key too many":
            sees = offs_q[:, None] + 1 >= offs_k[None, :]
            scores = tl.where(sees, scores, float("-inf"))
        elif BUG == "strict":
            scores = tl.where(offs_k[None, :] < offs_q[:, None] + 1, scores, float("-inf"))
        else:
            scores = tl.where(offs_q[:, None] >= offs_k[None, :], scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - new_best[:, None])
        shrink = tl.exp(best - new_best)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(v_ptr + offs_k[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(weights, v, input_precision="ieee")
        best = new_best
    tl.store(out_ptr + at_q, acc / total[:, None], mask=offs_q[:, None] < n)


def causally(bug, n=27):
    q, k, v = (torch.randn(32, 16) for _ in range(3))
    out = torch.zeros(32, 16)
    arguments = q, k, v, out, n, 0.25
    return run(causal_attention, (2,), *arguments, BUG=bug, D=16, B=16)


@pytest.mark.parametrize("bug", ["", "window"])
def test_a_causal_mask_leaves_out_keys_past_the_end(shown, bug):
    assert causally(bug) == []
    assert shown == [True]


@pytest.mark.parametrize(
    "bug", ["queries of another sequence", "another length", "turned", "strict"]
)
def test_what_a_causal_mask_does_not_show(shown, bug):
    causally(bug)
    assert shown == [False]


def test_keys_past_the_end_that_queries_before_it_see(shown):
    faults = causally("one key too many")
    assert {fault.kind for fault in faults} == {"padding"}


@tkdebug.jit
def paged_sum(pages_ptr, x_ptr, out_ptr, n, HOW: tl.constexpr, B: tl.constexpr):
    # Whole blocks are loaded without a mask, by the numbers of pages, which are loaded with one.
    total = tl.zeros([B], tl.float32)
    for start in range(0, n, B):
        at = start + tl.arange(0, B)
        page = tl.load(pages_ptr + at, mask=at < n, other=0)
        whole = start + B <= n
        if HOW == "turned":
            whole = start + B > n
        elif HOW == "another end":
            whole = start + B <= n + 1
        if whole:
            x = tl.load(x_ptr + page)
        else:
            x = tl.load(x_ptr + page, mask=at < n, other=0.0)
        total += x
    tl.store(out_ptr, tl.sum(total, 0))


@pytest.mark.parametrize(
    ("how", "is_shown"), [("", True), ("turned", False), ("another end", False)]
)
def test_blocks_that_are_loaded_whole_before_the_end(shown, how, is_shown):
    pages, x = torch.randperm(50).to(torch.int32), torch.rand(50) + 1
    faults = run(paged_sum, (1,), pages, x, torch.zeros(1), 43, HOW=how, B=16)
    assert shown == [is_shown]
    assert {fault.kind for fault in faults} <= {"padding"}
    assert bool(faults) is (how == "turned")
