"""Rows for wgmma instructions in a cubin's line tables, into which ptxas writes none.

With them nvdisasm, ncu and cuda-gdb show the dot's line at HGMMA, too. Each wgmma instruction gets
a row, and the instruction after it the row that was in force before, unless it has its own.
Nothing else changes: neither the code, nor any other instruction's row.

The source row is a copy of a row that ptxas wrote for an instruction under the same `.loc`, so
file, line and chain of calls are ptxas's own. A wgmma without such an instruction gets no row.

PTX lines of wgmma instructions are found by the fences. WARPGROUP.ARRIVE, which `wgmma.fence`
becomes, has a row in ptxas's tables, and no wgmma moves over it; between two of them they stay in
order. So a fence's row shows where in the PTX its wgmma are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tkdebug.compiler.targets.nvptx.cubins.sections import CubinSections
from tkdebug.linemap.nvidia.cubins import FunctionLines, read_line_info, wgmma_instructions
from tkdebug.linemap.nvidia.line_programs import LineProgram, ProgramRow

_SOURCE, _PTX = ".debug_line", ".nv_debug_line_sass"
_LOC = re.compile(r"\s*\.loc\s+(.*\S)")


def with_wgmma_rows(cubin: bytes, ptx: str) -> bytes:
    """The cubin with rows for the wgmma instructions that can be placed.

    A cubin without wgmma instructions, without line tables, or of several functions is returned
    unchanged.

    Args:
        cubin: ptxas's output.
        ptx: the text that it was assembled from.

    Raises:
        CubinError: not a cubin, damaged, or not laid out as ptxas does it.
        LineProgramError: a line table is damaged, or not one program.
    """
    if "wgmma.mma_async" not in ptx:
        return cubin
    sections = CubinSections(cubin)
    if _SOURCE not in sections or _PTX not in sections:
        return cubin
    functions = read_line_info(cubin)
    if len(functions) != 1:
        return cubin
    ((name, lines),) = functions.items()
    texts = ptx.splitlines()
    wanted = wgmma_ptx_lines(sections.data(f".text.{name}"), lines, texts)
    source, by_ptx = (LineProgram.of(sections.data(section)) for section in (_SOURCE, _PTX))
    if not by_ptx.rows:
        return cubin
    shape = by_ptx.rows[0]
    added = {
        _SOURCE: source.with_rows(_copied_rows(source.rows, lines, wanted, texts)),
        _PTX: by_ptx.with_rows({at: shape._replace(line=line) for at, line in wanted.items()}),
    }
    for section, data in added.items():
        sections.replace(section, data, sections.relocations(section))
    return sections.written()


def _copied_rows(
    rows: Sequence[ProgramRow],
    lines: FunctionLines,
    wanted: Mapping[int, int],
    ptx: Sequence[str],
) -> dict[int, ProgramRow]:
    """Return a row of the same `.loc` for each address of `wanted` (address -> PTX line)."""
    locations = list(_locations(ptx))
    ptx_line = dict(lines.ptx)
    models: dict[str, list[ProgramRow]] = {}
    for row, behind in pairwise(rows):
        # The last row of an address is the innermost call's, and surely of that address's line.
        line = ptx_line.get(row.address, 0)
        if row.address != behind.address and 0 < line <= len(locations):
            models.setdefault(locations[line - 1], []).append(row)
    found = {}
    for address, line in wanted.items():
        for row in models.get(locations[line - 1], ()):
            # The row of the call must stand before the rows that name it.
            if row.call is None or rows[row.call].address <= address:
                found[address] = row
                break
    return found


def _locations(ptx: Sequence[str]) -> Iterator[str]:
    """Yield the `.loc` in force at each line of the PTX."""
    current = ""
    for text in ptx:
        if directive := _LOC.match(text):
            current = directive[1]
        yield current


_PTX_FENCE, _MULTIPLY = "wgmma.fence", "wgmma.mma_async"


def wgmma_ptx_lines(code: bytes, lines: FunctionLines, ptx: Sequence[str]) -> dict[int, int]:
    """PTX line (1-based) of each wgmma instruction for which it is known, by address.

    Args:
        code: the function's machine code.
        lines: the cubin's line tables.
        ptx: the lines of the PTX text.
    """
    found: dict[int, int] = {}
    block: list[int] = []
    fence: int | None = None
    for address, kind in wgmma_instructions(code):
        if kind == "multiply":
            block.append(address)
            continue
        found.update(_lines_of_block(block, fence, ptx))
        block, fence = [], lines.ptx_line_at(address)
    found.update(_lines_of_block(block, fence, ptx))
    return found


def _lines_of_block(
    block: Sequence[int], fence: int | None, ptx: Sequence[str]
) -> Mapping[int, int]:
    """Map a block's addresses to PTX lines; {} if the fence is unknown or the counts differ."""
    if fence is None or not 0 < fence <= len(ptx) or _PTX_FENCE not in ptx[fence - 1]:
        return {}
    lines = []
    for number in range(fence + 1, len(ptx) + 1):
        text = ptx[number - 1]
        if _PTX_FENCE in text:
            break
        if text.lstrip().startswith(_MULTIPLY):
            lines.append(number)
    return dict(zip(block, lines, strict=True)) if len(lines) == len(block) else {}
