"""Bases of affine tiles: a pattern says what its numbers say."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tkdebug.interpreter.tiles.program_bases import Base, ProgramPattern

_INTS = st.integers(-(1 << 40), 1 << 40)
_FACTORS = st.integers(-(1 << 30), 1 << 30)


def patterned(start: int, count: int, step: int) -> Base:
    """A base that is no tensor yet."""
    pattern = ProgramPattern(start, (count,), (step,))
    return Base.of_pattern(pattern, (count,), torch.device("cpu"))


def listed(start: int, count: int, step: int) -> Base:
    """Return the numbers as a tensor."""
    return Base(torch.tensor([start + place * step for place in range(count)]))


def check_same(found: Base, expected: Base) -> None:
    """Both have the same numbers, and say the same of them."""
    assert found.shape == expected.shape
    assert found.is_per_program
    if -(1 << 63) <= found.bounds[0] and found.bounds[1] < 1 << 63:
        assert found.exact_bounds == expected.exact_bounds
        assert found.pattern() == expected.pattern()
    assert torch.equal(found.tensor, expected.tensor)


@given(_INTS, st.integers(2, 40), _INTS, _FACTORS, _INTS, _INTS)
def test_patterns_are_scaled_and_added_as_their_numbers_are(
    start: int, count: int, step: int, factor: int, start2: int, step2: int
) -> None:
    made, numbers = patterned(start, count, step), listed(start, count, step)
    check_same(made.times(factor), numbers.times(factor))
    check_same(made.times_modulo(factor), numbers.times_modulo(factor))
    check_same(
        made.plus(patterned(start2, count, step2)), numbers.plus(listed(start2, count, step2))
    )
    check_same(made.plus(listed(start2, count, step2)), numbers.plus(listed(start2, count, step2)))
    tall, expected = made.reshaped((count, 1, 1)), numbers.reshaped((count, 1, 1))
    check_same(tall.permuted((1, 0)), expected.permuted((1, 0)))


def test_numbers_beyond_64_bits_wrap_and_their_bounds_do_not() -> None:
    made = patterned(1 << 61, 3, 1).times(4)
    assert made.bounds == (1 << 63, (1 << 63) + 8)
    assert made.tensor.tolist() == [-(1 << 63), -(1 << 63) + 4, -(1 << 63) + 8]
    assert patterned(1 << 61, 3, 1).times_modulo(4).bounds == (-(1 << 63), -(1 << 63) + 8)
