import pytest

from tkdebug.errors import Frame
from tkdebug.tui.drawing import display


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (999.9, "1.00 µs"),
        (1_500_000, "1.50 ms"),
        (12_345_678_901, "12.3 s"),
        (59_960_000_000, "1m 00s"),
        (3_661_000_000_000, "1h 01m"),
        (-1, "-"),
    ],
)
def test_duration_three_digits(time_ns, text):
    assert display.duration(time_ns) == text


def test_shown_has_no_control_or_reordering_characters():
    text = display.shown("a\x1b[31mb\x07\x9b\u202ec\u2028d\ud800e\tf")
    assert text.encode()
    assert not set(text) & set("\x1b\x07\x9b\u202e\u2028\t")
    assert "f" in text


def test_shown_is_bounded():
    assert display.shown("x" * 10**6, 20) == "x" * 19 + "…"


def test_place_shows_last_part_of_paths_of_any_system():
    assert display.place(Frame("/a/b/c.py", 3, "f")) == "c.py:3"
    assert display.place(Frame("C:\\a\\c.py", 3, "f")) == "c.py:3"


def test_grid_drops_trailing_ones():
    assert [display.grid(g) for g in ((4, 1, 1), (4, 2, 1), (1, 1, 3))] == [
        "4",
        "4 x 2",
        "1 x 1 x 3",
    ]
