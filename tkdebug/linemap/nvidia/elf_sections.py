"""Section headers of the ELF files that CUDA makes: cubins, loaded images, core dumps.

Read with `struct`: a core dump of a full H200 has 400,000 sections, which pyelftools takes ten
seconds to list. Invariant: nothing is read outside of the data, which may be of anybody's making.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass

from tkdebug.errors import TkError
from tkdebug.linemap.nvidia.cubins import EM_CUDA

ET_EXEC, ET_CORE = 2, 4
SHT_STRTAB, SHT_NOBITS, SHT_LOUSER = 3, 8, 0x8000_0000
_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ELF64, _LITTLE_ENDIAN = 2, 1
_ABI_AT, _NEW_ABI = 8, 8


class SectionsError(TkError):
    """No ELF file of that kind, cut short, or of a layout not known."""


@dataclass(frozen=True, slots=True)
class Section:
    """One section header, by the ELF specification's names."""

    name: int
    type: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


def sections(data: bytes | mmap.mmap, type_: int, what: str) -> Iterator[Section]:
    """The section headers of a 64-bit ELF file for CUDA of that type."""
    return (section for _, section in chosen_sections(data, type_, what, None))


def check_cubin(cubin: bytes, kernel: str, architecture: int) -> None:
    """Check that a cubin contains a kernel, as far as its headers show.

    Raises:
        SectionsError: it is no cubin, cut short, of another architecture, or has no such kernel.
    """
    names = [section for section in sections(cubin, ET_EXEC, "cubin") if section.type == SHT_STRTAB]
    wanted = f"\0.text.{kernel}\0".encode()
    if not any(wanted in cubin[one.offset : one.offset + one.size] for one in names):
        raise SectionsError(f"cubin without a kernel {kernel}")
    abi, flags = cubin[_ABI_AT], _HEADER.unpack_from(cubin)[12]
    found = flags & 0xFF if abi < _NEW_ABI else flags >> 8 & 0xFF  # as in `architecture_number`
    if found != architecture:
        raise SectionsError(f"cubin for sm_{found}, expected sm_{architecture}")


def chosen_sections(
    data: bytes | mmap.mmap, type_: int, what: str, chosen: Container[int] | None
) -> Iterator[tuple[int, Section]]:
    """The section headers of some types, with their numbers; None for all types.

    Nearly all sections of a core dump have types that are not asked for, three for each thread.

    Raises:
        SectionsError: no ELF file of that type, cut short, or of a layout not known.
    """
    if len(data) < _HEADER.size:
        raise SectionsError(f"not a {what}: got {len(data)} bytes")
    magic, bits, order, *_, kind, machine, _, _, _, table, _, _, _, _, size, count, _ = (
        _HEADER.unpack_from(data)
    )
    if magic != b"\x7fELF" or bits != _ELF64 or order != _LITTLE_ENDIAN:
        raise SectionsError(f"not a {what}: no 64-bit ELF file")
    if machine != EM_CUDA or kind != type_:
        raise SectionsError(
            f"not a {what}: an ELF file of machine {machine} and type {kind}, "
            f"expected {EM_CUDA} and {type_}"
        )
    if table and size != _SECTION.size:
        raise SectionsError(f"section headers of {size} bytes: a {what} of unknown layout")
    if not table or table + _SECTION.size > len(data):
        raise SectionsError(f"is cut short: got {len(data)} bytes, expected more than {table}")
    # Too many for the header's 16 bits: then the first section says how many.
    count = count or _SECTION.unpack_from(data, table)[5]
    end = table + count * _SECTION.size
    if end > len(data):
        raise SectionsError(f"is cut short: got {len(data)} bytes, expected {end} or more")
    rows = _SECTION.iter_unpack(data[table:end])
    for number, (name, section, _, address, offset, size, link, info, _, entry) in enumerate(rows):
        if chosen is None or section in chosen:
            yield number, Section(name, section, address, offset, size, link, info, entry)
