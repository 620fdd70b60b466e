"""PTX lines of wgmma instructions, which ptxas does not tell.

WARPGROUP.ARRIVE, which `wgmma.fence` becomes, has a row in ptxas's tables, and no wgmma moves over
it; between two of them they stay in order. So a fence's row shows where in the PTX its wgmma are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.linemap.nvidia.cubins import FunctionLines
from tkdebug.linemap.nvidia.wgmma_code import wgmma_instructions

_FENCE, _MULTIPLY = "wgmma.fence", "wgmma.mma_async"


def wgmma_ptx_lines(code: bytes, lines: FunctionLines, ptx: Sequence[str]) -> dict[int, int]:
    """PTX line (1-based) of each wgmma instruction for which it is known, by address.

    Args:
        code: the function's machine code.
        lines: what its tables say.
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
    """The wgmma of the PTX up to the next fence, where there are as many of them."""
    if fence is None or not 0 < fence <= len(ptx) or _FENCE not in ptx[fence - 1]:
        return {}
    lines = []
    for number in range(fence + 1, len(ptx) + 1):
        text = ptx[number - 1]
        if _FENCE in text:
            break
        if text.lstrip().startswith(_MULTIPLY):
            lines.append(number)
    return dict(zip(block, lines, strict=True)) if len(lines) == len(block) else {}
