"""NaNs and Infs that are loaded and multiplied by weights which a mask made 0, and look-alikes."""

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
NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def nans():
    with scope(checks=("nan",)):
        torch.manual_seed(0)
        yield


@tkdebug.jit
def weighted_rows(w_ptr, v_ptr, out_ptr, n, HOW: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    head, rows, d = tl.program_id(0), tl.arange(0, N), tl.arange(0, D)
    ok = rows < n
    w = tl.load(w_ptr + head * N + rows)
    v = tl.load(v_ptr + head * N * D + rows[:, None] * D + d[None, :])  # LOAD
    if HOW == "softmax":
        w = tl.where(ok, w, -float("inf"))  # MASK softmax
        w = tl.exp(w - tl.max(w, 0))
        w = w / tl.sum(w, 0)
    elif HOW == "turned":
        w = tl.exp(tl.where(rows >= n, -float("inf"), w))  # MASK turned
    elif HOW == "added":
        w = tl.exp(w + tl.where(ok, 0.0, -1e4))  # MASK added
    elif HOW == "zero":
        w = tl.where(ok, w, 0.0)  # MASK zero
    elif HOW == "factor":
        w = w * ok.to(tl.float32)  # MASK factor
    elif HOW == "load":
        w = tl.load(w_ptr + head * N + rows, mask=ok, other=0.0)  # MASK load
    elif HOW == "filled":
        w = tl.load(w_ptr + head * N + rows, mask=ok)  # MASK filled
    elif HOW == "relu":
        w = tl.where(w > 0, w, 0.0)
    elif HOW == "chosen":
        v = tl.where(ok[:, None], v, 0.0)
        w = tl.where(ok, w, 0.0)
    elif HOW == "after":
        w = tl.where(ok, w, 0.0)
    if HOW == "after":
        product = tl.where(ok[:, None], w[:, None] * v, 0.0)
    elif HOW == "fma":
        w = tl.where(ok, w, 0.0)  # MASK fma
        one = tl.full((N, D), 1.0, tl.float32)
        product = tl.fma(w[:, None].broadcast_to(N, D), v, one)  # PRODUCT fma
    else:
        product = v * w[:, None]  # PRODUCT
    tl.store(out_ptr + head * D + d, tl.sum(product, 0))  # STORE


def values(bad=NAN, rows=slice(10, 13), heads=2, n=16, d=8):
    v = torch.randn(heads, n, d)
    v[:, rows] = bad
    return v


def found(how, n=10, v=None, w=None):
    v = values() if v is None else v
    w = torch.randn(v.shape[:2]) if w is None else w
    grid, out = (v.shape[0],), torch.zeros(v.shape[0], v.shape[2])
    faults = run(weighted_rows, grid, w, v, out, n, HOW=how, N=v.shape[1], D=v.shape[2])
    return faults, out


HOWS = ["softmax", "turned", "added", "zero", "factor", "load", "filled", "fma"]


@pytest.mark.parametrize("how", HOWS)
def test_nan_beside_a_weight_that_a_mask_made_0(how):
    faults, out = found(how)
    assert out.isnan().all()
    fault = only(faults)
    assert (fault.kind, fault.severity, fault.tensor) == ("nan", "error", "out_ptr")
    assert fault.line == line("PRODUCT fma" if how == "fma" else "PRODUCT")
    assert (fault.program_id, fault.lane, fault.count) == ((0, 0, 0), (10, 0), 16)
    assert fault.message == (
        f"NaN that the load at line {line('LOAD')} takes from `v_ptr` is multiplied by a weight "
        f"which the mask at line {line(f'MASK {how}')} makes 0, and NaN is stored at line "
        f"{line('STORE')} to offset 0 of `out_ptr`"
    )
    assert "mask that load, too" in fault.hint


def test_inf_beside_a_weight_that_a_mask_made_0():
    fault = only(found("zero", v=values(INF))[0])
    assert fault.message.startswith(f"Inf that the load at line {line('LOAD')} takes from `v_ptr`")


@tkdebug.jit
def attention(
    q_ptr, k_ptr, v_ptr, lengths, out_ptr, HALF: tl.constexpr, CAUSAL: tl.constexpr, N: tl.constexpr
):
    i, d, head = tl.arange(0, 16), tl.arange(0, 16), tl.program_id(0)
    n = tl.load(lengths + head)
    q = tl.load(q_ptr + i[:, None] * 16 + d[None, :])
    acc, total = tl.zeros((16, 16), tl.float32), tl.zeros((16,), tl.float32)
    top = tl.full((16,), -float("inf"), tl.float32)
    for start in range(0, N, 16):
        at = head * N * 16 + (start + i)[:, None] * 16 + d[None, :]
        k = tl.load(k_ptr + at)
        v = tl.load(v_ptr + at)  # LOAD attention
        s = tl.dot(q, tl.trans(k))
        s = tl.where((start + i)[None, :] < n, s, -float("inf"))  # MASK attention
        if CAUSAL:
            s = tl.where(i[:, None] >= (start + i)[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        scale = tl.exp(top - new)
        total = total * scale + tl.sum(p, 1)
        acc = acc * scale[:, None]
        if HALF:
            acc += tl.dot(p.to(tl.float16), v.to(tl.float16))  # PRODUCT attention half
        else:
            acc = tl.dot(p, v, acc)  # PRODUCT attention
        top = new
    tl.store(out_ptr + head * 256 + i[:, None] * 16 + d[None, :], acc / total[:, None])


def attended(lengths, rows, half=False, causal=False):
    heads = len(lengths)
    q, k, v = torch.randn(16, 16), torch.randn(heads, 64, 16), values(NAN, rows, heads, 64, 16)
    out = torch.zeros(heads, 16, 16)
    numbers = torch.tensor(lengths, dtype=torch.int32)
    faults = run(attention, (heads,), q, k, v, numbers, out, HALF=half, CAUSAL=causal, N=64)
    return faults, out


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("rows", [slice(40, 42), slice(40, 64), slice(63, 64)])
def test_nan_past_the_end_of_a_sequence(rows, half):
    faults, out = attended((40, 37), rows, half)
    assert out.isnan().all()
    fault = only(faults)
    assert fault.line == line("PRODUCT attention half" if half else "PRODUCT attention")
    assert f"line {line('LOAD attention')} takes from `v_ptr`" in fault.message
    assert f"the mask at line {line('MASK attention')} makes 0" in fault.message


@tkdebug.jit
def product_with_a_tail(a_ptr, b_ptr, out_ptr, k, K: tl.constexpr):
    i, inner = tl.arange(0, 16), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * k + inner[None, :], mask=inner[None, :] < k, other=0.0)
    b = tl.load(b_ptr + inner[:, None] * 16 + i[None, :])
    tl.store(out_ptr + i[:, None] * 16 + i[None, :], tl.dot(a, b))  # PRODUCT tail


def test_product_of_which_one_operand_has_no_mask():
    b = torch.randn(32, 16)
    b[20:] = NAN
    fault = only(
        run(product_with_a_tail, (1,), torch.randn(16, 20), b, torch.zeros(16, 16), 20, K=32)
    )
    assert (fault.kind, fault.line) == ("nan", line("PRODUCT tail"))
    assert "takes from `b_ptr`" in fault.message


def test_two_masks_that_leave_out_all_of_it_together():
    # Rows 16 and later are before the end for some heads, but none of them sees so far.
    faults, _ = attended((30, 20), slice(16, 64), causal=True)
    assert only(faults).line == line("PRODUCT attention")


# Look-alikes


@pytest.mark.parametrize(
    ("how", "n", "rows"),
    [
        ("softmax", 12, slice(10, 13)),
        ("zero", 16, slice(10, 13)),
        ("factor", 11, slice(10, 11)),
        ("chosen", 10, slice(10, 13)),
        ("after", 10, slice(10, 13)),
        ("", 10, slice(10, 13)),
    ],
)
def test_nan_that_is_weighted_or_chosen_away(how, n, rows):
    assert found(how, n, values(NAN, rows))[0] == []


def test_nan_beside_a_weight_that_is_0_as_it_is():
    w = torch.randn(2, 16)
    w[:, 10:] = 0
    assert found("", 16, w=w)[0] == []


def test_nan_beside_a_weight_that_a_comparison_of_floats_made_0():
    assert found("relu", 16, w=-torch.rand(2, 16))[0] == []


def test_nan_of_some_rows_that_count():
    v = values(NAN, slice(4, 13))
    assert found("softmax", 10, v)[0] == []


def test_nan_that_is_seen_by_some_rows_of_a_causal_mask():
    assert attended((64,), slice(9, 10), causal=True)[0] == []


def test_nan_of_another_weight_beside_it():
    w = torch.randn(2, 16)
    w[:, 2] = NAN
    assert found("zero", 10, w=w)[0] == []


@pytest.mark.parametrize("how", HOWS)
def test_numbers_beside_weights_that_a_mask_made_0(how):
    faults, out = found(how, v=torch.randn(2, 16, 8))
    assert faults == []
    assert not out.isnan().any()


@tkdebug.jit
def weighted_by_a_loaded_mask(keep_ptr, v_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    weight = tl.where(tl.load(keep_ptr + i) != 0, 1.0, 0.0)
    tl.store(out_ptr + i, weight * tl.load(v_ptr + i))


def test_a_mask_that_was_loaded_says_what_the_data_mean():
    keep, v = torch.ones(16, dtype=torch.int8), torch.randn(16)
    keep[3], v[3] = 0, NAN
    assert run(weighted_by_a_loaded_mask, (1,), keep, v, torch.zeros(16), N=16) == []


@tkdebug.jit
def masked_when_stored(v_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    weight = tl.where(i < n, 2.0, 0.0)
    tl.store(out_ptr + i, weight * tl.load(v_ptr + i), mask=i < n)


def test_nan_that_is_masked_off_when_it_is_stored():
    v = torch.randn(16)
    v[10:] = NAN
    assert run(masked_when_stored, (1,), v, torch.zeros(16), 10, N=16) == []


@tkdebug.jit
def infinite_weight(w_ptr, v_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    weight = tl.where(i < n, tl.load(w_ptr + i), 0.0)
    tl.store(out_ptr + i, weight * tl.load(v_ptr + i))  # PRODUCT infinite


def test_infinite_weight_that_meets_a_loaded_0_is_no_masked_weight():
    w, v = torch.ones(16), torch.ones(16)
    w[3], v[3] = INF, 0.0
    fault = only(run(infinite_weight, (1,), w, v, torch.zeros(16), 10, N=16))
    assert (fault.line, fault.lane) == (line("PRODUCT infinite"), (3,))
    assert "a NaN is made here, of inf * 0" in fault.message
