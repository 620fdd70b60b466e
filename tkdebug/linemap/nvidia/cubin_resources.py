"""What a cubin of any compiler says of its kernels and its architecture.

Source: read off cubins of ptxas 12 and 13: `.nv.info` and `.nv.info.KERNEL` are lists of
attributes (format, number, 16-bit value or size, bytes); EIATTR_REGCOUNT is 0x2f, EIATTR_FRAME_SIZE
0x11, EIATTR_REQNTID 0x10. `.nv.shared.KERNEL` is as large as the static shared memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.linemap.nvidia.cubins import CubinError, architecture_number, open_cubin, section_data

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_REGCOUNT, _FRAME_SIZE, _REQNTID = 0x2F, 0x11, 0x10
_WITH_BYTES = 4
_WITH_RESERVED = 90
_RESERVED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class CubinKernel:
    """One function of a cubin.

    Attributes:
        registers: of a thread, None where the cubin does not say.
        threads: of a block, where the kernel was compiled for so many.
        shared_bytes: static shared memory.
        stack_bytes: local memory of a thread.
    """

    name: str
    registers: int | None
    threads: int | None
    shared_bytes: int
    stack_bytes: int


@dataclass(frozen=True, slots=True)
class CubinKernels:
    """The functions of a cubin; `target` is such as sm_80."""

    target: str
    kernels: Mapping[str, CubinKernel]


def read_kernels(cubin: bytes) -> CubinKernels:
    """The functions of a cubin and what they need.

    Raises:
        CubinError: not a cubin, or damaged.
    """
    elf = open_cubin(cubin)
    try:
        return CubinKernels(_architecture(elf), {k.name: k for k in _kernels(elf)})
    except CubinError:
        raise
    except Exception as error:  # pyelftools raises what it happens to meet in damaged files
        raise CubinError(f"cubin is damaged: {type(error).__name__}: {error}") from error


def _architecture(elf: ELFFile) -> str:
    """The architecture that a cubin is for, such as sm_80."""
    return f"sm_{architecture_number(elf)}"


def _kernels(elf: ELFFile) -> Iterator[CubinKernel]:
    by_symbol: dict[tuple[int, str], int] = {}
    for number, value in _attributes(elf, ".nv.info"):
        if number in (_REGCOUNT, _FRAME_SIZE) and len(value) >= 8:
            symbol, amount = struct.unpack_from("<II", value)
            by_symbol[number, _symbol(elf, symbol)] = amount
    for section in elf.iter_sections():
        if not section.name.startswith(".text."):
            continue
        name = section.name[len(".text.") :]
        yield CubinKernel(
            name=name,
            registers=by_symbol.get((_REGCOUNT, name)),
            threads=_threads(elf, name),
            shared_bytes=_static_shared_bytes(elf, name),
            stack_bytes=by_symbol.get((_FRAME_SIZE, name), 0),
        )


def _static_shared_bytes(elf: ELFFile, name: str) -> int:
    section = elf.get_section_by_name(f".nv.shared.{name}")
    if section is None:
        return 0
    # From sm_90 on the section begins with what the system reserves.
    reserved = _RESERVED_BYTES if architecture_number(elf) >= _WITH_RESERVED else 0
    return max(0, int(section["sh_size"]) - reserved)


def _threads(elf: ELFFile, name: str) -> int | None:
    for number, value in _attributes(elf, f".nv.info.{name}"):
        if number == _REQNTID and len(value) >= 12:
            x, y, z = struct.unpack_from("<III", value)
            return int(x * y * z)
    return None


def _attributes(elf: ELFFile, name: str) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each attribute; those that fit in the head have no bytes."""
    data = section_data(elf, name)
    at = 0
    while at + 4 <= len(data):
        form, number, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _WITH_BYTES:
            yield number, data[at : at + size]
            at += size
        else:
            yield number, b""


def _symbol(elf: ELFFile, index: int) -> str:
    from elftools.elf.sections import SymbolTableSection

    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        raise CubinError("cubin is stripped: it has no symbols; keep the one the compiler made")
    name: str = table.get_symbol(index).name
    return name
