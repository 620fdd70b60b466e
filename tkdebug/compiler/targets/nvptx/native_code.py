"""A compiled kernel as a record, and its resources in ptxas's log."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tkdebug.linemap.nvidia.ptx_locations import PtxLine

_NOTE = re.compile(r"\((C75\d\d)\)\s*(.*)")
_NEXT_BLOCK = ("Compiling entry function '", "Function properties for '", "bytes gmem")
_NOTE_LINE = re.compile(r"\bline (\d+)")


@dataclass(frozen=True, slots=True)
class PerformanceNote:
    """A note of ptxas that it could not compile a wgmma kernel for full speed.

    Attributes:
        code: the note's code, such as C7510.
        message: the note's text.
        ptx_line: the line it names, None if it names none.
        op_id: the op of that line.
    """

    code: str
    message: str
    ptx_line: int | None = None
    op_id: int | None = None


@dataclass(frozen=True, slots=True)
class NativeCode:
    """A compiled kernel.

    Attributes:
        ptx: the text that was assembled.
        cubin: ELF image.
        registers: 32-bit registers of a thread.
        spill_store_bytes: bytes that a thread stores because registers ran out.
        spill_load_bytes: bytes that a thread loads because registers ran out.
        stack_bytes: local memory of a thread, spills included.
        shared_bytes: static shared memory; the dynamic part is the launch's.
        log: the output of the assembler, ptxas or nvJitLink.
        warnings: lost speed, e.g. serialised wgmma.
        ptx_lines: the op of each instruction line of `ptx`.
        times_ns: the time of each step; empty for a kernel from the cache.
    """

    ptx: str
    cubin: bytes
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int
    log: str
    warnings: tuple[PerformanceNote, ...] = ()
    ptx_lines: tuple[PtxLine, ...] = ()
    times_ns: tuple[tuple[str, int], ...] = ()


def native_code(
    ptx: str,
    cubin: bytes,
    kernel: str,
    log: str,
    ptx_lines: tuple[PtxLine, ...],
    times_ns: tuple[tuple[str, int], ...] = (),
) -> NativeCode:
    """The record of a kernel, its resources read from the log.

    Raises:
        ValueError: the log does not mention the kernel.
    """
    block = _block(log, f"Compiling entry function '{kernel}'")
    linked = _block(log, f"Function properties for '{kernel}'")
    if not block and not linked:
        raise ValueError(f"no entry {kernel} in the assembler's log: {log[:200]}")

    def number(of_ptxas: str, of_linker: str = "") -> int:
        found = re.search(of_ptxas, block)
        if not block and of_linker:
            found = re.search(of_linker, linked)
        return int(found[1]) if found else 0

    return NativeCode(
        ptx=ptx,
        cubin=cubin,
        registers=number(r"Used (\d+) registers", r"used (\d+) registers"),
        spill_store_bytes=number(r"(\d+) bytes spill stores"),
        spill_load_bytes=number(r"(\d+) bytes spill loads"),
        stack_bytes=number(r"(\d+) bytes stack frame", r"(\d+) stack"),
        shared_bytes=number(r"(\d+) bytes smem", r"(\d+) bytes smem"),
        log=log,
        warnings=_notes(log, {line.line: line.op_id for line in ptx_lines}),
        ptx_lines=ptx_lines,
        times_ns=times_ns,
    )


def _block(log: str, title: str) -> str:
    """The lines about one function, "" if there are none; ptxas and the linker write one each.

    Ptxas's can be missing: seen with CUDA 13.0 on a machine with a GPU.
    """
    start = log.find(title)
    if start < 0:
        return ""
    ends = [log.find(next_one, start + len(title)) for next_one in _NEXT_BLOCK]
    return log[start : min((end for end in ends if end > 0), default=len(log))]


def _notes(log: str, ops: dict[int, int | None]) -> tuple[PerformanceNote, ...]:
    notes = []
    for code, message in _NOTE.findall(log):
        place = _NOTE_LINE.search(message)
        line = int(place[1]) if place else None
        notes.append(PerformanceNote(code, message, line, ops.get(line) if line else None))
    return tuple(notes)
