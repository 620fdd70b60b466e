"""Debug information of a cubin: compile units that say which function is inlined where.

With `-lineinfo` ptxas writes a line table and no unit. cuda-gdb then shows lines and one frame;
with units it shows a frame for each inlined function, breaks on them by name, and leaves them.
Their contents are read off the cubin's own line table, instruction by instruction, so they hold for
optimised code. They name functions, no variables: where a value lies is not known.

Off unless asked for: compute-sanitizer (2025.3) prints no error in a kernel with units, and ncu
counts the first instruction of a nested call twice for the call's line.

Rows of the line table are put so that cuda-gdb shows the innermost function's line. Where inlined
functions are nested, ptxas writes a row for each call on the way to an instruction, all at its
address, outermost first. cuda-gdb (13.0, `find_pc_sect_line`) goes back from the last one as long
as the row before it is of an inlined function too, and so shows the outermost of them. A row of no
inlined function before the last one ends that walk. It covers no instruction: a tool that takes the
last row of an address, as nvdisasm does, sees no difference.

Sources: DWARF 3, 2.17 (ranges), 3.3.8 (inlined calls), 7.5 (forms); relocations as of nvcc -G.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tkdebug import __version__
from tkdebug.compiler.targets.nvptx.cubins.sections import CubinSections, Relocation
from tkdebug.errors import Frame
from tkdebug.linemap.nvidia.cubins import FunctionLines, read_line_info
from tkdebug.linemap.nvidia.line_programs import (
    LineProgramError,
    Row,
    Step,
    file_numbers,
    inlined_call,
    steps,
)

_LENGTH_BYTES = 4
_COPY = b"\x01"  # DW_LNS_copy
_NO_CALL = (0, 0)


def separate_inlined_rows(lines: bytes, relocated: Sequence[int]) -> tuple[bytes, tuple[int, ...]]:
    """Return a line table with rows that separate inlined functions.

    A table of several functions is returned unchanged.

    Args:
        lines: `.debug_line`, one program.
        relocated: offsets in it of addresses that are relocated.

    Returns:
        The table, and the offsets of those addresses in it.

    Raises:
        LineProgramError: the table is cut short, not one program, or names a row that does not
            exist.
    """
    operations = tuple(steps(lines))
    rows = [step.row for step in operations if step.row is not None]
    wanted = _ends_of_walks(rows)
    if not wanted or sum(row.end for row in rows) != 1:
        return lines, tuple(relocated)
    writer = _RowWriter(lines, wanted)
    for step in operations:
        writer.step(step)
    return writer.finished(), tuple(at + writer.shift_at(at) for at in relocated)


class _RowWriter:
    """The new table, as it is written; rows count from 1, 0 is no row."""

    def __init__(self, lines: bytes, wanted: frozenset[int]) -> None:
        self.lines = lines
        self.wanted = wanted
        self.program = bytearray()
        self.shifts: list[tuple[int, int]] = []
        self.numbers = [0]  # of each row of the old table
        self.rows = 0
        self.call = self.written = _NO_CALL

    def step(self, step: Step) -> None:
        """Copy an operation, with a row after it if one is wanted."""
        if not self.shifts:
            self.program += self.lines[: step.start]
        if step.call is not None:
            context, name = step.call
            if context >= len(self.numbers):
                raise LineProgramError(f"line table: a call at row {context}, which does not exist")
            self.call = self.numbers[context], name
            return
        if step.row is not None:
            self._put_call(self.call)
        self.shifts.append((step.start, len(self.program) - step.start))
        self.program += self.lines[step.start : step.stop]
        if step.row is not None:
            self.rows += 1
            self.numbers.append(self.rows)
            if len(self.numbers) - 1 in self.wanted:
                self._put_call(_NO_CALL)
                self.program += _COPY
                self.rows += 1

    def _put_call(self, call: tuple[int, int]) -> None:
        if call != self.written:
            self.program += inlined_call(*call)
            self.written = call

    def shift_at(self, at: int) -> int:
        """The distance that the old table's byte `at` moved by."""
        return next((shift for start, shift in reversed(self.shifts) if start <= at), 0)

    def finished(self) -> bytes:
        """Return the table, with its length in its first bytes."""
        length = len(self.program) - _LENGTH_BYTES
        self.program[:_LENGTH_BYTES] = length.to_bytes(_LENGTH_BYTES, "little")
        return bytes(self.program)


