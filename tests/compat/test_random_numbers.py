"""Random numbers of the stand-in's device are those of a GPU."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import drawn_numbers
import numpy as np
import pytest
import torch

from tkdebug.compat import cuda_standin
from tkdebug.compat.cuda_standin import philox
from tkdebug.compat.cuda_standin.device import PROPERTIES

# Of the H200 that the stand-in's device is.
THREADS = 132 * 2048


@pytest.fixture
def stand_in():
    if cuda_standin.cuda_usable():
        pytest.skip("a real CUDA device is here")
    with cuda_standin.install() as installed:
        torch.manual_seed(0)
        yield installed


def uniform_of(seed, call, thread, number=0):
    words = philox.words(seed, call, 1, range(thread, thread + 1))
    return float(philox.uniform(words)[number, 0, 0])


def test_words_are_those_of_random123():
    # The first vector of Random123's kat_vectors.
    words = philox.words(0, 0, 1, range(1))[:, 0, 0]
    assert [hex(word) for word in words] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def test_a_word_depends_on_the_seed_the_call_and_the_thread():
    seed = (3 << 40) + 5
    many = philox.words(seed, (1 << 33) + 7, 3, range(2, 6))
    assert many.shape == (4, 3, 4)
    assert (philox.words(seed, (1 << 33) + 9, 1, range(4, 5))[:, 0, 0] == many[:, 2, 2]).all()
    assert len(np.unique(many)) == many.size
    assert not (philox.words(seed + (1 << 32), (1 << 33) + 7, 3, range(2, 6)) == many).any()


# Printed by torch on GPUs, in tutorials and in reports of issues of torch.
PRINTED = {
    "rand": (
        0,
        lambda: torch.rand(10, device="cuda"),
        [
            *(0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096),
        ],
    ),
    "randn": (10, lambda: torch.randn(3, device="cuda"), [-0.1029, 1.6810, -0.2708]),
    "randn of 131,072": (
        42,
        lambda: torch.randn(1, 64, 2048, device="cuda")[0, 0, [0, 1, 2, 2045, 2046, 2047]],
        [0.1940, 2.1614, -0.1721, 1.4540, -2.7733, -0.8932],
    ),
    "uniform_, then uniform_": (
        42,
        lambda: torch.cat(
            [p.detach().view(1) for p in torch.nn.Linear(1, 1, device="cuda").parameters()]
        ),
        [0.2259, 0.9754],
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_numbers_are_those_that_torch_prints_on_gpus(stand_in, name):
    seed, draw, printed = PRINTED[name]
    torch.manual_seed(seed)
    torch.testing.assert_close(draw().detach().cpu(), torch.tensor(printed), atol=6e-5, rtol=0)


def test_the_second_number_of_a_thread_follows_a_whole_grid(stand_in):
    x = torch.rand(4 * THREADS + 1, device="cuda").cpu()
    assert x[5].item() == uniform_of(0, 0, 5)
    assert x[THREADS + 5].item() == uniform_of(0, 0, 5, 1)
    assert x[3 * THREADS].item() == uniform_of(0, 0, 0, 3)
    assert x[4 * THREADS].item() == uniform_of(0, 1, 0)
    assert torch.cuda.default_generators[0].get_offset() == 8
    assert torch.rand(1, device="cuda").item() == uniform_of(0, 2, 0)


KINDS = (philox.uniform, philox.unit, philox.normal, philox.bits)
DOUBLE = (philox.uniform_double, philox.unit_double, philox.normal_double, philox.bits_double)


@pytest.mark.parametrize("numbers", [*KINDS, *DOUBLE])
@pytest.mark.parametrize("call", [0, 3, 259])
def test_few_numbers_are_the_first_of_many(numbers, call):
    many = philox.drawn(numbers, 9, call, 20_000)
    assert torch.equal(philox.drawn(numbers, 9, call, 70), many[:70])


@pytest.mark.parametrize("numbers", [philox.unit, philox.unit_double])
def test_what_would_be_1_is_0(numbers):
    words = np.array([[[0xFFFFFFFF, 0]]] * 4, np.uint32)
    # The words of the largest number in fp64: the lower one's bits are crossed with the upper's.
    words[0::2, 0, 0] = 0x1FFFFF if numbers is philox.unit_double else 0xFFFFFFFF
    first, second = numbers(words)[:, 0].T
    assert (first == 0).all()
    assert (second > 0).all()


def test_normal_numbers_are_sine_and_cosine_of_two_words():
    x = philox.drawn(philox.normal, 3, 0, 4 * THREADS).view(4, THREADS)
    words = philox.words(3, 0, 1, range(1000))[:, 0].astype(np.float64) / 2**32 + 2**-33
    radius, angle = np.sqrt(-2 * np.log(words[2])), 2 * np.pi * words[3]
    for row, expected in ((2, np.sin(angle) * radius), (3, np.cos(angle) * radius)):
        torch.testing.assert_close(
            x[row, :1000].double(), torch.from_numpy(expected), atol=3e-6, rtol=0
        )
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1) < 0.01


def test_elements_take_numbers_in_the_order_of_their_memory(stand_in):
    expected = torch.rand(12, device="cuda").view(3, 4)
    torch.manual_seed(0)
    x = torch.zeros(3, 4, device="cuda")
    x.t().uniform_()
    assert torch.equal(x, expected)
    torch.manual_seed(0)
    wide = torch.zeros(3, 8, device="cuda")
    wide[:, ::2].uniform_()
    assert torch.equal(wide[:, ::2], expected)
    assert wide[:, 1::2].sum() == 0


def test_bounds_are_kept_after_rounding(stand_in):
    x = torch.zeros(1 << 20, device="cuda", dtype=torch.bfloat16).uniform_(1, 2)
    assert (x.min().item(), x.max().item()) == (1, 1.9921875)
    assert torch.zeros(1 << 20, device="cuda", dtype=torch.float16).exponential_().min() > 0


@pytest.mark.parametrize(
    ("dtype", "size", "places"),
    [
        # Of an element of so many: the thread, the call and the number of it.
        (torch.float32, 64, {0: (0, 0, 0), 5: (1, 0, 1), 63: (15, 0, 3)}),
        (torch.float16, 64, {0: (0, 0, 0), 5: (0, 1, 1), 63: (7, 1, 3)}),
        (torch.float64, 64, {0: (0, 0, 0), 5: (2, 0, 1), 63: (31, 0, 1)}),
        (torch.float32, 63, {0: (0, 0, 0), 5: (5, 0, 0), 62: (62, 0, 0)}),
        (torch.float32, 4 * THREADS + 4, {4 * THREADS + 1: (0, 1, 1), 9: (2, 0, 1)}),
    ],
)
def test_dropout_keeps_what_a_gpus_threads_keep(stand_in, dtype, size, places):
    x = torch.ones(size, device="cuda", dtype=dtype)
    y, mask = torch.native_dropout(x, 0.25, True)
    torch.testing.assert_close(y, mask.to(dtype) * (1 / 0.75))
    for place, (thread, call, number) in places.items():
        assert mask[place].item() == (uniform_of(0, call, thread, number) < 0.75)
    assert 0.5 < mask.float().mean() < 1
    assert torch.cuda.default_generators[0].get_offset() == (8 if size > 4 * THREADS else 4)


def test_dropout_by_the_shape_of_memory_and_its_edges(stand_in):
    x = torch.ones(8, 4, device="cuda")
    _, expected = torch.native_dropout(x, 0.5, True)
    torch.manual_seed(0)
    _, mask = torch.native_dropout(x.t().contiguous().t(), 0.5, True)
    assert torch.equal(mask.t().reshape(8, 4), expected)
    assert mask.stride() == (1, 8)
    assert torch.native_dropout(x, 1.0, True)[0].sum() == 0
    y, mask = torch.native_dropout(x, 0.5, False)
    assert torch.equal(y, x)
    assert mask.all()
    x.requires_grad_()
    y = torch.nn.functional.dropout(x, 0.5)
    y.sum().backward()
    assert torch.equal(x.grad, y)


def test_each_probability_has_its_thread(stand_in):
    p = torch.linspace(0, 1, 30, device="cuda")
    x = torch.bernoulli(p)
    for place in (3, 14, 29):
        assert x[place] == (uniform_of(0, 0, place // 4, place % 4) <= p[place])
    assert torch.cuda.default_generators[0].get_offset() == 12
    for wrong in (p + 1, p.long()):
        with pytest.raises(RuntimeError, match=r"not implemented for 'Long'|p_in"):
            torch.zeros(30, device="cuda").bernoulli_(wrong)


def test_one_sample_is_the_largest_of_weights_over_exponential_numbers(stand_in):
    weights = torch.linspace(0.1, 1, 40, device="cuda").view(2, 20)
    sample = torch.multinomial(weights, 1)
    torch.manual_seed(0)
    ratios = weights / torch.empty_like(weights).exponential_()
    assert torch.equal(sample, ratios.argmax(-1, keepdim=True))
    some = torch.multinomial(weights, 20)
    assert torch.equal(some.sort().values, torch.arange(20, device="cuda").expand(2, 20))
    with pytest.raises(RuntimeError, match="invalid multinomial distribution"):
        torch.multinomial(torch.zeros(3, device="cuda"), 1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.bool, torch.half])
def test_integers_are_within_their_bounds(stand_in, dtype):
    x = torch.zeros(4000, device="cuda", dtype=dtype)
    most = 2048 if dtype is torch.half else 1 if dtype is torch.bool else torch.iinfo(dtype).max
    assert 0 <= x.random_().min()
    assert most * 0.9 < x.max() <= most
    if dtype is not torch.bool:
        low = 0 if dtype is torch.uint8 else -3
        assert x.random_(low, 5).unique().tolist() == list(range(low, 5))
    with pytest.raises(RuntimeError, match=r"out of bounds|expects 'from' to be less"):
        x.random_(0, 1 << 63 - 1 if dtype is not torch.int64 else 0)


def test_wide_integers_take_two_words(stand_in):
    x = torch.randint(-5, 1 << 40, (3,), device="cuda")
    words = philox.words(0, 0, 1, range(3))[:, 0].T.astype(object)
    wide = [((int(first) << 32) + int(second)) % ((1 << 40) + 5) - 5 for first, second, *_ in words]
    assert x.tolist() == wide


def test_states_begin_where_a_gpus_threads_can(stand_in):
    generator = torch.Generator("cuda").manual_seed(3)
    torch.rand(5, device="cuda", generator=generator)
    state = generator.get_state()
    expected = torch.randn(5, device="cuda", generator=generator)
    assert torch.equal(
        torch.randn(5, device="cuda", generator=generator.set_state(state)), expected
    )
    # A state of a torch of old is a seed.
    generator.set_state(state[:8])
    assert (generator.initial_seed(), generator.get_offset()) == (3, 0)
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        generator.set_offset(3)
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        generator.set_state(state[:9])


@pytest.mark.gpu
def test_numbers_are_the_gpus(tmp_path):
    file = tmp_path / "drawn.pt"
    here = Path(__file__).parent
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(here / "drawn_numbers.py"), str(file)]
    subprocess.run(command, env=environment, check=True, timeout=300)
    expected, found = torch.load(file), drawn_numbers.results()
    gpu = torch.cuda.get_device_properties(0)
    held = gpu.multi_processor_count * gpu.max_threads_per_multi_processor
    is_the_record = held == PROPERTIES.multi_processor_count * 2048
    wrong = {}
    for name, (*values, state) in found.items():
        if "many" in name and not is_the_record:
            continue
        # The GPU's own sine, cosine and logarithm.
        is_near = "normal" in name or "randn" in name or "exponential" in name
        tolerance = {"rtol": 1e-3, "atol": 1e-4} if is_near else {"rtol": 0, "atol": 0}
        for value, other in zip((*values, state), expected[name], strict=True):
            with contextlib.suppress(AssertionError):
                torch.testing.assert_close(value, other, **tolerance)
                continue
            wrong[name] = value[:4], other[:4]
    assert wrong == {}
