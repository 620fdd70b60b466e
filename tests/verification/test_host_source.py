"""Constants of a kernel's file, and the sizes beside them."""

from itertools import islice

import pytest
import torch

from tkdebug.verification.inputs import Example
from tkdebug.verification.plan import Plan, Sizes
from tkdebug.verification.source import Hints, Ran, branches_of, conditions_of

SOURCE = """
def kernel(x):
    if n > 1 << 13 and n in (777, 778):
        n = min(n, 3 * 1000)
    return tl.where(x > -20.0, x, 0.5), 64
"""


def test_compared_numbers_come_first():
    hints = Hints.of_source(SOURCE)
    assert hints.sizes[:4] == (8192, 777, 778, 3000)
    assert 64 in hints.sizes
    assert 20.0 in hints.limits
    assert 0.5 not in hints.limits


def test_sizes_are_beside_blocks_and_constants():
    edges = Hints((777,)).edges([32])
    assert edges == [33, 65, 32, 777, 778]


def test_inputs_beside_constants_large_ones_and_all_sizes_at_once_are_planned():
    example = Example([torch.rand(64, 128)])
    sizes = Sizes.learn(example.case(), lambda case: True)
    plan = Plan(example, example.case(), sizes, 0, hints=Hints((5000,), (2.5,)), blocks=[96])
    plan.settle(lambda case: True)
    planned = list(islice(plan.planned(), 400))
    shapes = {case.shapes[0] for case in planned}
    assert {5000, 5001, 97, 193} <= {size for shape in shapes for size in shape}
    assert any(rows * columns > 150_000 for rows, columns in shapes)
    assert any(rows > 128 and columns > 128 for rows, columns in shapes)
    assert "near 2.5" in {case.values for case in planned}
    doubtful = [(len(case.shapes[0]), case.dtypes) for case in plan.doubtful()]
    assert doubtful[:3] == [(3, ("float32",)), (3, ("float32",)), (2, ("float64",))]
    assert [case.values for case in plan.doubtful()][-1] == "far from 0"


@pytest.mark.parametrize("text", ["def (", "x = 1 << 10_000_000", "x = 2 ** -5 + 10 ** 400"])
def test_text_without_usable_constants_gives_few(text):
    assert all(size <= 1 << 20 for size in Hints.of_source(text).sizes)


def conditions(text):
    return [(one.condition, min(one.lines)) for one in branches_of(text)]


def test_branches_are_those_that_give_results_under_conditions_that_inputs_change():
    text = """
def launch(x, bias=None):
    if x.numel() > 1 << 20:
        return large(x)
    if os.environ.get("TIMED"):
        return x
    if x.shape[0] <= 512:
        kernel[(1,)](x)
    elif not x.is_cuda:
        return plain(x)
    if calls[0] < most:
        return one(x)
    return other(x)

@triton.jit
def kernel(x, n):
    if n > 5:
        return x
"""
    assert conditions(text) == [
        ("x.numel() > 1 << 20", 4),
        ("x.numel() > 1 << 20", 5),
        ("os.environ.get('TIMED')", 6),
        ("os.environ.get('TIMED')", 7),
        ("x.shape[0] <= 512", 8),
        ("x.shape[0] <= 512", 9),
        ("calls[0] < most", 12),
        ("calls[0] < most", 13),
    ]
    assert branches_of(text)[0].numbers == (1 << 20, 20)
    assert branches_of(text)[0].tested == {3}


@pytest.mark.parametrize(
    "condition",
    ["x.is_cuda", "bias is None", "causal", "x.dim() == 3", "x.numel() == 0", "x.requires_grad"],
)
def test_conditions_on_what_is_not_varied_are_no_branches(condition):
    assert not branches_of(
        f"def f(x):\n    if {condition}:\n        return g(x)\n    return h(x)\n"
    )


def test_refusals_and_plain_statements_are_no_branches():
    for statement in ("raise ValueError", "x = x.contiguous()", "BLOCK = 64", "assert x"):
        assert not branches_of(f"def f(x):\n    if x.shape[0] > 9:\n        {statement}\n")


def test_branches_within_a_line_have_their_columns():
    text = """
def launch(x, n):
    if calls[0] > 2000: return other(x)
    k = 4.0 if x.numel() > 1 << 26 else 3.0
    f = x.numel() > 1 << 26 and 2.0 or k
    num_warps = 8 if n > 2048 else 4
    return kernel[(1,)](x, k, num_stages=2 if n > 4096 else 3)
"""
    found = branches_of(text)
    within = [one for one in found if one.span is not None]
    assert [one.span[0] for one in within] == [(3, 24), (4, 8), (4, 40), (5, 39), (5, 32)]
    assert found[0] in within
    ran = Ran(lines={3, 4, 5}, spots={(3, 7), (4, 40), (5, 8)})
    assert [one.has_run(ran) for one in within] == [False, False, True, False, False]
    assert all(one.is_asked(ran) for one in within)


def test_outcomes_of_a_kernels_conditions_are_those_of_its_arguments():
    text = """
@triton.jit
def kernel(x, n, MODE: tl.constexpr, BLOCK: tl.constexpr):
    m = n
    if n > 1 << 26:
        pass
    if MODE == 2 or m > 5000:
        pass
    v = tl.where(BLOCK >= 8192, v, 0.0)
"""
    large, wide = conditions_of(text)["kernel"]
    assert large.outcome({"n": 5}) == ((5, 7), False)
    assert large.outcome({"n": 1 << 27}) == ((5, 7), True)
    assert large.outcome({"n": None}) is None
    ran = Ran(outcomes={large.outcome({"n": 5}), wide.outcome({"BLOCK": 9000})})
    assert [(one.is_asked(ran), one.has_run(ran)) for one in large.outcomes] == [
        (True, False),
        (False, True),
    ]
    assert large.outcomes[0].numbers == (1 << 26, 26)
