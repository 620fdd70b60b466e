"""Instrumentation: the sectors that warps touch, by line (`tkdebug run --instrument sectors`).

A warp's access is what one warp does of a load or store of a tile. The less of each sector of 32
bytes it uses, the more of them it takes: 32 lanes that load fp32 side by side touch 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess
from tkdebug.compiler.ir import Operation, Value
from tkdebug.runtime.instrumentation.plugin import Instrumentation, SeenOp

SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class Sectors:
    """Of one op in one program.

    Attributes:
        accesses: warps that touched memory.
        elements: that they touched.
        sectors: different ones of each warp, in all.
    """

    accesses: int
    elements: int
    sectors: int


class WarpSectors(Instrumentation):
    """Counts in the first 16 programs along each axis."""

    level = "gpu"
    programs = "0:16,0:16,0:16"
    record = Sectors

    def wants(self, op: Operation) -> bool:
        """What reads or writes global memory."""
        return PointerAccess.matches(op)

    def values(self, op: Operation) -> Sequence[Value]:
        """The addresses, and the mask where there is one."""
        masked = MaskedAccess.cast(op)
        mask = None if masked is None else masked.mask
        pointer = PointerAccess(op).pointer
        return (pointer,) if mask is None else (pointer, mask)

    def measure(self, seen: SeenOp) -> Sectors:
        """The sectors of each warp, without elements that are masked off."""
        addresses, *masks = (value.reshape(-1) for value in seen.values)
        accesses = elements = sectors = 0
        for held in seen.elements_by_warp():
            if masks:
                held = held[masks[0][held] != 0]
            accesses += bool(held.numel())
            elements += held.numel()
            sectors += (addresses[held] // SECTOR_BYTES).unique().numel()
        return Sectors(accesses, elements, sectors)


PLUGIN = WarpSectors()
