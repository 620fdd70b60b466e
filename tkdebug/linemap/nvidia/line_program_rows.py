"""Line programs as rows that can be added to, and written again.

Responsible for the programs that ptxas writes: one sequence that begins with its relocated address,
and rows of file, line and call. A program with anything else in it is left as it is. Invariant: the
relocated address stays where it is in the section.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tkdebug.linemap.nvidia.cubins import INSTRUCTION_BYTES
from tkdebug.linemap.nvidia.line_programs import LineProgramError, Step, file_numbers, steps

_LENGTH_BYTES = 4
_OPCODE_BASE_AT = 14  # in the header of DWARF 2 and 3
_SET_ADDRESS = b"\x00\x09\x02"
_END_SEQUENCE = b"\x00\x01\x01"
_COPY, _ADVANCE_ADDRESS, _ADVANCE_LINE, _SET_FILE = b"\x01", b"\x02", b"\x03", b"\x04"
_INLINED_CALL = 0x90
_MOVES = {1, 2, 3, 4, 8, 9}  # standard operations that move rows; the others mark them


class ProgramRow(NamedTuple):
    """One row, by the numbers of its program.

    Attributes:
        address: as the section has it.
        file: number of the file.
        line: 1-based.
        call: index of the row that the code was inlined at, None for none.
        callee: offset of the inlined function's name in `.debug_str`.
        end: whether the row only ends its sequence.
    """

    address: int
    file: int
    line: int
    call: int | None = None
    callee: int = 0
    end: bool = False


@dataclass(frozen=True)
class LineProgram:
    """A section that is one line program.

    Attributes:
        data: the section.
        operations: in order.
        rows: that they make.
    """

    data: bytes
    operations: tuple[Step, ...]
    rows: tuple[ProgramRow, ...]

    @staticmethod
    def of(data: bytes) -> LineProgram:
        """The program in `data`.

        Raises:
            LineProgramError: the section is cut short, or not one line program.
        """
        operations = tuple(steps(data))
        return LineProgram(data, operations, tuple(_rows(file_numbers(data), operations)))

    def with_rows(self, added: Mapping[int, ProgramRow]) -> bytes:
        """The section with a row for each instruction at an address of `added`.

        The instruction behind it gets the row that was in force before it, unless it has its own.
        An address that has a row already, or none before it, is passed over.

        Raises:
            LineProgramError: a row is of a call that does not exist.
        """
        data = self.data
        if not added or not _is_plain(data, self.operations, self.rows):
            return data
        first = self.operations[0]
        written = bytearray(data[: first.stop])
        start = int.from_bytes(data[first.start + len(_SET_ADDRESS) : first.stop], "little")
        for part in _program(_merged(self.rows, added), start):
            written += part
        written[:_LENGTH_BYTES] = (len(written) - _LENGTH_BYTES).to_bytes(_LENGTH_BYTES, "little")
        return bytes(written)


def _rows(files: Mapping[str, int], operations: Iterable[Step]) -> Iterator[ProgramRow]:
    context, callee = 0, 0
    for step in operations:
        context, callee = step.call or (context, callee)
        row = step.row
        if row is None:
            continue
        if row.end:
            yield ProgramRow(row.address, 0, 0, end=True)
            continue
        file = files.get(row.file, 0)
        if row.file and not file:
            raise LineProgramError("line table: a row of a file that the header does not name")
        yield ProgramRow(row.address, file, row.line, context - 1 if context else None, callee)


def _is_plain(data: bytes, operations: Sequence[Step], rows: Sequence[ProgramRow]) -> bool:
    if not operations or not data.startswith(_SET_ADDRESS, operations[0].start):
        return False
    base = data[_OPCODE_BASE_AT]
    for step in operations[1:]:
        opcode = data[step.start]
        is_end = data.startswith(_END_SEQUENCE, step.start)
        if opcode < base and opcode not in _MOVES and not is_end and step.call is None:
            return False
    addresses = [row.address for row in rows]
    return [row.end for row in rows].index(True) == len(rows) - 1 and addresses == sorted(addresses)


def _merged(
    rows: Sequence[ProgramRow], added: Mapping[int, ProgramRow]
) -> list[tuple[ProgramRow, int | None]]:
    """All rows in order, each with its index in `rows` if it was there before."""
    addresses = [row.address for row in rows]
    there = set(addresses)
    new: list[ProgramRow] = []
    for address, row in added.items():
        before = bisect.bisect_right(addresses, address) - 1
        if address in there or before < 0 or rows[before].end:
            continue
        new.append(row._replace(address=address))
        behind = address + INSTRUCTION_BYTES
        if behind not in there and behind not in added:
            new.append(rows[before]._replace(address=behind))
    numbered = [*((row, index) for index, row in enumerate(rows)), *((row, None) for row in new)]
    return sorted(numbered, key=lambda item: item[0].address)


def _program(rows: Sequence[tuple[ProgramRow, int | None]], start: int) -> Iterator[bytes]:
    """The operations of rows, behind the one that sets the address to `start`."""
    numbers = {index: number for number, (_, index) in enumerate(rows, 1) if index is not None}
    address, file, line, call = start, 1, 1, (0, 0)
    for row, _ in rows:
        if row.address != address:
            yield _ADVANCE_ADDRESS + uleb(row.address - address)
            address = row.address
        if row.end:
            yield _END_SEQUENCE
            return
        if row.call is not None and row.call not in numbers:
            raise LineProgramError(f"line table: a call at row {row.call}, which does not exist")
        here = (0, 0) if row.call is None else (numbers[row.call], row.callee)
        if here != call:
            yield inlined_call(*here)
            call = here
        if row.file != file:
            yield _SET_FILE + uleb(row.file)
            file = row.file
        if row.line != line:
            yield _ADVANCE_LINE + _sleb(row.line - line)
            line = row.line
        yield _COPY


def inlined_call(row: int, name: int) -> bytes:
    """DW_LNE_inlined_call: code inlined at row number `row`, 0 for none, of the function `name`."""
    operands = bytes([_INLINED_CALL]) + uleb(row) + uleb(name)
    return b"\0" + uleb(len(operands)) + operands


def uleb(value: int) -> bytes:
    """Unsigned LEB128."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def _sleb(value: int) -> bytes:
    data = bytearray()
    while not -0x40 <= value < 0x40:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value & 0x7F])
