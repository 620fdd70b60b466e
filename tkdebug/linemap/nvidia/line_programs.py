"""Line programs of cubins: `.debug_line` and `.nv_debug_line_sass`, decoded, changed and encoded.

ptxas writes both as DWARF 3 line programs without a compile unit, so pyelftools' usual way in (by
unit) does not reach them; and `.debug_line` carries NVIDIA's extended opcode for inlined calls.
Sources: DWARF 3, 6.2 "Line Number Information"; DW_LNE_inlined_call as the two-level line table
proposal has it (context row, function name), numbered 0x90 by NVIDIA and read off real cubins.
Invariant: bytes out of bounds raise `LineProgramError`; the data may be of anybody's making.

`LineProgram` has the rows of programs that ptxas writes, so that rows can be added: one sequence
that begins with its relocated address, and rows of file, line and call. A program with anything
else in it is left as it is. Invariant: the relocated address keeps its place in the section.
"""

from __future__ import annotations

import bisect
import posixpath
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tkdebug.errors import TkError

INSTRUCTION_BYTES = 16  # since Volta
_MAX_ROWS = 4_000_000


class LineProgramError(TkError):
    """A line table cannot be read: truncated, or of an unknown form."""


class Row(NamedTuple):
    """One row of a line table.

    Attributes:
        function: symbol whose address the sequence begins at, "" when it names none.
        address: byte offset in that function.
        file: the path in the table, "" for file number 0.
        line: 1-based; 0 if the table says so.
        context: index into the rows of the call this row's code was inlined at, None for none.
        callee: name of the inlined function, "" if `context` is None.
        end: whether the row only ends its sequence.
    """

    function: str
    address: int
    file: str
    line: int
    context: int | None = None
    callee: str = ""
    end: bool = False


