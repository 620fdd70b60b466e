from __future__ import annotations

import pytest
from test_line_programs import END, SET_ADDRESS, section

from tkdebug.linemap.nvidia.line_programs import LineProgram, LineProgramError, ProgramRow, decode

# Line 5 at 0, line 7 at 0x20 in a call that the first row makes, the end at 0x60.
PROGRAM = (
    SET_ADDRESS
    + b"\x03\x04\x01"
    + b"\x00\x03\x90\x01\x02\x03\x02\x02\x20\x01"
    + b"\x02\xc0\x00"
    + END
)
DATA = section(PROGRAM)
STRINGS = b"x\0inner\0"
DOT = ProgramRow(0, 1, 30)


def lines(data: bytes) -> list[tuple[int, int]]:
    return [(row.address, row.line) for row in decode(data, None, STRINGS) if not row.end]


def test_added_row_ends_where_the_one_before_goes_on() -> None:
    assert lines(LineProgram.of(DATA).with_rows({0x30: DOT})) == [
        (0, 5),
        (0x20, 7),
        (0x30, 30),
        (0x40, 7),
    ]


def test_row_that_follows_at_once_is_not_doubled() -> None:
    assert lines(LineProgram.of(DATA).with_rows({0x10: DOT})) == [(0, 5), (0x10, 30), (0x20, 7)]
    both = LineProgram.of(DATA).with_rows({0x30: DOT, 0x40: DOT})
    assert lines(both) == [(0, 5), (0x20, 7), (0x30, 30), (0x40, 30), (0x50, 7)]


def test_calls_name_the_row_that_they_named_before() -> None:
    rows = decode(LineProgram.of(DATA).with_rows({0x10: DOT, 0x30: DOT}), None, STRINGS)
    inlined = [row for row in rows if row.context is not None and not row.end]
    assert [(row.address, row.callee) for row in inlined] == [(0x20, "inner"), (0x40, "inner")]
    assert {rows[row.context or 0].line for row in inlined} == {5}


def test_address_that_has_a_row_or_none_before_it_is_passed_over() -> None:
    assert lines(LineProgram.of(DATA).with_rows({0x20: DOT, 0x60: DOT, 0x90: DOT})) == lines(DATA)


def test_rows_are_the_same_after_a_second_time() -> None:
    once = LineProgram.of(DATA).with_rows({0x30: DOT})
    assert LineProgram.of(once).with_rows({0x30: DOT}) == once
    assert LineProgram.of(once).rows[2] == ProgramRow(0x30, 1, 30)


@pytest.mark.parametrize(
    "program",
    [
        PROGRAM + PROGRAM,  # two sequences
        SET_ADDRESS + b"\x06" + PROGRAM[len(SET_ADDRESS) :],  # a mark that rows here do not keep
        PROGRAM[len(SET_ADDRESS) :],  # no address to relocate
    ],
)
def test_program_of_another_form_is_left_as_it_is(program: bytes) -> None:
    data = section(program)
    assert LineProgram.of(data).with_rows({0x30: DOT}) == data


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (SET_ADDRESS + b"\x00\x06\x03x\x00\x00\x00\x00\x04\x02\x01" + END, "header does not name"),
        (SET_ADDRESS + b"\x00\x03\x90\x09\x02\x01" + END, "row 8"),
    ],
)
def test_row_of_what_does_not_exist_is_an_error(program: bytes, reason: str) -> None:
    with pytest.raises(LineProgramError, match=reason):
        LineProgram.of(section(program)).with_rows({0x30: DOT})
