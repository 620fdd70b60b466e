"""Launches beside themselves in fp64: what is measured, what is left alone, and what is refused."""

from __future__ import annotations

import pytest
import torch
from answer_schemas import valid

import tkdebug
import tkdebug.language as tl
from tkdebug.precision.looking import SAMPLED
from tkdebug.precision.references import Answers, UnfitReferenceError


@tkdebug.jit
def softmax(x, o, n, N: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + i, e / tl.sum(e, 0), mask=i < n)


@tkdebug.jit
def in_place(x, N: tl.constexpr):
    at = tl.program_id(0) * 2 * N + tl.arange(0, N)
    first, second = tl.load(x + at), tl.load(x + at + N)
    tl.store(x + at, second)
    tl.store(x + at + N, first)


@tkdebug.jit
def branches(x, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + tl.program_id(0) * N + i)
    total = tl.sum(v, 0)
    if total > 0:
        v = v / 3.0
    else:
        v = v * 7.0
    for k in range(tl.program_id(0)):
        v = v * 1.1 + k
    tl.store(o + tl.program_id(0) * N + i, v)


def looked_at(launch, **options):
    with tkdebug.mode("interpret"), tkdebug.numerics(**options) as found:
        launch()
    return found


def softmax_of(x):
    out = torch.zeros_like(x)
    softmax[(x.shape[0],)](x, out, x.shape[1], N=128)
    return out


def test_a_launch_that_is_looked_at_stores_what_it_would_have():
    x = torch.randn(20, 100)
    plain = softmax_of(x)
    kept = []
    found = looked_at(lambda: kept.append(softmax_of(x)), whole=True)
    assert torch.equal(kept[0], plain)
    assert found.kernels[0].programs == 20


def test_the_kernel_itself_is_run_bit_for_bit():
    x = torch.randn(20, 100)
    plain = softmax_of(x)
    expected = torch.softmax(x.double(), 1)
    found = looked_at(lambda: softmax_of(x), whole=True)
    (output,) = found.kernels[0].outputs
    largest = float((plain.double() - expected).abs().max())
    assert output.largest == pytest.approx(largest, rel=1e-6)


def test_some_programs_are_looked_at_the_first_and_the_last_among_them():
    x = torch.randn(50, 100)
    found = looked_at(lambda: softmax_of(x))
    kernel = found.kernels[0]
    assert (kernel.programs, kernel.total) == (SAMPLED, 50)
    assert kernel.outputs[0].elements == SAMPLED * 100


def test_memory_that_is_read_and_written_has_no_error_of_its_own():
    x = torch.randn(128)
    found = looked_at(lambda: in_place[(2,)](x, N=32))
    assert found.kernels[0].outputs[0].error == 0


def test_programs_that_part_are_followed_each_its_own_way():
    x, out = torch.randn(6, 16), torch.zeros(6, 16)
    found = looked_at(lambda: branches[(6,)](x, out, 6, N=16), whole=True)
    (output,) = found.kernels[0].outputs
    expected = x.double().clone()
    for row in range(6):
        expected[row] = expected[row] / 3 if x[row].sum() > 0 else expected[row] * 7
        for k in range(row):
            expected[row] = expected[row] * 1.1 + k
    assert output.largest == pytest.approx(float((out - expected).abs().max()), rel=1e-6)
    assert output.explained == pytest.approx(1.0, abs=0.01)


def test_a_launch_is_left_out_after_the_first_unless_more_are_asked_for():
    x = torch.randn(4, 100)
    assert len(looked_at(lambda: [softmax_of(x), softmax_of(x)]).kernels) == 1
    assert len(looked_at(lambda: [softmax_of(x), softmax_of(x)], launches=2).kernels) == 2


def test_other_kernels_are_left_alone():
    x = torch.randn(4, 100)
    assert not looked_at(lambda: softmax_of(x), kernel="matmul*").kernels


def test_what_ran_until_time_was_over_is_shown():
    x = torch.randn(50, 100)
    found = looked_at(lambda: softmax_of(x), seconds=1e-9)
    kernel = found.kernels[0]
    assert kernel.programs < SAMPLED
    assert "until 1e-09 s" in kernel.notes[0]