class _Reader:
    """A cursor over bytes that never reads past `stop`."""

    def __init__(self, data: bytes, start: int, stop: int) -> None:
        self.data = data
        self.at = start
        self.stop = stop

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > self.stop:
            raise LineProgramError(f"line table cut short at byte {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        at = self.at
        if at >= self.stop:
            raise LineProgramError(f"line table cut short at byte {at} of {len(self.data)}")
        self.at = at + 1
        return self.data[at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def uleb(self) -> int:
        value = self.byte()
        if value < 0x80:
            return value
        value, shift = value & 0x7F, 7
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value
            if shift > 70:
                raise LineProgramError(f"line table: number too long at byte {self.at}")

    def sleb(self) -> int:
        start = self.at
        value = self.uleb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def string(self) -> str:
        end = self.data.find(b"\0", self.at, self.stop)
        if end < 0:
            raise LineProgramError(f"line table: unterminated name at byte {self.at}")
        text = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return text


@dataclass(slots=True)
class _Header:
    stop: int
    minimum_instruction_bytes: int
    line_base: int
    line_range: int
    operand_counts: tuple[int, ...]
    files: list[str]


def decode(
    data: bytes, symbols: Mapping[int, str] | None = None, strings: bytes = b""
) -> tuple[Row, ...]:
    """All rows of a section, unit after unit, in the order of the section.

    Args:
        data: the section.
        symbols: offset in `data` of each relocated address -> name of the symbol there.
        strings: `.debug_str`, for the names of inlined functions.

    Raises:
        LineProgramError: the section is cut short or no DWARF 2 to 4 line program.
    """
    rows: list[Row] = []
    start = 0
    while start + 4 < len(data):
        header, reader = _header(data, start)
        _Machine(header, reader, symbols or {}, strings, rows).run()
        start = header.stop
    return tuple(rows)


def file_numbers(data: bytes) -> dict[str, int]:
    """Path of each file of a section that is one line program -> its number in it.

    Raises:
        LineProgramError: the section is cut short, or not one line program.
    """
    header, _ = _only_header(data)
    return {path: number for number, path in reversed([*enumerate(header.files)][1:])}


class Step(NamedTuple):
    """One operation of a line program.

    Attributes:
        start: offset of its first byte in the section.
        stop: offset after its last byte.
        row: the row that it makes, without the names of functions; None if it makes none.
        call: the unchanged operands of DW_LNE_inlined_call, None for another operation.
    """

    start: int
    stop: int
    row: Row | None
    call: tuple[int, int] | None


def steps(data: bytes) -> Iterator[Step]:
    """The operations of a section that is one line program, in order.

    Raises:
        LineProgramError: the section is cut short, or not one line program.
    """
    header, reader = _only_header(data)
    rows: list[Row] = []
    machine = _Machine(header, reader, {}, b"", rows)
    while reader.at < header.stop:
        start, count = reader.at, len(rows)
        machine.step()
        row = rows[count] if len(rows) > count else None
        yield Step(start, reader.at, row, machine.call)


def _only_header(data: bytes) -> tuple[_Header, _Reader]:
    header, reader = _header(data, 0)
    if header.stop != len(data):
        raise LineProgramError("line table: got several programs, expected one")
    return header, reader


def _header(data: bytes, start: int) -> tuple[_Header, _Reader]:
    reader = _Reader(data, start, len(data))
    length = reader.number(4)
    stop = reader.at + length
    if stop > len(data):
        raise LineProgramError(f"line table cut short: got {len(data)} bytes, expected {stop}")
    reader.stop = stop
    version = reader.number(2)
    if version not in (2, 3, 4):
        raise LineProgramError(f"line table: got DWARF version {version}, expected 2 to 4")
    header_bytes = reader.number(4)
    program = reader.at + header_bytes
    minimum = reader.number(1)
    if version >= 4:
        reader.number(1)
    reader.number(1)
    line_base, line_range, opcode_base = struct.unpack("<bBB", reader.take(3))
    if not line_range or not opcode_base:
        raise LineProgramError("line table: line_range and opcode_base must not be 0")
    counts = tuple(reader.take(opcode_base - 1))
    folders = [""]
    while folder := reader.string():
        folders.append(folder)
    files = [""]
    while name := reader.string():
        files.append(_path(reader, folders, name))
    reader.at = program
    return _Header(stop, minimum, line_base, line_range, counts, files), reader


def _path(reader: _Reader, folders: list[str], name: str) -> str:
    folder = reader.uleb()
    reader.uleb()
    reader.uleb()
    return posixpath.join(folders[folder], name) if folder < len(folders) else name


class _Machine:
    """The line number state machine of DWARF 3, 6.2.2, over one unit."""

    def __init__(
        self,
        header: _Header,
        reader: _Reader,
        symbols: Mapping[int, str],
        strings: bytes,
        rows: list[Row],
    ) -> None:
        self.header = header
        self.reader = reader
        self.symbols = symbols
        self.strings = strings
        self.rows = rows
        self.first_row = len(rows)
        self.function = ""
        self.call: tuple[int, int] | None = None
        self._opcode_base = len(header.operand_counts) + 1
        self._reset()

    def _reset(self) -> None:
        self.address = 0
        self.file = self.line = 1
        self.context: int | None = None
        self.callee = ""

    def run(self) -> None:
        while self.reader.at < self.header.stop:
            self.step()

    def step(self) -> None:
        self.call = None
        opcode, header = self.reader.byte(), self.header
        if opcode >= self._opcode_base:
            advance, delta = divmod(opcode - self._opcode_base, header.line_range)
            self.address += advance * header.minimum_instruction_bytes
            self.line += header.line_base + delta
            self._emit()
        elif opcode == 0:
            self._extended()
        else:
            self._standard(opcode)

    def _standard(self, opcode: int) -> None:
        reader = self.reader
        match opcode:
            case 1:  # DW_LNS_copy
                self._emit()
            case 2:  # DW_LNS_advance_pc
                self.address += reader.uleb() * self.header.minimum_instruction_bytes
            case 3:  # DW_LNS_advance_line
                self.line += reader.sleb()
            case 4:  # DW_LNS_set_file
                self.file = reader.uleb()
            case 8:  # DW_LNS_const_add_pc
                steps = (255 - len(self.header.operand_counts) - 1) // self.header.line_range
                self.address += steps * self.header.minimum_instruction_bytes
            case 9:  # DW_LNS_fixed_advance_pc
                self.address += reader.number(2)
            case _:  # column, statement flags, or unknown: the header says how many operands
                for _ in range(self.header.operand_counts[opcode - 1]):
                    reader.uleb()

    def _extended(self) -> None:
        reader = self.reader
        length = reader.uleb()
        stop = reader.at + length
        opcode = reader.number(1)
        match opcode:
            case 1:  # DW_LNE_end_sequence
                self._emit(end=True)
                self._reset()
            case 2:  # DW_LNE_set_address
                self.function = self.symbols.get(reader.at, "")
                self.address = reader.number(length - 1)
            case 3:  # DW_LNE_define_file
                self.header.files.append(reader.string())
            case 0x90:  # DW_LNE_inlined_call
                context, name = self.call = reader.uleb(), reader.uleb()
                self.context = self.first_row + context - 1 if context else None
                self.callee = self._string(name) if context else ""
        if stop > reader.stop:
            raise LineProgramError(f"line table cut short at byte {reader.at}")
        reader.at = stop

    def _string(self, offset: int) -> str:
        end = self.strings.find(b"\0", offset)
        return self.strings[offset:end].decode(errors="replace") if end >= 0 else ""

    def _emit(self, end: bool = False) -> None:
        if len(self.rows) >= _MAX_ROWS:
            raise LineProgramError(f"line table has more than {_MAX_ROWS} rows")
        files = self.header.files
        file = files[self.file] if 0 < self.file < len(files) else ""
        self.rows.append(
            Row(self.function, self.address, file, self.line, self.context, self.callee, end)
        )


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
        address: the address in the section.
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
        operations: its operations, in order.
        rows: the rows that they make.
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

        The next instruction gets the row that was in force before it, unless it has its own.
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
    """All rows in order of address, each with its index in `rows`, None for an added one."""
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
    """The operations of rows, after the one that sets the address to `start`."""
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
