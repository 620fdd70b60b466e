"""Launches that are checked."""

import weakref

import pytest
import torch

from tkdebug.compiler.sites.table import elements_behind
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.arguments.tensor_stand_ins import TensorWrapper, reinterpret
from tkdebug.runtime.checked.launch_kinds import MOST_KINDS, QUIET, LaunchKinds
from tkdebug.runtime.checked.passed_arguments import PassedArguments, kind_of

EVERYTHING = (0, (1 << 63) - 1, (1 << 31) - 1)


def checked_of(kinds, launches):
    """Numbers (from 1) of the launches that are checked; those that nobody looks at are skipped."""
    checked, rest = [], 0
    for number, kind in enumerate(launches, 1):
        if rest is None or rest > 0:
            rest = None if rest is None else rest - 1
            continue
        if kinds.wants(kind):
            checked.append(number)
        rest = kinds.rest
    return checked


def test_first_launch_of_each_kind_is_checked():
    assert checked_of(LaunchKinds(), "aabbaacab") == [1, 3, 7]


def test_kernel_that_depends_on_data_is_checked_at_powers_of_two():
    kinds = LaunchKinds()
    kinds.depends_on_data = True
    assert checked_of(kinds, "a" * 3000) == [2**n for n in range(12)]


def test_more_kinds_than_are_remembered_are_checked_at_powers_of_two():
    launches = range(5 * MOST_KINDS)
    expected = [*range(1, MOST_KINDS + 1), 2 * MOST_KINDS, 4 * MOST_KINDS]
    assert checked_of(LaunchKinds(), launches) == expected


def test_new_kind_after_a_rest_is_checked():
    kinds = LaunchKinds()
    before = ["a"] * (2 * QUIET + 1)
    assert checked_of(kinds, [*before, "b", "a"]) == [1, 2 * QUIET + 2]


def test_kernel_that_shows_nothing_new_is_left_alone_for_good():
    kinds = LaunchKinds()
    checked_of(kinds, "a" * 100_000)
    assert kinds.rest is None


@pytest.mark.parametrize(
    ("other", "is_new"),
    [
        ({"x": torch.ones(8, 4)}, False),
        ({"x": torch.zeros(4, 8)}, True),
        ({"x": torch.zeros(4, 8).T}, True),
        ({"n": 4}, True),
        ({"eps": 2.0}, False),
        ({"grid": (2, 1, 1)}, True),
    ],
)
def test_kind_is_what_addresses_are_made_of(other, is_new):
    def kind(x, n, eps, grid):
        return kind_of(grid, (x, n, eps))

    first = {"x": torch.zeros(8, 4), "n": 3, "eps": 1.0, "grid": (1, 1, 1)}
    assert (kind(**first) != kind(**{**first, **other})) is is_new


def bounds_of(value):
    return PassedArguments(("x",), (value,)).bounds(("x",))


def span(tensor):
    first, end, elements = bounds_of(tensor)
    is_wrapped = isinstance(tensor, TensorWrapper)
    size = 1 if is_wrapped else tensor.element_size()
    assert elements == (end - first) // size
    storage = (tensor.base if is_wrapped else tensor).untyped_storage().data_ptr()
    return first - storage, end - storage


def test_bounds_are_those_of_the_view():
    x = torch.zeros(6, 8)
    assert span(x) == (0, 192)
    assert span(x[1:3, 2:5]) == ((8 + 2) * 4, (16 + 5) * 4)
    assert span(x[:, ::2]) == (0, (5 * 8 + 6 + 1) * 4)
    assert span(x[0, 3]) == (12, 16)
    assert span(reinterpret(x[1:3], torch.int8)) == (32, 96)
    # Of an empty tensor torch gives the address 0.
    assert bounds_of(x[2:2]) == (0, 0, 0)


def test_expanded_view_may_use_its_allocation():
    assert span(torch.zeros(6, 1)[1:].expand(5, 4)) == (4, 24)
    assert span(torch.zeros(6)[2:3].expand(9)) == (8, 24)


def test_bounds_and_gaps_are_those_of_what_is_reported():
    x = torch.zeros(4, 6)
    resized = torch.zeros(8)
    resized.untyped_storage().resize_(0)
    views = (
        *(x, x.t(), x[1:3], x[:, 1:4], x[::2], x[:, :1], x[2:2], x[:1, :1], x[3, 5], x[:, None]),
        *(
            x[:1].expand(3, 6),
            resized,
            torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        ),
    )
    for view in views:
        passed = PassedArguments(("x",), (view,))
        tensor = PassedTensor.of(view)
        assert passed.tensors["x"] == tensor
        assert passed.bounds(("x",))[:2] == tensor.byte_bounds()
        assert passed.has_gaps == tensor.has_gaps


def test_bounds_of_nested_arguments():
    x = torch.zeros(4, 16)
    values = ((x, 3), TensorDescriptor.from_tensor(x, [4, 16]), None, 2.5)
    passed = PassedArguments(("pair", "desc", "nothing", "eps"), values)
    first, end = x.data_ptr(), x.data_ptr() + 256
    names = ("pair.0", "desc", "nothing")
    assert passed.bounds(names) == (first, end, 64, first, end, 64, *EVERYTHING)
    assert passed.numbers == {"eps": 2.5}
    assert set(passed.tensors) == {"pair.0", "desc"}


def test_passed_arguments_keep_no_memory_alive():
    x = torch.zeros(1 << 20)
    alive = weakref.ref(x)
    passed = PassedArguments(("x", "pair"), (x, (x,)))
    del x
    assert alive() is None
    assert passed.tensors["x"].shape == (1 << 20,)


def test_address_with_a_type_has_no_known_extent():
    class Address:
        dtype = torch.float32

        def data_ptr(self):
            return 4096

    assert bounds_of(Address()) == EVERYTHING


def test_no_more_elements_are_passed_than_fit_32_bits():
    large = torch.empty(1, dtype=torch.int8).expand(1 << 31)
    (_, _, elements) = PassedArguments(("x",), (large,)).bounds(("x",))
    assert elements == 1
    assert (
        elements_behind(16, 16 + (1 << 31) - 1, 1)
        == elements_behind(0, 1 << 40, 1)
        == (1 << 31) - 1
    )
    assert elements_behind(16, 27, 4) == 2
    assert elements_behind(16, 0, 4) == 0
