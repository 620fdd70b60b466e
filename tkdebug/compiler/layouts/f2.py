"""Linear algebra over F2, the field of two elements, on Python integers as bit vectors.

A vector is an `int`: bit i is coordinate i, addition is XOR. `Span` is Gaussian elimination that
remembers how each vector was made, so that it also solves equations. Nothing here knows layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Span:
    """The subspace that the vectors added so far generate.

    Vectors are numbered in the order they were added, the dependent ones too. A solution uses only
    vectors that were independent of those before them, so "free" vectors never appear in it.

    Args:
        vectors: the first vectors to add.
    """

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        # By position of the highest set bit: the reduced vector, and which added vectors sum to it.
        self._rows: dict[int, tuple[int, int]] = {}
        self._added = 0
        for vector in vectors:
            self.add(vector)

    @property
    def rank(self) -> int:
        """Dimension of the subspace."""
        return len(self._rows)

    def add(self, vector: int) -> bool:
        """Adds `vector`; returns whether it was independent of those before it."""
        rest, combination = self._reduce(vector)
        combination ^= 1 << self._added
        self._added += 1
        if rest == 0:
            return False
        self._rows[rest.bit_length()] = (rest, combination)
        return True

    def solve(self, vector: int) -> int | None:
        """The mask of added vectors whose sum is `vector`, or None if it lies outside."""
        rest, combination = self._reduce(vector)
        return combination if rest == 0 else None

    def __contains__(self, vector: int) -> bool:
        return self._reduce(vector)[0] == 0

    def _reduce(self, vector: int) -> tuple[int, int]:
        combination = 0
        rest = vector
        # Rows are not fully reduced: clearing a leading bit may set lower ones, never higher ones.
        remaining = rest
        while remaining:
            row = self._rows.get(remaining.bit_length())
            if row is None:
                remaining ^= 1 << (remaining.bit_length() - 1)
                continue
            rest ^= row[0]
            combination ^= row[1]
            remaining = rest & ((1 << (row[0].bit_length() - 1)) - 1)
        return rest, combination


def combine(vectors: Sequence[int], mask: int) -> int:
    """The sum of `vectors[i]` over the set bits i of `mask`: a matrix times a vector."""
    total = 0
    while mask:
        low = mask & -mask
        total ^= vectors[low.bit_length() - 1]
        mask ^= low
    return total


def independent(candidates: Iterable[int], over: Iterable[int] = ()) -> tuple[int, ...]:
    """The candidates that are independent of `over` and of the candidates before them."""
    span = Span(over)
    return tuple(vector for vector in candidates if span.add(vector))


def intersection(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """A basis of span(left) and span(right) intersected.

    Each vector of `right` that depends on what came before gives left part = right part.
    """
    left = independent(left)
    right = independent(right)
    span = Span(left)
    of_left = (1 << len(left)) - 1
    common: list[int] = []
    for vector in right:
        mask = span.solve(vector)
        span.add(vector)
        if mask is not None:
            common.append(combine(left, mask & of_left))
    return tuple(common)


def spanned(vectors: Sequence[int]) -> tuple[int, ...]:
    """Every sum of the vectors: entry m is `combine(vectors, m)`."""
    sums = [0]
    for vector in vectors:
        sums.extend([entry ^ vector for entry in sums])
    return tuple(sums)
