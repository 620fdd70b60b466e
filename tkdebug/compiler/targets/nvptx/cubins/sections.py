"""A cubin taken apart and put together again, with more or longer sections.

New sections are put before the tables of headers, which ptxas puts last, and are numbered after the
others: every reference stays. Sections after one that grows move by a
multiple of the largest alignment.
Sources: ELF-64 Object File Format 1.5; relocations as ptxas has them for `.debug_line`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tkdebug.linemap.nvidia.cubins import CubinError
from tkdebug.linemap.nvidia.elf_sections import ET_EXEC, SHT_NOBITS, sections

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_AT, _SECTION_AT, _PROGRAM_COUNT, _SECTION_COUNT, _NAMES = 5, 6, 10, 12, 13
_SECTION = struct.Struct("<IIQQQQIIQQ")
_TYPE, _OFFSET, _SIZE, _SECTION_ALIGNMENT = 1, 4, 5, 8  # fields of a section header
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SEGMENT_OFFSET, _SEGMENT_SIZE = 2, 5  # fields of a program header
_RELA, _REL = struct.Struct("<QQq"), struct.Struct("<QQ")  # REL below sm_90
_SYMBOL = struct.Struct("<IBBHQQ")
_SHT_PROGBITS, _SHT_RELA, _SHF_INFO_LINK = 1, 4, 0x40
_R_CUDA_64 = 2
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class Relocation:
    """The 8 bytes at `at` of a section become the address of `symbol`, and `addend` more."""

    at: int
    symbol: str
    addend: int


class CubinSections:
    """A cubin that is being changed.

    Args:
        cubin: the cubin.

    Raises:
        CubinError: it is stripped, or not laid out as ptxas does it.
        SectionsError: the data is no cubin, or cut short.
    """

    def __init__(self, cubin: bytes) -> None:
        found = list(sections(cubin, ET_EXEC, "cubin"))
        self._header = list(_HEADER.unpack_from(cubin))
        tables = self._header[_SECTION_AT], self._header[_PROGRAM_AT] or len(cubin)
        if any(s.offset + s.size > min(tables) for s in found if s.type != SHT_NOBITS):
            raise CubinError("cubin has contents behind its headers; no section can be added")
        self._body = bytearray(cubin[: min(tables)])
        self._sections = [
            list(_SECTION.unpack_from(cubin, tables[0] + index * _SECTION.size))
            for index in range(len(found))
        ]
        programs = self._header[_PROGRAM_COUNT]
        if programs and tables[1] + programs * _PROGRAM.size > len(cubin):
            raise CubinError("cubin is cut short in its program headers")
        self._programs = [
            list(_PROGRAM.unpack_from(cubin, tables[1] + index * _PROGRAM.size))
            for index in range(programs)
        ]
        self._names = self._data(self._header[_NAMES])
        self._indices = {_text(self._names, s.name): index for index, s in enumerate(found)}
        if ".symtab" not in self._indices:
            raise CubinError("cubin is stripped: it has no symbols; keep the one the compiler made")
        table = self._indices[".symtab"]
        texts = self._data(found[table].link)
        self._symbols = {
            _text(texts, row[0]): number
            for number, row in enumerate(_SYMBOL.iter_unpack(self._data(table)))
        }

    def __contains__(self, name: str) -> bool:
        """Whether there is a section of that name."""
        return name in self._indices

    def data(self, name: str) -> bytes:
        """The contents of the section."""
        return self._data(self._indices[name])

    def relocations(self, name: str) -> list[int]:
        """The offsets in section `name` that are relocated."""
        return [row[0] for _, _, rows in self._relocated(name) for row in rows]

    def replace(self, name: str, data: bytes, relocated: Sequence[int]) -> None:
        """Replace the contents of section `name`; `relocated` are its addresses' new offsets."""
        self._resize(self._indices[name], data)
        for index, layout, rows in self._relocated(name):
            moved = [(at, *row[1:]) for at, row in zip(relocated, rows, strict=True)]
            self._resize(index, b"".join(layout.pack(*row) for row in moved))

    def add(self, name: str, data: bytes, relocations: Sequence[Relocation] = ()) -> None:
        """Add a section that takes no room on the device."""
        index = self._add(name, [_SHT_PROGBITS, 0, 0], data, [0, 0, 1, 0])
        if relocations:
            rows = b"".join(self._relocation(row) for row in relocations)
            links = [self._indices[".symtab"], index, _ALIGNMENT, _RELA.size]
            self._add(f".rela{name}", [_SHT_RELA, _SHF_INFO_LINK, 0], rows, links)

    def written(self) -> bytes:
        """Return the changed cubin."""
        self._resize(self._header[_NAMES], self._names)
        header, moved_from = list(self._header), self._header[_PROGRAM_AT]
        body = bytearray(self._body)
        header[_SECTION_COUNT] = len(self._sections)
        header[_SECTION_AT] = _put(body, b"".join(_SECTION.pack(*row) for row in self._sections))
        header[_PROGRAM_AT] = _aligned(len(body), _ALIGNMENT) if self._programs else 0
        for row in self._programs:
            offset = (
                header[_PROGRAM_AT] if row[_SEGMENT_OFFSET] == moved_from else row[_SEGMENT_OFFSET]
            )
            _put(body, _PROGRAM.pack(*row[:_SEGMENT_OFFSET], offset, *row[_SEGMENT_OFFSET + 1 :]))
        body[: _HEADER.size] = _HEADER.pack(*header)
        return bytes(body)

    def _add(self, name: str, kind: list[int], data: bytes, rest: list[int]) -> int:
        index = self._indices[name] = len(self._sections)
        self._sections.append([len(self._names), *kind, _put(self._body, data), len(data), *rest])
        self._names += name.encode() + b"\0"
        return index

    def _relocated(self, name: str) -> Iterator[tuple[int, struct.Struct, list[tuple[int, ...]]]]:
        """Yield index, layout and rows of the section that relocates section `name`, if any."""
        for prefix, layout in ((".rela", _RELA), (".rel", _REL)):
            if (index := self._indices.get(prefix + name)) is not None:
                yield index, layout, [*layout.iter_unpack(self._data(index))]
                return

    def _relocation(self, row: Relocation) -> bytes:
        if row.symbol not in self._symbols:
            raise CubinError(f"cubin has no symbol {row.symbol}")
        return _RELA.pack(row.at, self._symbols[row.symbol] << 32 | _R_CUDA_64, row.addend)

    def _data(self, index: int) -> bytes:
        offset, size = self._sections[index][_OFFSET], self._sections[index][_SIZE]
        return bytes(self._body[offset : offset + size])

    def _resize(self, index: int, data: bytes) -> None:
        section = self._sections[index]
        start, end = section[_OFFSET], section[_OFFSET] + section[_SIZE]
        for row in self._programs:
            if row[_SEGMENT_OFFSET] < end < row[_SEGMENT_OFFSET] + row[_SEGMENT_SIZE]:
                raise CubinError("cubin loads what describes it; its sections cannot be changed")
        filled = (row for row in self._sections if row[_TYPE] != SHT_NOBITS)
        alignment = max(_ALIGNMENT, *(row[_SECTION_ALIGNMENT] for row in filled))
        shift = _aligned(max(0, len(data) - section[_SIZE]), alignment)
        self._body[start:end] = data + bytes(end - start + shift - len(data))
        for row in self._sections:
            if row is not section and row[_OFFSET] >= end:
                row[_OFFSET] += shift
        for row in self._programs:
            if row[_SEGMENT_OFFSET] >= end:
                row[_SEGMENT_OFFSET] += shift
        if self._header[_PROGRAM_AT] >= end:
            self._header[_PROGRAM_AT] += shift
        section[_SIZE] = len(data)


def _put(body: bytearray, data: bytes) -> int:
    """Append aligned data, and return its offset."""
    body += bytes(_aligned(len(body), _ALIGNMENT) - len(body)) + data
    return len(body) - len(data)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode(errors="replace")
