"""Constants of a kernel's file, and the sizes beside them."""

import pytest

from tkdebug.verification.hints import Hints

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


@pytest.mark.parametrize("text", ["def (", "x = 1 << 10_000_000", "x = 2 ** -5 + 10 ** 400"])
def test_text_without_usable_constants_gives_few(text):
    assert all(size <= 1 << 20 for size in Hints.of_source(text).sizes)
