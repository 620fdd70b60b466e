"""What `tkdebug lines` is asked, and the places of a kernel that answer it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.errors import UsageError
from tkdebug.linemap.line_table import Trace

if TYPE_CHECKING:
    # Reads sessions, which the command line's parser has no use for.
    from tkdebug.cli.kernel_lines import KernelLines

_ADDRESS = re.compile(r"(?:0x)?([0-9a-fA-F]{1,8})")


@dataclass(frozen=True, slots=True)
class LinesQuery:
    """One question; with none of the three places, all source lines are shown.

    Attributes:
        kernel: a pattern of names, or the beginning of a hash.
        line: `N`, a line of the kernel's file, or `FILE:N` with the end of a path.
        ptx: a line (1-based) of the PTX.
        sass: an address in hexadecimal, as nvdisasm prints it.
    """

    kernel: str | None = None
    line: str | None = None
    ptx: int | None = None
    sass: str | None = None

    @property
    def is_place(self) -> bool:
        """Whether one place is asked for."""
        return self.line is not None or self.ptx is not None or self.sass is not None


def answer(kernel: KernelLines, query: LinesQuery) -> Trace:
    """What belongs to the place that is asked for; an empty trace where there is nothing.

    Raises:
        UsageError: the place is no line or address.
    """
    if query.line is not None:
        return _of_line(kernel, query.line)
    if query.ptx is not None:
        return kernel.table.of_ptx_line(query.ptx)
    found = _ADDRESS.fullmatch(query.sass or "")
    if not found:
        raise UsageError(f"--sass {query.sass}: expected a hexadecimal address such as 0x1f0")
    return kernel.table.of_address(int(found[1], 16))


def place_text(query: LinesQuery) -> str:
    """The place, as it was asked for."""
    if query.line is not None:
        return f"line {query.line}"
    return f"PTX line {query.ptx}" if query.ptx is not None else f"SASS address {query.sass}"


def _of_line(kernel: KernelLines, place: str) -> Trace:
    name, _, number = place.rpartition(":")
    if not number.isdecimal():
        raise UsageError(f"--line {place}: expected N or FILE:N")
    line = int(number)
    files = _files(kernel, name)
    traces = [kernel.table.of_line(file, line) for file in files]
    return next((trace for trace in traces if trace.found), Trace())


def _files(kernel: KernelLines, name: str) -> list[str]:
    files = list(dict.fromkeys(file for file, _ in kernel.table.lines()))
    if name:
        return [file for file in files if file == name or file.endswith(f"/{name}")]
    # The kernel's own file; a cubin does not say which of several it is.
    return [kernel.file] if kernel.file else files
