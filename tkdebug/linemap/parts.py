"""The parts of a line table: origins of ops, functions inside of the code, resources of the kernel.

Functions are those that ptxas put inside of a kernel's code, such as its 64-bit division. Read off
cubins of ptxas 12 and 13: each has a symbol of type FUNC in the section of the kernel, and no rows
of its own in the line tables, which read there as if it were of the row before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.errors import Frame

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

Frames = tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class OpPlace:
    """One op of a kernel.

    Attributes:
        id: unique in the kernel, the same in all stages.
        tile_name: its name, such as tt.load, in the Tile IR after its passes; None if it is not
            there.
        gpu_name: its name in the GPU IR that was lowered, None if it is not there; passes may
            rename an op and keep its id.
        chains: its source places, each a call chain, outermost first; the first is the one shown,
            the others came by fusion (common subexpressions and the like).
        column: 1-based, of the first place; 0 when unknown.
        origins: ids of the Tile IR ops that it came from; its own if it is one of them.
        tile_chains: its places in Tile IR, if GPU passes have changed them; () otherwise.
    """

    id: int
    tile_name: str | None
    gpu_name: str | None
    chains: tuple[Frames, ...]
    column: int = 0
    origins: tuple[int, ...] = ()
    tile_chains: tuple[Frames, ...] = ()

    @property
    def name(self) -> str:
        """The op's name in GPU IR, else in Tile IR; "" if it is in neither."""
        return self.gpu_name or self.tile_name or ""

    def is_on(self, file: str, line: int) -> bool:
        """Whether one of its places, or a call on the way there, is on that line."""
        chains = (*self.chains, *self.tile_chains)
        return any(f.line == line and f.file == file for chain in chains for f in chain)


@dataclass(frozen=True, slots=True)
class LocalFunction:
    """A function inside of another one's code.

    Attributes:
        name: its symbol, `$__internal_0_$__cuda_sm20_div_s64` and the like.
        start: address of its first byte, as the line tables count.
        end: address after its last byte.
        callers: call chains of the instructions that call it, outermost first; empty if they are
            not known.
    """

    name: str
    start: int
    end: int
    callers: tuple[tuple[Frame, ...], ...] = ()

    @property
    def readable_name(self) -> str:
        """`__cuda_sm20_div_s64`: the symbol without the part that makes it unique in the cubin."""
        return self.name.rpartition("$")[2]


def local_functions(elf: ELFFile) -> dict[int, tuple[LocalFunction, ...]]:
    """Index of a section of code -> the local functions in it, by address from its start."""
    from elftools.elf.sections import SymbolTableSection

    symbols = elf.get_section_by_name(".symtab")
    if not isinstance(symbols, SymbolTableSection):
        return {}
    found: dict[int, list[LocalFunction]] = {}
    for symbol in symbols.iter_symbols():
        section = symbol["st_shndx"]
        if symbol["st_info"]["type"] != "STT_FUNC" or not isinstance(section, int):
            continue
        text = elf.get_section(section)
        if text.name == f".text.{symbol.name}":
            continue
        base = int(text["sh_addr"])  # of an image that was loaded; 0 in a file
        start = int(symbol["st_value"])
        start -= base if start >= base else 0
        found.setdefault(section, []).append(
            LocalFunction(symbol.name, start, start + int(symbol["st_size"]))
        )
    return {
        section: tuple(sorted(functions, key=lambda function: function.start))
        for section, functions in found.items()
    }


def holding(functions: tuple[LocalFunction, ...], address: int) -> LocalFunction | None:
    """The one of `functions` that contains `address`, or None."""
    return next((f for f in functions if f.start <= address < f.end), None)


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
        spill_store_bytes: stores of spills, of a thread; None if only the assembler's log has them.
        spill_load_bytes: loads of spills, of a thread; None as for stores.
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
