"""Registers of a thread by the elements of a tile that they hold."""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.layouts import REGISTER, LinearLayout, f2
from tkdebug.compiler.targets.nvptx.lowering.types import LoweringError


@dataclass(frozen=True, slots=True)
class Place:
    """A tile in registers: which register holds the element at some coordinates.

    The coordinates are those that the register alone contributes; what lane and warp contribute
    is the same for both operands and the accumulators.
    """

    op: Operation
    layout: LinearLayout
    registers: dict[tuple[int, ...], int]

    @staticmethod
    def of(op: Operation, layout: LinearLayout) -> Place:
        """The place of a tile in `layout`; errors name `op`."""
        registers: dict[tuple[int, ...], int] = {}
        for register, packed in enumerate(f2.spanned(layout.packed_bases(REGISTER))):
            registers.setdefault(tuple(layout.unpack_out(packed).values()), register)
        return Place(op, layout, registers)

    def register(self, batch: tuple[int, ...], row: int, column: int) -> int:
        """The register with these coordinates."""
        found = self.registers.get((*batch, row, column))
        if found is None:
            raise LoweringError.at(
                self.op,
                f"{self.op.name}: no register holds {(*batch, row, column)} of a tile "
                f"{self.layout.shape}",
            )
        return found

    def coordinates(self) -> list[tuple[int, ...]]:
        """The coordinates of each register."""
        return [
            tuple(self.layout.unpack_out(v).values())
            for v in f2.spanned(self.layout.packed_bases(REGISTER))
        ]
