"""Loads that a loop is meant to move, and does not; and those that may stay."""

import sys
from functools import partial

import pytest
import torch
from differential import run
from marked_lines import line_of

import tkdebug
import tkdebug.language as tl
from tkdebug.knobs import scope

line = partial(line_of, sys.modules[__name__])
ones, zeros = torch.ones, torch.zeros


@pytest.fixture(autouse=True)
def checked():
    with scope(checks=("loop-state",)):
        yield


@tkdebug.jit
def matmul(a_ptr, b_ptr, c_ptr, K, N, FORGET: tl.constexpr, MASK: tl.constexpr, B: tl.constexpr):
    i, k = tl.arange(0, B), tl.arange(0, B)
    a_ptrs = a_ptr + i[:, None] * K + k[None, :]
    b_ptrs = b_ptr + k[:, None] * N + i[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for j in range(0, tl.cdiv(K, B)):
        if MASK:
            a = tl.load(a_ptrs, mask=k[None, :] < K - j * B, other=0.0)  # STANDS masked a
            b = tl.load(b_ptrs, mask=k[:, None] < K - j * B, other=0.0)  # STANDS masked b
        else:
            a = tl.load(a_ptrs)  # STANDS a
            b = tl.load(b_ptrs).to(a.dtype)  # STANDS b
        acc += tl.dot(a, b)
        if FORGET != "a" and FORGET != "both":
            a_ptrs += B
        if FORGET != "b" and FORGET != "both":
            b_ptrs += B * N
    tl.store(c_ptr + i[:, None] * N + i[None, :], acc)


@tkdebug.jit
def row_sum(x_ptr, out_ptr, n, KIND: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    row = x_ptr + tl.program_id(0) * n
    total = tl.zeros((B,), tl.float32)
    if KIND == "steps":
        for start in range(0, n, B):
            total += tl.load(row + i, mask=i < n - start, other=0.0)  # STANDS steps
    elif KIND == "moved mask":
        for start in range(0, n, B):
            total += tl.load(row + i, mask=start + i < n, other=0.0)  # STANDS moved mask
    elif KIND == "maximum":
        for start in range(0, n, B):
            x = tl.load(row + i, mask=start + i < n, other=-1.0)  # STANDS maximum
            total = tl.maximum(total, x)
    elif KIND == "carried bound":
        left = n
        for _ in range(0, n, B):
            total += tl.load(row + i, mask=i < left, other=0.0)  # STANDS carried bound
            left += -B
    else:
        for _ in range(0, n, B):
            total += tl.load(row + i)  # STANDS unused
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


@tkdebug.jit
def meant(x_ptr, w_ptr, out_ptr, n, KIND: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    if KIND == "weights":
        for r in range(4):
            w = tl.load(w_ptr + i, mask=i < n, other=0.0)
            total += tl.load(x_ptr + r * n + i, mask=i < n, other=0.0) * w
    elif KIND == "offset":
        for start in range(0, n, B):
            total += tl.load(x_ptr + start + i, mask=start + i < n, other=0.0)
    elif KIND == "triangle":
        for r in range(4):
            total += tl.load(x_ptr + i, mask=i <= r, other=0.0)
    elif KIND == "iteration":
        for _ in range(4):
            total = 0.5 * total + tl.load(x_ptr + i)
    elif KIND == "counted":
        for r in range(4):
            total += tl.load(x_ptr + i) * r
    elif KIND == "stored between":
        for _ in range(4):
            total += tl.load(out_ptr + i)
            tl.store(out_ptr + i, total)
    elif KIND == "polled":
        for _ in range(4):
            total += tl.load(x_ptr + i) + tl.atomic_add(out_ptr, 0.0)
    elif KIND == "index":
        at = 0
        for _ in range(4):
            total += tl.load(x_ptr + tl.load(w_ptr + at).to(tl.int32) + i)
            at += 1
    elif KIND == "one round":
        for start in range(0, B, B):
            total += tl.load(x_ptr + i, mask=i < n - start, other=0.0)
    else:
        x = tl.load(x_ptr + i)
        for _ in range(4):
            total += x
    tl.store(out_ptr + i, total)


MATMULS = {
    "masked a": ("a", True),
    "masked b": ("b", True),
    "a": ("a", False),
    "b": ("b", False),
}
ROWS = ("steps", "moved mask", "maximum", "carried bound", "unused")
MEANT = (
    *("weights", "offset", "triangle", "iteration", "counted", "stored between", "polled"),
    *("index", "one round", "loaded before"),
)


def product(forget, masked):
    a, b, c = ones(16, 64), ones(64, 16), zeros(16, 16)
    return run(matmul, (1,), a, b, c, 64, 16, FORGET=forget, MASK=masked, B=16)


def places(faults):
    assert all((fault.kind, fault.severity) == ("loop-state", "warning") for fault in faults)
    return [fault.line for fault in faults]


@pytest.mark.parametrize(("forget", "masked"), MATMULS.values(), ids=list(MATMULS))
def test_an_operand_that_is_not_advanced_is_reported(forget, masked):
    marker = f"STANDS {'masked ' if masked else ''}{forget}"
    faults = product(forget, masked)
    assert places(faults) == [line(marker)]
    assert "advance the pointer" in faults[0].hint


def test_two_operands_that_are_not_advanced_are_reported_both():
    assert places(product("both", True)) == [line("STANDS masked a"), line("STANDS masked b")]


@pytest.mark.parametrize("kind", ROWS)
def test_rounds_that_load_the_same_are_reported(kind):
    faults = run(row_sum, (3,), ones(3, 48), zeros(3), 48, KIND=kind, B=16)
    assert places(faults) == [line(f"STANDS {kind}")]


@pytest.mark.parametrize("masked", [True, False])
def test_operands_that_are_advanced_are_silent(masked):
    assert not product("", masked)


@pytest.mark.parametrize("kind", MEANT)
def test_a_load_that_may_stay_is_silent(kind):
    assert not run(meant, (1,), ones(8, 16), zeros(16), zeros(16), 16, KIND=kind, B=16)
