"""The places of a kernel that answer a question of `tkdebug lines`, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tkdebug.cli.line_answers.kernel_lines import KernelLines
from tkdebug.cli.line_answers.query import LinesQuery
from tkdebug.errors import UsageError
from tkdebug.linemap.line_table import Trace

_ADDRESS = re.compile(r"(?:0x)?([0-9a-fA-F]{1,8})")


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
        raise UsageError(f"--line {place}: expected a line number, or file.py:number")
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


def not_found(kernels: Sequence[KernelLines], query: LinesQuery) -> str:
    """What to say where no kernel has the place asked for."""
    names = ", ".join(dict.fromkeys(kernel.name for kernel in kernels))
    if query.line is not None:
        first = kernels[0]
        own = [line for file, line in first.table.lines() if file == first.file or not first.file]
        there = ", ".join(map(str, own[:40])) + (", …" if len(own) > 40 else "")
        return (
            f"--line {query.line}: no instruction and no op of {names} is of that line; "
            f"{first.name} has lines {there}"
        )
    if query.ptx is not None:
        return f"--ptx {query.ptx}: no instruction of {names} is on that line of the PTX"
    last = max(
        (k.table.instructions[-1].address for k in kernels if k.table.instructions), default=0
    )
    return f"--sass {query.sass}: {names} has code from 0x0 to 0x{last:x} only"
