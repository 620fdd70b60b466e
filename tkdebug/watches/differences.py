"""By how much two values of one watch differ."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tkdebug.watches.records import WatchedValue

# Of an element type, what the last bit of its fraction is worth.
_LAST_PLACES = {
    **{"fp64": 2.0**-52, "fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7},
    **{"fp8e4nv": 2.0**-3, "fp8e4b8": 2.0**-3, "fp8e5": 2.0**-2, "fp8e5b16": 2.0**-2},
}
_FEW = 4


def same_value(a: WatchedValue, b: WatchedValue) -> bool:
    """Whether all that is kept of two values is the same, NaN equal to itself."""
    counts = (a.nan, a.inf, a.zeros, a.histogram) == (b.nan, b.inf, b.zeros, b.histogram)
    # Texts, so that NaN is equal to itself.
    return counts and [*map(repr, _numbers(a))] == [*map(repr, _numbers(b))] and a.tile == b.tile


def difference(a: WatchedValue, b: WatchedValue) -> float:
    """The largest difference of two values, over the largest magnitude.

    It is of minimum, maximum and mean, and of the elements where both have them; infinite where
    one has NaNs or infinities that the other has not.
    """
    if (a.nan, a.inf) != (b.nan, b.inf):
        return math.inf
    pairs = list(zip(_numbers(a), _numbers(b), strict=True))
    if a.tile and b.tile and a.shape == b.shape:
        pairs += zip(a.values(), b.values(), strict=True)
    finite = [pair for pair in pairs if all(map(math.isfinite, pair))]
    largest = max((abs(number) for pair in finite for number in pair), default=0.0)
    return max((abs(x - y) for x, y in finite), default=0.0) / largest if largest else 0.0


def is_rounding(a: WatchedValue, b: WatchedValue) -> bool:
    """Whether two values of floats differ by a few units in the last place of the largest."""
    last_place = _LAST_PLACES.get(a.type.partition("[")[0])
    return last_place is not None and difference(a, b) <= _FEW * last_place


def _numbers(value: WatchedValue) -> Iterator[float]:
    yield from (value.minimum, value.maximum, value.mean)
