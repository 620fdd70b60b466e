from tkdebug.instrument.text_forms import table_lines
from tkdebug.terminal.display import cut, fitted, width_of

ROWS = [("kernel", "launches", "total"), ("a" * 40, "1", "2 ms"), ("b", "1,000", "10 ms")]


def test_table_is_as_wide_as_it_comes_where_nothing_limits_it():
    lines = list(table_lines(ROWS))
    assert lines[1] == "a" * 40 + "         1   2 ms"
    assert len({len(line) for line in lines}) == 1


def test_table_cuts_long_names_and_keeps_the_figures():
    lines = list(table_lines(ROWS, 40))
    assert [len(line) for line in lines] == [40, 40, 40]
    assert lines[1].endswith("…         1   2 ms")
    assert lines[0].startswith("kernel  ")


def test_table_is_never_wider_than_the_terminal():
    assert max(len(line) for line in table_lines(ROWS, 20, indent="  ")) == 20


def test_short_names_are_left_alone():
    assert list(table_lines(ROWS[::2], 80)) == list(table_lines(ROWS[::2]))


def test_text_is_cut_to_the_room_that_the_rest_leaves():
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"
    assert fitted("s" * 50, "  [hash]", 40) == "s" * 31 + "…  [hash]"
    assert fitted("s" * 50, "  [hash]", None) == "s" * 50 + "  [hash]"


def test_what_is_no_terminal_has_no_width(tmp_path):
    with (tmp_path / "file").open("w") as file:
        assert width_of(file) is None
    assert width_of(file) is None  # closed by now