def _ends_of_walks(rows: Sequence[Row]) -> frozenset[int]:
    """Numbers of the inlined rows right before an address's last row, if that is inlined, too."""
    wanted = set()
    for number, row in enumerate(rows[:-1], 1):
        last = rows[number]
        is_last = number + 1 == len(rows) or rows[number + 1].address != last.address
        if row.address == last.address and is_last and not last.end:
            if row.context is not None and last.context is not None:
                wanted.add(number)
    return frozenset(wanted)


_DWARF_VERSION = 3
_ADDRESS_BYTES = 8
_LANGUAGE_PYTHON = 0x14  # DW_LANG_Python
_UNIT, _FUNCTION, _INLINED_FUNCTION, _CALL = 1, 2, 3, 4
_CHILDREN, _NO_CHILDREN = 1, 0
# Attribute, form, by their numbers in DWARF 3, figures 20 and 21.
_NAME, _PRODUCER, _LANGUAGE = (0x03, 0x08), (0x25, 0x08), (0x13, 0x0B)
_STATEMENTS, _FROM, _TO = (0x10, 0x06), (0x11, 0x01), (0x12, 0x01)
_EXTERNAL, _INLINE, _ORIGIN = (0x3F, 0x0C), (0x20, 0x0B), (0x31, 0x13)
_RANGES, _CALL_FILE, _CALL_LINE = (0x55, 0x06), (0x58, 0x06), (0x59, 0x06)
_ENTRIES = {
    _UNIT: (0x11, _CHILDREN, (_PRODUCER, _LANGUAGE, _NAME, _STATEMENTS, _FROM, _TO)),
    _FUNCTION: (0x2E, _CHILDREN, (_NAME, _EXTERNAL, _FROM, _TO)),
    _INLINED_FUNCTION: (0x2E, _NO_CHILDREN, (_NAME, _INLINE)),
    _CALL: (0x1D, _CHILDREN, (_ORIGIN, _RANGES, _CALL_FILE, _CALL_LINE)),
}
_INLINED = 1  # DW_INL_inlined


@dataclass(slots=True)
class _Call:
    """A function inlined at a line of its caller: the ranges of its code, and nested calls."""

    callee: str
    file: str
    line: int
    ranges: list[tuple[int, int]] = field(default_factory=list)
    calls: dict[tuple[str, str, int], _Call] = field(default_factory=dict)

    def add(self, chain: tuple[Frame, ...], start: int, stop: int) -> None:
        """Add code of the innermost function of `chain`, whose first frame is in this function."""
        if self.ranges and self.ranges[-1][1] == start:
            self.ranges[-1] = self.ranges[-1][0], stop
        else:
            self.ranges.append((start, stop))
        if len(chain) > 1:
            key = chain[1].function, chain[0].file, chain[0].line
            self.calls.setdefault(key, _Call(*key)).add(chain[1:], start, stop)


def with_debug_info(cubin: bytes) -> bytes:
    """The cubin with a compile unit for each function, and with separated rows in its line table.

    A cubin without a line table, or with compile units of its own, is returned unchanged.

    Raises:
        CubinError: not a cubin, damaged, or not laid out as ptxas does it.
        LineProgramError: the line table is damaged, or not one program.
    """
    sections = CubinSections(cubin)
    if ".debug_line" not in sections or ".debug_info" in sections:
        return cubin
    lines = sections.data(".debug_line")
    units = debug_sections(read_line_info(cubin), file_numbers(lines))
    sections.replace(
        ".debug_line", *separate_inlined_rows(lines, sections.relocations(".debug_line"))
    )
    for name, (data, relocations) in units.items():
        sections.add(name, data, relocations)
    return sections.written()


