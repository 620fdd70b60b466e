"""Sets of wrong elements in words and as a picture."""

import pytest
import torch

from tkdebug.causes.mismatch import elements_in_words, picture


def wrong(shape, *where):
    tensor = torch.zeros(shape, dtype=torch.bool)
    for index in where:
        tensor[index] = True
    return tensor


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (wrong((4, 6), ...), "all 24 elements"),
        (wrong((4, 6), 2), "row 2 (6 of 24 elements)"),
        (wrong((4, 6), (slice(None), slice(4, 6))), "columns 4 to 5 (8 of 24 elements)"),
        (wrong((4, 6), (1, 3)), "row 1, column 3 (1 of 24 elements)"),
        (wrong((12,), slice(0, 12, 3)), "every 3rd element from 0 to 9 (4 of 12 elements)"),
        (wrong((12,), slice(8, 12)), "elements 8 to 11 (4 of 12 elements)"),
        (wrong((2, 3, 8), (slice(None), 1)), "index 1 of axis 1 (16 of 48 elements)"),
        (~torch.eye(5, dtype=torch.bool), "all but the diagonal (20 of 25 elements)"),
        (torch.ones(4, 4).triu(1).bool(), "all above the diagonal (6 of 16 elements)"),
        (wrong((3, 3), (0, 0), (2, 1)), "2 of 9 elements"),
        (
            torch.arange(64) % 16 >= 13,
            "3 of each 16 elements, from element 13 (12 of 64 elements)",
        ),
        (torch.tensor(True), "the only element"),
    ],
)
def test_the_simplest_description_is_given(tensor, text):
    assert elements_in_words(tensor) == text


def test_a_picture_joins_what_does_not_fit():
    tensor = wrong((40, 100), slice(20, 40))
    tensor[0, 0] = True
    lines = picture(tensor, rows=4, columns=10)
    assert lines == ("+.........", "..........", "##########", "##########")
