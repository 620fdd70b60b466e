"""Dependences of a wrong element, found and expected, where no edit fixes the launch."""

import sys

import mismatched_kernels as kernels
import pytest
import torch
from mismatched_kernels import mismatch

import tkdebug
from tkdebug.causes.dependence import region
from tkdebug.knobs import scope


def launched(x):
    out = torch.empty(x.shape[0], device=x.device)
    kernels.two_mistakes[(x.shape[0],)](x, out, 3.0, N=x.shape[0])
    return out


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_reference_that_can_run_again_gives_what_should_matter(faults, device):
    x = torch.randn(16, 16, device=device)
    with pytest.raises(AssertionError):
        tkdebug.expect(launched(x), lambda: x.exp().sum(1))
    fault = mismatch(faults)
    at = int(fault.message.partition("o_ptr[")[2].partition("]")[0])
    want = f"o_ptr[{at}] depends on x_ptr[0:16, {at}]; it should on x_ptr[{at}, 0:16]"
    assert (fault.cause.verdict, fault.cause.facts) == ("undecided", (want,))


REFERENCES = """
def sums(x_ptr):
    return x_ptr.exp().sum(1)


def whole(x_ptr):
    return x_ptr.exp().sum()


def of_another(q_ptr):
    return q_ptr
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sums", "it should on x_ptr["),
        ("whole", "of o_ptr has shape (), expected (16,)"),
        ("of_another", "the kernel has no parameter q_ptr"),
        ("none", "named_references has no function none"),
    ],
)
def test_a_reference_that_is_named_is_asked_or_said_to_be_unfit(
    faults, tmp_path, monkeypatch, name, expected
):
    (tmp_path / "named_references.py").write_text(REFERENCES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "named_references", raising=False)
    x = torch.randn(16, 16)
    with scope(reference=f"named_references:{name}"), pytest.raises(AssertionError):
        torch.testing.assert_close(launched(x), x.exp().sum(1))
    cause = mismatch(faults).cause
    assert expected in f"{cause.facts} {cause.why}"


def test_a_factor_is_a_fact(faults):
    x = torch.randn(16, 16)
    with pytest.raises(AssertionError):
        tkdebug.expect(launched(x), lambda: 5 * (x * x).sum(0) + 1000)
    first, second = mismatch(faults).cause.facts
    assert first.endswith("as it should")
    assert second == "it follows x_ptr 0.6 times as much as it should"


def test_without_a_function_only_what_matters_is_known(faults):
    x = torch.randn(16, 16)
    out = launched(x)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, x.exp().sum(1))
    (fact,) = mismatch(faults).cause.facts
    assert "depends on x_ptr[0:16, " in fact
    assert "should" not in fact


def test_the_scripts_tensors_need_no_gradient_after(faults):
    x = torch.randn(16, 16)
    with pytest.raises(AssertionError):
        tkdebug.expect(launched(x), lambda: x.exp().sum(1))
    assert not x.requires_grad
    assert x.grad is None


@pytest.mark.parametrize(
    ("rows", "columns", "text"),
    [
        ([3], [5], "x[3, 5]"),
        (range(8), range(8), "x"),
        (range(8), [2], "x[0:8, 2]"),
        ([1, 3, 5], [0], "x[1:6:2, 0]"),
        ([1, 2, 6], [0], "3 elements of x[1:7, 0]"),
        ([], [], ""),
    ],
)
def test_regions_are_slices(rows, columns, text):
    chosen = torch.zeros(8, 8, dtype=torch.bool)
    for row in rows:
        for column in columns:
            chosen[row, column] = True
    assert region("x", chosen) == text
