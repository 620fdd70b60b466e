from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tkdebug.linemap.nvidia.line_programs import LineProgramError, Row, decode

# DWARF 3 line program: line_base -5, line_range 14, opcode_base 10; file 1 is "a.py".
HEADER = bytes([1, 1, 0xFB, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1]) + b"\0a.py\0\0\0\0\0"


def section(program: bytes, version: int = 3) -> bytes:
    body = version.to_bytes(2, "little") + len(HEADER).to_bytes(4, "little") + HEADER + program
    return len(body).to_bytes(4, "little") + body


SET_ADDRESS = b"\x00\x09\x02" + bytes(8)
END = b"\x00\x01\x01"


def test_special_and_standard_opcodes_move_line_and_address() -> None:
    program = SET_ADDRESS + b"\x03\x04\x01" + bytes([10 + (2 + 5) + 14 * 3]) + b"\x02\x10\x01" + END
    assert [(row.address, row.line, row.end) for row in decode(section(program))] == [
        (0, 5, False),
        (3, 7, False),
        (19, 7, False),
        (19, 7, True),
    ]


def test_inlined_call_points_to_its_row_and_names_the_function() -> None:
    program = SET_ADDRESS + b"\x01" + b"\x00\x03\x90\x01\x02" + b"\x03\x09\x01"
    program += b"\x00\x03\x90\x00\x00" + b"\x01" + END
    rows = decode(section(program), strings=b"x\0inner\0")
    assert [(row.line, row.context, row.callee) for row in rows[:3]] == [
        (1, None, ""),
        (10, 0, "inner"),
        (10, None, ""),
    ]


def test_second_unit_counts_its_own_rows() -> None:
    program = SET_ADDRESS + b"\x01" + b"\x00\x03\x90\x01\x00" + b"\x01" + END
    rows = decode(section(program) * 2, strings=b"f\0")
    assert [row.context for row in rows] == [None, 0, 0, None, 3, 3]


def test_relocated_address_names_the_function() -> None:
    data = section(SET_ADDRESS + b"\x01" + END)
    at = data.index(SET_ADDRESS) + 3
    assert decode(data, {at: "kernel"})[0] == Row("kernel", 0, "a.py", 1)


@pytest.mark.parametrize("version", [1, 5])
def test_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(LineProgramError, match=f"got DWARF version {version}"):
        decode(section(b"", version))


def test_every_cut_is_an_error() -> None:
    data = section(SET_ADDRESS + b"\x01" + END)
    for length in range(5, len(data)):
        with pytest.raises(LineProgramError):
            decode(data[:length])


@given(st.binary(max_size=60))
def test_any_program_ends_or_is_refused(program: bytes) -> None:
    try:
        decode(section(program))
    except LineProgramError:
        pass
