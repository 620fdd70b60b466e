"""Functions that ptxas put inside of a kernel's code, such as its 64-bit division.

Read off cubins of ptxas 12 and 13: each has a symbol of type FUNC in the section of the kernel, and
no rows of its own in the line tables, which read there as if it were of the row before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.errors import Frame

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile


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
    """The one of `functions` that contains `address`."""
    return next((f for f in functions if f.start <= address < f.end), None)
