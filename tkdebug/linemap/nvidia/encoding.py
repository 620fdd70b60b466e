"""Encoding of instructions: when one issues and where it branches to, by its 128 bits.

Source: Z. Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018,
section 2.1: the stall count and the barriers in an instruction's control bits. Later architectures
have the same. Opcodes and branches are read off `nvdisasm -hex` for sm_75 to sm_121a.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

WORDS = struct.Struct("<QQ")
BRANCH, CALL, NOP = 0x947, 0x944, 0x918
BARRIERS = 6
NO_BARRIER = 7
_OPCODE = 0xFFF
_CONTROL_AT, _CONTROL_BITS = 41, 17


@dataclass(frozen=True, slots=True)
class Control:
    """The control bits of an instruction, with the reuse flags left out.

    Attributes:
        bits: of them, the lowest first: stall count, yield, barriers, mask of barriers.
    """

    bits: int

    @property
    def stall_cycles(self) -> int:
        """Cycles until the warp's next instruction may issue."""
        return self.bits & 0xF

    @property
    def write_barrier(self) -> int:
        """The barrier that is signalled when the result is there; 7 for none."""
        return self.bits >> 5 & 7

    @property
    def read_barrier(self) -> int:
        """The barrier that is signalled when the operands have been read; 7 for none."""
        return self.bits >> 8 & 7

    @property
    def waits_for(self) -> tuple[int, ...]:
        """The barriers that have to be signalled before it issues."""
        mask = self.bits >> 11
        return tuple(bit for bit in range(BARRIERS) if mask >> bit & 1)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An instruction's bits."""

    low: int
    high: int

    @property
    def opcode(self) -> int:
        """The number of its name and form."""
        return self.low & _OPCODE

    @property
    def control(self) -> Control:
        """When it issues."""
        return Control(self.high >> _CONTROL_AT & ((1 << _CONTROL_BITS) - 1))

    @property
    def branch_bytes(self) -> int:
        """Distance of a branch or call, from the instruction after it."""
        units = (self.high & 0x3FFFF) << 30 | self.low >> 34
        if units >> 47:
            units -= 1 << 48
        return units << 10 | (self.low >> 16 & 0xFF) << 2

    def target_from(self, address: int) -> int | None:
        """The address that the instruction at `address` jumps to or calls; None for no jump."""
        if self.opcode not in (BRANCH, CALL):
            return None
        return address + WORDS.size + self.branch_bytes


def encoded_at(code: bytes, address: int) -> Encoded | None:
    """The bits of the instruction at a byte offset; None outside of the code."""
    if not 0 <= address <= len(code) - WORDS.size:
        return None
    return Encoded(*WORDS.unpack_from(code, address))