def reference_of(verdict):
    def reference(x):
        if verdict == "formula":
            return x.double().softmax(0)
        return x.double().softmax(1)

    return reference


@tkdebug.jit
def half_softmax(x, o, N: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + row * N + i)
    e = tl.exp(v - tl.max(v, 0)).to(tl.float16)
    tl.store(o + row * N + i, (e / tl.sum(e, 0)).to(tl.float32))


@pytest.mark.parametrize("verdict", ["precision", "formula"])
def test_fp64_decides_between_the_formula_and_precision(verdict):
    x, out = torch.randn(8, 64), torch.zeros(8, 64)
    found = looked_at(
        lambda: half_softmax[(8,)](x, out, N=64), reference=reference_of(verdict), whole=True
    )
    against = found.kernels[0].outputs[0].reference
    assert against is not None
    assert against.verdict == verdict


def test_a_kernel_that_agrees_with_the_reference():
    x = torch.randn(8, 100)
    found = looked_at(lambda: softmax_of(x), reference=reference_of("agrees"), whole=True)
    assert found.kernels[0].outputs[0].reference.verdict == "agrees"


def test_a_launch_is_looked_at_on_a_gpu(on_a_gpu):
    x, out = torch.randn(6, 16), torch.zeros(6, 16)

    def launches():
        softmax_of(x)
        branches[(6,)](x, out, 6, N=16)
        in_place[(1,)](x.clone(), N=32)
        half_softmax[(6,)](x, out, N=16)

    kept = looked_at(launches).kernels
    assert [one.kernel for one in kept] == ["softmax", "branches", "in_place", "half_softmax"]
    assert [one.outputs[0].explained for one in kept[::3]] == pytest.approx([1, 1], abs=0.01)


CALLS = iter(range(100))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda x: x.sum(1), "has shape (8,), expected (8, 100)"),
        (lambda x: x > 0, "is torch.bool, expected torch.float32"),
        (lambda x: x.to("meta"), "is on meta, expected cpu"),
        (lambda x: x + next(CALLS), "gives another result when it is called again"),
        (lambda x: 3, "gives int; expected a tensor"),
        (lambda x: x @ x, "failed: "),
        (lambda q: q, "the kernel has no parameter q; it has x, o, n, N"),
    ],
)
def test_a_reference_that_does_not_fit_is_named_and_the_rest_is_shown(reference, message):
    x = torch.randn(8, 100)
    found = looked_at(lambda: softmax_of(x), reference=reference)
    (kernel,) = found.kernels
    assert message in kernel.notes[0]
    assert kernel.outputs[0].error > 0


def test_a_reference_gets_copies():
    x = torch.zeros(3)
    Answers.of(lambda x: x.add_(1), {"x": x})
    assert torch.equal(x, torch.zeros(3))


def test_a_reference_of_names_says_nothing_of_other_outputs():
    answers = Answers.of(lambda x: {"y": x}, {"x": torch.zeros(3)})
    assert answers.fitting("z", torch.zeros(3), 1) is None
    assert answers.fitting("y", torch.zeros(3), 1) is not None


def test_a_reference_that_raises_is_unfit():
    with pytest.raises(UnfitReferenceError, match="no such thing"):
        Answers.of(lambda: (_ for _ in ()).throw(ValueError("no such thing")), {})


def test_json_has_the_findings_first():
    x = torch.randn(8, 100)
    data = valid("numerics", looked_at(lambda: softmax_of(x)).json())
    assert data["lines"][0]["kernel"] == "softmax"
    assert data["lines"][0]["share"] == max(line["share"] for line in data["lines"])
    assert data["kernels"][0]["of"] == 8


@tkdebug.jit
def counted(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(x + i) + 1)


def test_a_kernel_without_floats_says_so():
    x = torch.zeros(16, dtype=torch.int32)
    found = looked_at(lambda: counted[(1,)](x, x.clone(), N=16))
    assert found.kernels[0].notes == ("it computes no floats",)
