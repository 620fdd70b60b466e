"""A kernel's resources of a multiprocessor, as records that sessions keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident blocks of a kernel.

    Attributes:
        blocks: blocks of a multiprocessor; 0 if not even one fits.
        warps: the warps of a multiprocessor.
        max_warps: the most warps that it could hold.
        limits: resource -> blocks that it would allow: "registers", "shared memory", "warps",
            "blocks".
        limited_by: the resources that allow no more than `blocks`.
    """

    blocks: int
    warps: int
    max_warps: int
    limits: Mapping[str, int]
    limited_by: tuple[str, ...]

    @property
    def percent(self) -> float:
        """The share of resident warps among those possible."""
        return 100 * self.warps / self.max_warps


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one kernel.

    Attributes:
        registers: 32-bit registers of a thread.
        threads: the threads of a block; None if the cubin does not fix them.
        static_shared_bytes: static shared memory of a block.
        dynamic_shared_bytes: dynamic shared memory of a block; None if only the launch knows it.
        stack_bytes: local memory of a thread, spills included.
        spill_store_bytes: spills of a thread; None if only the assembler's log has them.
        spill_load_bytes: the same for loads.
        occupancy: None if the target's limits or the block's size are not known.
    """

    registers: int
    threads: int | None
    static_shared_bytes: int
    dynamic_shared_bytes: int | None
    stack_bytes: int
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    occupancy: Occupancy | None

    @property
    def may_spill(self) -> bool:
        """Whether local-memory traffic may come from spills, by the assembler's log."""
        if self.spill_store_bytes is None:
            return True
        return bool(self.spill_store_bytes or self.spill_load_bytes)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, as far as known."""
        return self.static_shared_bytes + (self.dynamic_shared_bytes or 0)
