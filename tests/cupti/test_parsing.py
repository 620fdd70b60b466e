import activity_records as made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.instrument.cupti.layouts import LAYOUTS, RecordError, layout_of, records_by_kind

LAYOUT = layout_of(130001)
ONE_OF_EACH = {
    made.KERNEL: made.kernel(call=5),
    made.MEMCPY: made.memcpy(call=6),
    made.MEMSET: made.memset(call=7),
    made.DRIVER: made.driver_call(1, 8, 9),
}


def test_records_of_one_kind_are_read_in_place():
    data = b"".join(made.kernel(start=n, end=n + 10, call=n) for n in range(1, 100))
    found = records_by_kind(data, LAYOUT)
    assert set(found) == {made.KERNEL}
    assert found[made.KERNEL]["correlationId"].tolist() == list(range(1, 100))
    assert found[made.KERNEL].base is not None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(ONE_OF_EACH)), min_size=1, max_size=40))
def test_records_of_any_order_are_all_found(kinds):
    found = records_by_kind(b"".join(ONE_OF_EACH[kind] for kind in kinds), LAYOUT)
    assert {kind: len(records) for kind, records in found.items()} == {
        kind: kinds.count(kind) for kind in set(kinds)
    }
    for kind, call in ((made.KERNEL, 5), (made.MEMCPY, 6), (made.MEMSET, 7), (made.DRIVER, 8)):
        if kind in found:
            assert set(found[kind]["correlationId"].tolist()) == {call}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.cuda)
def test_sizes_are_those_of_the_version(layout):
    sizes = layout.sizes
    data = (
        made.memcpy(size=sizes[made.MEMCPY])
        + made.kernel(size=sizes[made.KERNEL], start=7, end=9)
        + made.memset(size=sizes[made.MEMSET])
        + made.kernel(size=sizes[made.KERNEL], start=8, end=9)
    )
    found = records_by_kind(data, layout)
    assert found[made.KERNEL]["start"].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (made.kernel()[:-8], "kind 10 at byte|ends at byte 216 of 208"),
        (made.kernel() + b"\0" * 8, "kind 0 at byte 216 of 224"),
        (made.kernel() + b"\x33\0\0\0" + b"\0" * 60, "kind 51 at byte 216"),
        (made.kernel()[:-4], "212 bytes, expected a multiple of 8"),
        # The records of another version.
        (made.kernel(size=208) * 2, "kind 0 at byte 216|kind"),
    ],
)
def test_buffer_that_is_not_what_the_layout_says_is_refused(data, message):
    with pytest.raises(RecordError, match=message) as caught:
        records_by_kind(data, LAYOUT)
    assert "not those of CUDA 13.0" in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_are_read_or_refused(data):
    try:
        found = records_by_kind(data, LAYOUT)
    except RecordError:
        return
    assert sum(len(records) * LAYOUT.sizes[kind] for kind, records in found.items()) == len(data)


def test_empty_buffer_has_no_records():
    assert records_by_kind(b"", LAYOUT) == {}
