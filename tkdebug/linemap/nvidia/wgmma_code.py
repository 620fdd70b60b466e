"""Where the wgmma instructions of sm_90 machine code are.

ptxas writes no row into its line tables for HGMMA, IGMMA, QGMMA and BGMMA, whatever `.loc` is in
force (seen with CUDA 12.8 to 13.5). A tool that reads the table by its rules finds the row of the
instruction that was scheduled before. So these instructions are found in the code itself, without
nvdisasm, which may be missing.

Source: opcodes read off `nvdisasm -hex` for each type, and A in registers and in shared memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

ARCHITECTURE = 90
INSTRUCTION = struct.Struct("<QQ")
_OPCODE = 0xFFF
# A in shared memory, A in registers; H, I, B and QGMMA each.
_MULTIPLIES = frozenset((*range(0x9F0, 0x9F4), *range(0xDF0, 0xDF4)))
_WARPGROUP, _WAIT_BIT = 0x9C5, 47  # ARRIVE, or with the bit DEPBAR


def wgmma_instructions(code: bytes) -> Iterator[tuple[int, Literal["fence", "multiply"]]]:
    """Offset and kind of each wgmma fence (WARPGROUP.ARRIVE) and multiplication, in order."""
    whole = len(code) // INSTRUCTION.size * INSTRUCTION.size
    for index, (low, _) in enumerate(INSTRUCTION.iter_unpack(code[:whole])):
        opcode = low & _OPCODE
        if opcode in _MULTIPLIES:
            yield index * INSTRUCTION.size, "multiply"
        elif opcode == _WARPGROUP and not low >> _WAIT_BIT & 1:
            yield index * INSTRUCTION.size, "fence"
