"""Inputs of calls: layouts in memory and kinds of values."""

import pytest
import torch

from tkdebug.verification.inputs import (
    INDEX_VALUES,
    LAYOUTS,
    LIMITS_OF_INTEGERS,
    Example,
    dense_values,
    has_lost_places,
    has_other_signs,
    placed,
    values_of,
)


def drawn(kind, *shape, dtype=torch.float32):
    return values_of(torch.ones(shape, dtype=dtype), shape, kind, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("layout", "strides"),
    [
        ("transposed", (12, 1, 3)),
        ("swapped-batches", (4, 8, 1)),
        ("padded-rows", (27, 9, 1)),
        ("padded-batches", (16, 4, 1)),
        ("every-other", (24, 8, 2)),
        ("expanded", (0, 4, 1)),
        ("expanded-columns", (3, 1, 0)),
    ],
)
def test_layout_keeps_values_at_its_strides(layout, strides):
    example = Example([torch.randn(2, 3, 4)])
    case = example.case().renamed("", layouts=(layout,), values="normal")
    dense = dense_values(example, case)
    (laid,) = placed(dense, case, "cpu")
    assert laid.stride() == strides
    assert torch.equal(laid, dense[0])
    assert layout in LAYOUTS


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_values_are_below_usual_beginnings_of_maxima(dtype):
    like = torch.randn(40, 7).to(dtype)
    made = values_of(like, (40, 7), "low", torch.Generator().manual_seed(0)).float()
    assert bool(made.isfinite().all())
    assert float(made.max()) < (-2e4 if dtype is torch.float16 else -1e12)
    assert bool((made.square() * 10).isfinite().all())


def test_rows_of_inf_are_whole_rows_among_others():
    made = drawn("rows of -inf", 2, 3, 5)
    assert made.isinf().all(-1).tolist() == [[False, True, False], [False, True, False]]
    assert int(made.isinf().sum()) == 10


@pytest.mark.parametrize("kind", INDEX_VALUES)
def test_integers_of_a_kind_are_other_ones(kind):
    like = torch.arange(24).flip(0).reshape(4, 6)
    is_bool = kind.startswith("all ")
    like = like.bool() if is_bool else like
    made = values_of(like, (4, 6), kind, torch.Generator().manual_seed(1))
    wanted = {"negative indices": -1, "ignored indices": -100}.get(kind)
    assert wanted is None or int((made == wanted).sum()) == 8
    assert made.dtype == like.dtype


def test_indices_of_a_smaller_size_are_not_all_the_same():
    like = torch.tensor([4, 49, 30])
    made = values_of(like, (50,), "normal", torch.Generator().manual_seed(1), most=4)
    assert made.unique().tolist() == [0, 1, 2, 3, 4]


def test_signs_are_others_than_the_example_s_where_they_are_asked_for():
    example = Example([torch.rand(5, 6), torch.rand(5, 6), torch.randn(5, 6)])
    assert example.unsigned == [0, 1]

    def has_negative(values):
        case = example.case().renamed("", values=values)
        return [bool((t < 0).any()) for t in dense_values(example, case)]

    assert has_negative("normal") == [False, False, True]
    assert has_negative("signed") == [True, True, True]
    assert has_negative("signed 1") == [False, True, True]
    assert has_negative("negative") == [True, True, True]
    assert not has_other_signs(example, example.case())
    assert has_other_signs(example, example.case().renamed("", values="signed 1"))


@pytest.mark.parametrize(("count", "most"), [(6, -1), (4, 20), (9, 20), (6, 7), (3, 100)])
def test_offsets_stay_sorted_and_end_where_they_are_to(count, most):
    like = torch.tensor([0, 3, 5, 9, 12, 20])
    made = values_of(like, (count,), "normal", torch.Generator().manual_seed(1), most=most)
    assert made.tolist() == sorted(made.tolist())
    assert (len(made), made[0], made[-1]) == (count, 0, 20 if most < 0 else most)


def test_offsets_are_others_between_the_same_ends():
    like = torch.tensor([0, 3, 5, 9, 12, 20])
    made = values_of(like, (6,), "other offsets", torch.Generator().manual_seed(1))
    assert (made[0], made[-1]) == (0, 20)
    assert made.tolist() == sorted(made.tolist()) != like.tolist()
    assert len(made.unique()) < 6


def test_limits_of_integers_are_both_limits():
    made = values_of(
        torch.arange(9).flip(0), (9,), LIMITS_OF_INTEGERS, torch.Generator().manual_seed(1)
    )
    info = torch.iinfo(torch.int64)
    assert {info.min, info.max} <= set(made.tolist())


def test_values_keep_the_structure_that_an_example_has():
    rng = torch.Generator().manual_seed(0)

    def made(example, *shape):
        return values_of(example, shape or example.shape, "normal", rng)

    few, ordered = torch.tensor([0.0, 1.0]).repeat(8), torch.linspace(0, 9, 20)
    assert set(made(few, 40).tolist()) == {0.0, 1.0}
    assert bool((made(ordered, 33).diff() >= 0).all())
    square = torch.randn(5, 5, generator=rng)
    assert torch.equal(made(square.tril(), 7, 7).triu(1), torch.zeros(7, 7))
    assert torch.equal(made(square.triu(), 7, 7).tril(-1), torch.zeros(7, 7))
    symmetric = made(square + square.T, 6, 6)
    assert torch.equal(symmetric, symmetric.T)
    assert int((made(square, 7, 7) != 0).sum()) == 49
    places = torch.randperm(30, generator=rng)[:12]
    assert len(made(places, 20).unique()) == 20
    assert has_lost_places(places, made(places, 31))
