"""Lanes of spans: what crosses is apart."""

from hypothesis import given
from hypothesis import strategies as st

from tkdebug.instrument.renderers.trace_tracks import lanes

SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1]))
)


def cross(one, other, nested):
    (_, b), (c, d) = sorted([one, other], key=lambda s: (s[0], -s[1]))
    return c < b and not (nested and d <= b)


@given(SPANS, st.booleans())
def test_no_two_spans_of_a_lane_cross(spans, nested):
    found = lanes(spans, nested)
    assert len(found) == len(spans)
    for at, one in enumerate(spans):
        for other, lane in zip(spans[:at], found, strict=False):
            assert lane != found[at] or not cross(one, other, nested)


def test_spans_that_fit_share_the_first_lane():
    assert lanes([(0, 10), (10, 12), (2, 5)], nested=True) == [0, 0, 0]
    assert lanes([(0, 10), (10, 12), (2, 5)], nested=False) == [0, 0, 1]