def debug_sections(
    functions: Mapping[str, FunctionLines], files: Mapping[str, int]
) -> dict[str, tuple[bytes, tuple[Relocation, ...]]]:
    """Contents of `.debug_abbrev`, `.debug_info` and `.debug_ranges`, and their relocations.

    Args:
        functions: the lines of each function; addresses are offsets in the function.
        files: path -> number of the file in the line table.
    """
    writer = _UnitWriter(files)
    for function in functions.values():
        if any(chain for _, chain in function.source):
            writer.unit(function)
    return {
        ".debug_abbrev": (_abbreviations(), ()),
        ".debug_info": (bytes(writer.info), tuple(writer.relocations)),
        ".debug_ranges": (bytes(writer.ranges), ()),
    }


class _UnitWriter:
    """Units and ranges, as they are written."""

    def __init__(self, files: Mapping[str, int]) -> None:
        self.files = files
        self.info = bytearray()
        self.ranges = bytearray()
        self.relocations: list[Relocation] = []

    def unit(self, function: FunctionLines) -> None:
        """Add a unit for one function: ranges are then offsets in the function, not relocated."""
        root = _calls_of(function)
        start = len(self.info)
        self.info += struct.pack("<IHIB", 0, _DWARF_VERSION, 0, _ADDRESS_BYTES)
        self.info += bytes([_UNIT]) + _string(f"tkdebug {__version__}") + bytes([_LANGUAGE_PYTHON])
        self.info += _string(root.file) + struct.pack("<I", 0)
        self._addresses(function)
        origins = {}
        for name in dict.fromkeys(_callees(root)):
            origins[name] = len(self.info) - start
            self.info += bytes([_INLINED_FUNCTION]) + _string(name) + bytes([_INLINED])
        self.info += bytes([_FUNCTION]) + _string(function.name) + bytes([True])
        self._addresses(function)
        self._calls(root.calls.values(), origins)
        self.info += bytes([0])
        struct.pack_into("<I", self.info, start, len(self.info) - start - 4)

    def _addresses(self, function: FunctionLines) -> None:
        for offset in (0, function.size_bytes):
            self.relocations.append(Relocation(len(self.info), function.name, offset))
            self.info += offset.to_bytes(_ADDRESS_BYTES, "little")

    def _calls(self, calls: Iterable[_Call], origins: Mapping[str, int]) -> None:
        for call in calls:
            self.info += bytes([_CALL]) + struct.pack(
                "<4I", origins[call.callee], len(self.ranges), self.files[call.file], call.line
            )
            for start, stop in (*call.ranges, (0, 0)):
                self.ranges += struct.pack("<QQ", start, stop)
            self._calls(call.calls.values(), origins)
        self.info += bytes([0])


def _calls_of(function: FunctionLines) -> _Call:
    rows = [(at, chain) for at, chain in function.source if chain]
    root = _Call(function.name, rows[0][1][0].file, rows[0][1][0].line)
    ends = [at for at, _ in function.source[1:]] + [function.size_bytes]
    for (start, chain), stop in zip(function.source, ends, strict=True):
        if chain and start < stop:
            root.add(chain, start, stop)
    return root


def _callees(call: _Call) -> Iterable[str]:
    for inner in call.calls.values():
        yield inner.callee
        yield from _callees(inner)


def _string(text: str) -> bytes:
    return text.encode(errors="surrogateescape").replace(b"\0", b"") + b"\0"


def _abbreviations() -> bytes:
    data = bytearray()
    for code, (tag, children, attributes) in _ENTRIES.items():
        data += bytes([code, tag, children])
        for pair in (*attributes, (0, 0)):
            data += bytes(pair)
    return bytes(data) + b"\0"
