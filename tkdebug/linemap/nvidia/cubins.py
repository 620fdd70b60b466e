"""Cubins: SASS address -> Python line and call chain, and -> PTX line; kernels and their resources.

Reads any cubin with `-lineinfo`: tkdebug's, upstream Triton's, nvcc's. Gaps of its tables are not
filled by guesses: neither a wgmma instruction without a row of its own nor functions that ptxas put
into the code (`local_functions`) get the line of the row before. Two tables answer: `.debug_line`
(file, line, inlined chain) and `.nv_debug_line_sass` (line of the PTX text). The second is the
finer one: ptxas starts no new row in the first if the chain changes and file and line stay.

ptxas writes no row for HGMMA, IGMMA, QGMMA and BGMMA, whatever `.loc` is in force (seen with CUDA
12.8 to 13.5). A tool that reads the table by its rules finds the row of the instruction that was
scheduled before. So these instructions are found in the code itself, without nvdisasm, which may be
missing.

Sources: opcodes read off `nvdisasm -hex` for each type, and A in registers and in shared memory;
resources read off cubins of ptxas 12 and 13: `.nv.info` and `.nv.info.KERNEL` are lists of
attributes (format, number, 16-bit value or size, bytes); EIATTR_REGCOUNT is 0x2f, EIATTR_FRAME_SIZE
0x11, EIATTR_REQNTID 0x10. `.nv.shared.KERNEL` is as large as the static shared memory.
"""

from __future__ import annotations

import bisect
import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tkdebug.errors import Frame, TkError
from tkdebug.linemap.nvidia.line_programs import INSTRUCTION_BYTES, LineProgramError, Row, decode
from tkdebug.linemap.parts import LocalFunction, holding, local_functions

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile


ARCHITECTURE = 90
INSTRUCTION = struct.Struct("<QQ")
_OPCODE = 0xFFF
# Opcodes of HGMMA, IGMMA, BGMMA and QGMMA with A in shared memory, then with A in registers.
_MULTIPLIES = frozenset((*range(0x9F0, 0x9F4), *range(0xDF0, 0xDF4)))
_WARPGROUP, _WAIT_BIT = 0x9C5, 47  # WARPGROUP.ARRIVE; with the bit set, WARPGROUP.DEPBAR


def wgmma_instructions(code: bytes) -> Iterator[tuple[int, Literal["fence", "multiply"]]]:
    """Offset and kind of each wgmma fence (WARPGROUP.ARRIVE) and multiplication, in order."""
    whole = len(code) // INSTRUCTION.size * INSTRUCTION.size
    for index, (low, _) in enumerate(INSTRUCTION.iter_unpack(code[:whole])):
        opcode = low & _OPCODE
        if opcode in _MULTIPLIES:
            yield index * INSTRUCTION.size, "multiply"
        elif opcode == _WARPGROUP and not low >> _WAIT_BIT & 1:
            yield index * INSTRUCTION.size, "fence"


EM_CUDA = 190
_FIRST_ARCHITECTURE = 70
_TEXT = ".text."
_ELF_MAGIC = b"\x7fELF"


class CubinError(TkError):
    """The bytes are no cubin, are cut short, or hold no line information."""


@dataclass(frozen=True, slots=True)
class FunctionLines:
    """Line information of one function of a cubin.

    Attributes:
        name: the symbol, a kernel or a device function that was not inlined.
        size_bytes: the size of its code, padding included.
        source: rows of `.debug_line` by address; the chain of each, outermost first.
        ptx: rows of `.nv_debug_line_sass` by address; the PTX line of each.
        rowless: addresses of wgmma instructions that `source` has no row for.
        rowless_ptx: addresses of wgmma instructions that `ptx` has no row for.
        locals: functions inside of its code; rows before one do not apply to it.
        code: its bytes.
    """

    name: str
    size_bytes: int
    source: tuple[tuple[int, tuple[Frame, ...]], ...]
    ptx: tuple[tuple[int, int], ...]
    rowless: frozenset[int] = frozenset()
    rowless_ptx: frozenset[int] = frozenset()
    locals: tuple[LocalFunction, ...] = ()
    code: bytes = b""

    def frames_at(self, address: int) -> tuple[Frame, ...]:
        """Call chain of the instruction at `address` in the function, () if there is none."""
        if address in self.rowless:
            return ()
        index = bisect.bisect_right(self.source, address, key=lambda row: row[0])
        if not index or self.source[index - 1][0] < self._start(address):
            return ()
        return self.source[index - 1][1]

    def ptx_line_at(self, address: int) -> int | None:
        """Line (1-based) of the PTX text that the instruction at `address` was made of, or None."""
        if address in self.rowless_ptx:
            return None
        index = bisect.bisect_right(self.ptx, address, key=lambda row: row[0])
        if not index or self.ptx[index - 1][0] < self._start(address):
            return None
        return self.ptx[index - 1][1] or None

    @property
    def addresses(self) -> range:
        """Addresses of all instructions, padding included."""
        return range(0, self.size_bytes, INSTRUCTION_BYTES)

    def _start(self, address: int) -> int:
        function = holding(self.locals, address)
        return 0 if function is None else function.start


