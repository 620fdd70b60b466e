"""PTX lines of wgmma instructions, for which ptxas writes no rows into its line tables.

Seen with CUDA 13.5: whatever `.loc` stands before a `wgmma.mma_async`, its SASS (HGMMA and kin) has
no row of its own, so who reads the table finds the row of whatever was scheduled before it.
WARPGROUP.ARRIVE, which `wgmma.fence` becomes, does have one, and no wgmma moves over it. Each of
our blocks begins with a fence, so the fence before a wgmma tells its block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.linemap.cubins import FunctionLines
from tkdebug.linemap.sass import SassInstruction, opcode

_FENCE, _MULTIPLY = "wgmma.fence", "wgmma.mma_async"


def wgmma_ptx_lines(
    code: Sequence[SassInstruction], lines: FunctionLines, ptx: str
) -> dict[int, int | None]:
    """PTX line of each wgmma instruction, by address.

    It is the line of the fence where the block's instructions cannot be told apart, None where no
    fence stands before.
    """
    texts = ptx.splitlines()
    found: dict[int, int | None] = {}
    block: list[int] = []
    fence: int | None = None
    for item in (*code, SassInstruction(-1, "WARPGROUP.ARRIVE")):
        if "WARPGROUP.ARRIVE" in item.text:
            found.update(_lines_of_block(block, fence, texts))
            block, fence = [], lines.ptx_line_at(item.address) if item.address >= 0 else None
        elif opcode(item.text).endswith("GMMA"):
            block.append(item.address)
    return found


def _lines_of_block(
    block: Sequence[int], fence: int | None, texts: Sequence[str]
) -> Mapping[int, int | None]:
    if fence is None or not 0 < fence <= len(texts) or _FENCE not in texts[fence - 1]:
        return dict.fromkeys(block)
    lines = []
    for number in range(fence + 1, len(texts) + 1):
        text = texts[number - 1].strip()
        if not text.startswith((_MULTIPLY, ".loc")):
            break
        if text.startswith(_MULTIPLY):
            lines.append(number)
    if len(lines) != len(block):
        return dict.fromkeys(block, fence)
    return dict(zip(block, lines, strict=True))
