"""Line programs of cubins: `.debug_line` and `.nv_debug_line_sass`, decoded.

ptxas writes both as DWARF 3 line programs without a compile unit, so pyelftools' usual way in (by
unit) does not reach them; and `.debug_line` carries NVIDIA's extended opcode for inlined calls.
Sources: DWARF 3, 6.2 "Line Number Information"; DW_LNE_inlined_call as the two-level line table
proposal has it (context row, function name), numbered 0x90 by NVIDIA and read off real cubins.
Invariant: bytes out of bounds raise `LineProgramError`; the data may be of anybody's making.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tkdebug.errors import TkError

_MAX_ROWS = 4_000_000


class LineProgramError(TkError):
    """A line table cannot be read: truncated, or of an unknown form."""


class Row(NamedTuple):
    """One row of a line table.

    Attributes:
        function: symbol whose address the sequence begins at, "" when it names none.
        address: byte offset in that function.
        file: path as the table gives it, "" for file number 0.
        line: 1-based; 0 where the table says so.
        context: index into the rows of the call this row's code was inlined at, None for none.
        callee: name of the inlined function, "" where `context` is None.
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
        symbols: offset in it of each relocated address -> name of the symbol there.
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
        stop: offset behind its last byte.
        row: that it makes, without the names of functions; None if it makes none.
        call: the operands of DW_LNE_inlined_call as they stand there, None for another operation.
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