def read_line_info(cubin: bytes) -> dict[str, FunctionLines]:
    """Line information by function name.

    Raises:
        CubinError: not a cubin, cut short, or without line information.
    """
    elf = open_cubin(cubin)
    try:
        return _read(elf)
    except (CubinError, LineProgramError):
        raise
    except Exception as error:  # pyelftools raises what it happens to meet in damaged files
        raise CubinError(f"cubin is damaged: {type(error).__name__}: {error}") from error


def open_cubin(cubin: bytes) -> ELFFile:
    """The cubin as ELF file.

    Raises:
        CubinError: not a cubin, cut short, or of an architecture whose code is not read.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    if not cubin.startswith(_ELF_MAGIC):
        raise CubinError("not a cubin: no ELF file" if cubin else "not a cubin: empty")
    try:
        elf = ELFFile(io.BytesIO(cubin))
        count = elf.num_sections()
    except (ELFError, ValueError, KeyError, OSError) as error:
        raise CubinError(f"not a cubin, or cut short: {len(cubin)} bytes") from error
    if elf.header["e_machine"] not in ("EM_CUDA", EM_CUDA):
        raise CubinError(f"not a cubin: an ELF file for {elf.header['e_machine']}")
    end = elf.header["e_shoff"] + count * elf.header["e_shentsize"]
    if end > len(cubin):
        raise CubinError(f"cubin is cut short: got {len(cubin)} bytes, expected {end} or more")
    number = architecture_number(elf)
    if number < _FIRST_ARCHITECTURE:
        raise CubinError(
            f"cubin is for sm_{number}; tkdebug reads code of sm_{_FIRST_ARCHITECTURE} and later"
        )
    return elf


def architecture_number(elf: ELFFile) -> int:
    """The architecture a cubin is for: 80 for sm_80."""
    flags = int(elf.header["e_flags"])
    # Read off cubins: the low byte of the flags before ABI version 8, the second one from it on.
    return flags & 0xFF if elf.header["e_ident"]["EI_ABIVERSION"] < 8 else flags >> 8 & 0xFF


def _read(elf: ELFFile) -> dict[str, FunctionLines]:
    sections = {
        section.name[len(_TEXT) :]: (index, section)
        for index, section in enumerate(elf.iter_sections())
        if section.name.startswith(_TEXT)
    }
    if elf.get_section_by_name(".symtab") is None:
        raise CubinError("cubin is stripped: it has no symbols; keep the one the compiler made")
    if elf.get_section_by_name(".debug_line") is None:
        raise CubinError("cubin has no line information (.debug_line); compile with -lineinfo")
    size_bytes = sum(int(section["sh_size"]) for _, section in sections.values())
    if size_bytes > elf.stream_len:
        raise CubinError(
            f"cubin is damaged: {size_bytes} bytes of code in a file of {elf.stream_len}"
        )
    strings = section_data(elf, ".debug_str")
    source = decode(section_data(elf, ".debug_line"), _symbols(elf, ".debug_line"), strings)
    name = ".nv_debug_line_sass"
    ptx = decode(section_data(elf, name), _symbols(elf, name))
    only = next(iter(sections)) if len(sections) == 1 else ""
    chains = dict(_chains(source, only))
    wgmma = architecture_number(elf) == ARCHITECTURE
    inner = local_functions(elf)
    return {
        function: _lines_of(
            function,
            section_data(elf, section.name),
            int(section["sh_addr"]),
            tuple(chains.get(function, ())),
            tuple((row.address, row.line) for row in _rows_of(ptx, function, only)),
            wgmma,
            inner.get(index, ()),
        )
        for function, (index, section) in sections.items()
    }


def _lines_of(
    function: str,
    code: bytes,
    base: int,
    source: tuple[tuple[int, tuple[Frame, ...]], ...],
    ptx: tuple[tuple[int, int], ...],
    wgmma: bool,
    inner: tuple[LocalFunction, ...],
) -> FunctionLines:
    """The line information of one function; rows of a loaded image count from `base`."""
    offset = base if source and source[0][0] >= base else 0
    multiplies = {
        at + offset
        for at, kind in (wgmma_instructions(code) if wgmma else ())
        if kind == "multiply"
    }
    return FunctionLines(
        function,
        len(code),
        source,
        ptx,
        rowless=frozenset(multiplies.difference(address for address, _ in source)),
        rowless_ptx=frozenset(multiplies.difference(address for address, _ in ptx)),
        locals=tuple(replace(f, start=f.start + offset, end=f.end + offset) for f in inner),
        code=code,
    )


def _rows_of(rows: tuple[Row, ...], function: str, only: str) -> Iterator[Row]:
    # The row that ends a sequence is after the code: it is of no instruction.
    return (row for row in rows if not row.end and (row.function or only) == function)


def _chains(rows: tuple[Row, ...], only: str) -> dict[str, list[tuple[int, tuple[Frame, ...]]]]:
    """Return the (address, chain) rows of each function."""
    built: list[tuple[Frame, ...]] = []
    functions: dict[str, list[tuple[int, tuple[Frame, ...]]]] = {}
    for index, row in enumerate(rows):
        function = row.function or only
        outer: tuple[Frame, ...] = ()
        if row.context is not None and 0 <= row.context < index:
            outer = built[row.context]
        chain = (*outer, Frame(row.file, row.line, row.callee or function))
        built.append(chain if row.line else ())
        if not row.end:
            functions.setdefault(function, []).append((row.address, built[-1]))
    return functions


def section_data(elf: ELFFile, name: str) -> bytes:
    """The bytes of a section, never decompressed; b"" if the file has none.

    Raises:
        CubinError: the section is cut short.
    """
    section = elf.get_section_by_name(name)
    if section is None or section["sh_type"] == "SHT_NOBITS":
        return b""
    elf.stream.seek(section["sh_offset"])
    data: bytes = elf.stream.read(section["sh_size"])
    if len(data) < section["sh_size"]:
        raise CubinError(f"cubin is cut short in section {name}")
    return data


def _symbols(elf: ELFFile, name: str) -> dict[int, str]:
    """Offset in section `name` -> the symbol that is put there."""
    from elftools.elf.relocation import RelocationSection
    from elftools.elf.sections import SymbolTableSection

    for prefix in (".rela", ".rel"):
        section = elf.get_section_by_name(prefix + name)
        if isinstance(section, RelocationSection):
            symbols = elf.get_section(section["sh_link"])
            if not isinstance(symbols, SymbolTableSection):
                raise CubinError(f"cubin is damaged: {section.name} has no symbol table")
            return {
                int(relocation["r_offset"]): symbols.get_symbol(relocation["r_info_sym"]).name
                for relocation in section.iter_relocations()
            }
    return {}


_REGCOUNT, _FRAME_SIZE, _REQNTID = 0x2F, 0x11, 0x10
_WITH_BYTES = 4
_WITH_RESERVED = 90
_RESERVED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class CubinKernel:
    """One function of a cubin.

    Attributes:
        registers: the registers of a thread, None if the cubin does not say.
        threads: the threads of a block; None if the kernel was not compiled for a fixed number.
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
    """The functions of a cubin; `target` is a name such as sm_80."""

    target: str
    kernels: Mapping[str, CubinKernel]


def read_kernels(cubin: bytes) -> CubinKernels:
    """The functions of a cubin and their resources.

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
    # From sm_90 on the section begins with the system's reserve.
    reserved = _RESERVED_BYTES if architecture_number(elf) >= _WITH_RESERVED else 0
    return max(0, int(section["sh_size"]) - reserved)


def _threads(elf: ELFFile, name: str) -> int | None:
    for number, value in _attributes(elf, f".nv.info.{name}"):
        if number == _REQNTID and len(value) >= 12:
            x, y, z = struct.unpack_from("<III", value)
            return int(x * y * z)
    return None


def _attributes(elf: ELFFile, name: str) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each attribute; attributes that fit in the head have no bytes."""
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
