"""Rows of a line table put so that cuda-gdb shows the innermost function's line.

Where inlined functions are nested, ptxas writes a row for each call on the way to an instruction,
all at its address, outermost first. cuda-gdb (13.0, `find_pc_sect_line`) goes back from the last
one as long as the row before it is of an inlined function too, and so shows the outermost of them.
A row of no inlined function before the last one ends that walk. It covers no instruction: a tool
that takes the last row of an address, as nvdisasm does, sees no difference.
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.linemap.nvidia.line_program_rows import inlined_call
from tkdebug.linemap.nvidia.line_programs import LineProgramError, Row, Step, steps

_LENGTH_BYTES = 4
_COPY = b"\x01"  # DW_LNS_copy
_NO_CALL = (0, 0)


def separate_inlined_rows(lines: bytes, relocated: Sequence[int]) -> tuple[bytes, tuple[int, ...]]:
    """The table with such rows; one of several functions as it is.

    Args:
        lines: `.debug_line`, one program.
        relocated: offsets in it of addresses that are relocated.

    Returns:
        The table, and the offsets of those addresses in it.

    Raises:
        LineProgramError: it is cut short, not one program, or names a row that does not exist.
    """
    operations = tuple(steps(lines))
    rows = [step.row for step in operations if step.row is not None]
    wanted = _ends_of_walks(rows)
    if not wanted or sum(row.end for row in rows) != 1:
        return lines, tuple(relocated)
    writer = _Writer(lines, wanted)
    for step in operations:
        writer.step(step)
    return writer.finished(), tuple(at + writer.shift_at(at) for at in relocated)


class _Writer:
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
        """Copy an operation, and add a row behind it where one is wanted."""
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
        """How far the old table's byte `at` moved."""
        return next((shift for start, shift in reversed(self.shifts) if start <= at), 0)

    def finished(self) -> bytes:
        """The table, its length in its first bytes."""
        length = len(self.program) - _LENGTH_BYTES
        self.program[:_LENGTH_BYTES] = length.to_bytes(_LENGTH_BYTES, "little")
        return bytes(self.program)


def _ends_of_walks(rows: Sequence[Row]) -> frozenset[int]:
    """Numbers of the inlined rows before an address's last row, where that is inlined, too."""
    wanted = set()
    for number, row in enumerate(rows[:-1], 1):
        last = rows[number]
        is_last = number + 1 == len(rows) or rows[number + 1].address != last.address
        if row.address == last.address and is_last and not last.end:
            if row.context is not None and last.context is not None:
                wanted.add(number)
    return frozenset(wanted)
