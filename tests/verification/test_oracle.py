"""The reference in fp64: how far results may be, and where they are free."""

import contextlib

import pytest
import torch

from tkdebug.verification.oracle import ask, compare, wide


def oracle_of(function, *tensors, **given):
    def run(is_wide, lift, draw=None):
        used = [wide(t) if is_wide else t.clone() for t in tensors]
        with lift or contextlib.nullcontext():
            return function(*used), used

    return ask(run, tensors, 0, **given)


def is_right(result, oracle):
    wrong, elements = compare([("result", result)], oracle)
    assert elements > 0 or wrong is not None
    return wrong is None


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_sums_in_any_order_are_right_and_narrow_ones_are_not():
    x = normal(8, 300)
    oracle = oracle_of(lambda t: t.sum(1), x)
    assert oracle.longest == (300, "sum")
    assert is_right(x.sum(1), oracle)
    assert is_right(x.cumsum(1)[:, -1], oracle)
    assert is_right(x.flip(1).cumsum(1)[:, -1], oracle)
    assert not is_right(x.half().sum(1).float(), oracle)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_at_the_end_and_not_on_the_way(dtype):
    x = normal(4, 512).abs().to(dtype)
    oracle = oracle_of(lambda t: t.sum(1), x)
    assert is_right(x.float().sum(1).to(dtype), oracle)
    partial = torch.zeros(4, dtype=dtype)
    for column in x.unbind(1):
        partial = partial + column
    assert not is_right(partial, oracle)


def test_products_of_tf32_are_wrong():
    a, b = normal(16, 64), normal(64, 16, seed=1)
    oracle = oracle_of(torch.mm, a, b)
    assert is_right(a @ b, oracle)
    tf32 = [(t.view(torch.int32) & ~0x1FFF).view(torch.float32) for t in (a, b)]
    assert not is_right(tf32[0] @ tf32[1], oracle)


def test_small_results_are_compared_unless_functions_may_go_by_way_of_one():
    x = normal(4, 8) * 1e-10
    assert is_right(x * 3.0, oracle_of(lambda t: t * 3.0, x))
    assert not is_right(torch.zeros(4, 8), oracle_of(lambda t: t * 3.0, x))
    assert not is_right(x * 3.0001, oracle_of(lambda t: t.relu() * 3.0 - (-t).relu() * 3.0, x))
    assert is_right((1.0 + x).log(), oracle_of(torch.log1p, x))


def test_mean_that_a_norm_subtracts_may_be_rounded():
    x = torch.tensor([[-52.008766174316406, -51.59479904174805]])
    oracle = oracle_of(lambda t: torch.nn.functional.layer_norm(t, (2,)), x)
    mean = x.sum(1, keepdim=True) / 2
    variance = ((x - mean) ** 2).mean(1, keepdim=True)
    assert is_right((x - mean) / (variance + 1e-5).sqrt(), oracle)
    assert not is_right((x - mean) / (variance + 1e-3).sqrt(), oracle)


def test_overflow_of_the_reference_itself_is_free():
    x = torch.tensor([1.0, 3e4], dtype=torch.float16)
    oracle = oracle_of(lambda t: t * t / 1e5, x)
    assert bool(oracle.expected[0].exact.isfinite().all())
    assert is_right(torch.tensor([1e-5, torch.inf], dtype=torch.float16), oracle)


def test_nan_that_an_element_does_not_depend_on_need_not_come_through():
    weights, values = torch.tensor([1.0, 0.0]), torch.tensor([2.0, torch.nan])

    def run(is_wide, lift, draw):
        numbers = torch.tensor([2.0, draw + 0.5]).double()
        return (weights.double() * numbers).sum(), []

    def weighted(w, v):
        return (w * v).sum()

    assert not is_right(torch.tensor(2.0), oracle_of(weighted, weights, values))
    oracle = oracle_of(weighted, weights, values, special=[run])
    assert is_right(torch.tensor(2.0), oracle)
    assert is_right(torch.tensor(torch.nan), oracle)
    assert not is_right(torch.tensor(3.0), oracle)


def test_rounding_to_integers_may_differ_at_a_half_alone():
    x = torch.tensor([0.3, 7.5, 12.4])
    oracle = oracle_of(lambda t: (t / 0.1 * 0.1).round().to(torch.int8), x)
    assert is_right(torch.tensor([0, 7, 12], dtype=torch.int8), oracle)
    assert is_right(torch.tensor([0, 8, 12], dtype=torch.int8), oracle)
    assert not is_right(torch.tensor([1, 8, 12], dtype=torch.int8), oracle)
    assert not is_right(torch.tensor([0, 9, 12], dtype=torch.int8), oracle)


def test_changed_input_is_an_output():
    oracle = oracle_of(lambda t: t.mul_(2.0), normal(3))
    assert oracle.changed == (0,)
    assert [one.name for one in oracle.expected] == ["result", "input 0"]


def test_function_by_way_of_one_keeps_its_error_where_it_is_scaled():
    x = normal(8, 40) * 0.05
    oracle = oracle_of(lambda t: 50.0 * torch.tanh(t / 50.0), x)
    e = (-2.0 * (x / 50.0)).exp()
    assert is_right(50.0 * ((1.0 - e) / (1.0 + e)), oracle)
    assert not is_right(50.0 * (x / 50.0).half().tanh().float(), oracle)


def test_few_of_many_elements_at_a_step_may_be_on_its_other_side():
    x = (normal(1 << 14) * 30.0).bfloat16()
    for rounded in (lambda t: (t / 3.0).round(), lambda t: (t / 3.0).round().to(torch.int32)):
        oracle = oracle_of(rounded, x)
        exact = oracle.expected[0].exact
        is_sure = oracle.expected[0].tolerance < 1.0
        assert 100 < int((~is_sure).sum()) < len(x) // 2
        places = is_sure.nonzero().reshape(-1)
        few, many = exact.clone(), exact.clone()
        few[places[:3]] += 1
        many[places] += 1
        assert is_right(few, oracle)
        assert not is_right(many, oracle)
