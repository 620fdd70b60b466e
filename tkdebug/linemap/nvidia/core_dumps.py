"""GPU core dumps: the stopped warps, with the instruction, the block, the thread and the grid.

`runtime.cuda.crashes` finds the Python line and the launch of tkdebug's kernels. A dump may be of
any process, its kernels of any compiler.

A dump is an ELF file (type core, machine CUDA) of tables; a row's size is the section's entry size,
and newer drivers append fields. Rows are tied by section header fields: `link` is the table that
the parent is in, `info` the parent's row there. Section types, tables and fields: cudacoredump.h of
the CUDA toolkit's debugger API. The fields that are read, and observations with driver 580.159
(CUDA 13.0, an H200), are in docs/core_dumps.md. In short:

- device, context, module and grid tables; parameters of each grid, also where memory is skipped;
- the modules' relocated images: cubins whose `.text` sections and line tables hold the addresses
  that the code has on the device;
- per multiprocessor: its exception, if any; its blocks, their warps, their threads.

The place of an exception is the warp's `errorPC`; the threads' own PC is some instructions after
it. A trap sets no exception: the warp is marked as stopped, and the PC is after the BPT. An
assert's PC is the return address of its call. If a warp had left before the dump was written (seen
for stores), only the multiprocessor's exception and PC are there: no block, no grid.

Invariants: nothing is guessed, and a file of anybody's making raises `CoreDumpError` or is read
within its bounds.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from tkdebug.errors import TkError
from tkdebug.linemap.nvidia.elf_sections import (
    ET_CORE,
    SHT_LOUSER,
    SHT_STRTAB,
    Section,
    SectionsError,
    chosen_sections,
)
from tkdebug.linemap.nvidia.line_programs import INSTRUCTION_BYTES
from tkdebug.linemap.nvidia.loaded_images import Image, Place, is_trap, place_in, text_sections
from tkdebug.process.named_files import open_regular

Triple = tuple[int, int, int]

ASSERT = 12
EXCEPTIONS: Mapping[int, tuple[str, str]] = {
    1: ("illegal-address", "access to an illegal address"),
    2: ("stack-overflow", "a thread's stack overflowed"),
    3: ("stack-overflow", "the hardware's call stack overflowed"),
    4: ("illegal-instruction", "illegal instruction"),
    5: ("illegal-address", "access to an address out of its memory's range"),
    6: ("misaligned", "misaligned access"),
    7: ("illegal-address", "access to an address of another memory space"),
    8: ("illegal-instruction", "jump to an illegal address"),
    9: ("stack-overflow", "the hardware's call stack overflowed"),
    10: ("illegal-address", "access to an illegal address"),
    11: ("misaligned", "misaligned access"),
    ASSERT: ("assert", "device-side assert failed"),
    13: ("gpu-exception", "a system call failed"),
    14: ("illegal-address", "access to an illegal address"),
    15: ("gpu-exception", "system-wide atomic on memory that cannot have it"),
    16: ("gpu-exception", "invalid system-wide atomic"),
    17: ("illegal-address", "access out of range in another block of the cluster"),
    18: ("illegal-address", "access to a block of the cluster that is not there"),
    19: ("stack-overflow", "a thread's stack was overwritten"),
    20: ("illegal-address", "illegal access to tensor memory"),
    21: ("gpu-exception", "tensor memory was not given back"),
}
TRAP = ("trap", "trap instruction")


class CoreDumpError(TkError):
    """The file is no GPU core dump, is cut short, or is laid out in a way not known."""


@dataclass(frozen=True, slots=True)
class Grid:
    """One running launch.

    Attributes:
        id: the context numbers all its launches, of any library, from 1 on, in order.
        function: the driver's handle of the kernel, as cuModuleGetFunction gave it.
        module: the driver's handle of the module, as cuModuleLoadData gave it.
        size: blocks along x, y, z.
        block_size: threads along x, y, z.
        cluster_size: blocks of a cluster along x, y, z; zeros or ones without clusters.
        parameters: the arguments, as the kernel's parameter memory holds them.
    """

    id: int
    function: int
    module: int
    size: Triple
    block_size: Triple
    cluster_size: Triple
    parameters: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """One warp that an exception stopped, or a multiprocessor whose warp has left since.

    Attributes:
        kind: the kind of the fault, such as "illegal-address", "misaligned", "trap".
        text: the exception, in words.
        pc: address of the instruction, None if the dump has none.
        sm: number of the multiprocessor.
        grid: None if the warp has left.
        block: index of the block in the grid; None if the warp has left.
        cluster: index of the cluster in the grid; None if the dump does not have it.
        threads: indices of the threads that the exception is of, lane by lane.
    """

    kind: str
    text: str
    pc: int | None
    sm: int
    grid: Grid | None = None
    block: Triple | None = None
    cluster: Triple | None = None
    threads: tuple[Triple, ...] = ()


@dataclass(frozen=True, slots=True)
class Warp:
    """One warp that was on the GPU, whether or not an exception stopped it.

    Attributes:
        grid: None if the dump does not have it.
        block: index of its block in the grid.
        cluster: index of the cluster in the grid; None if the dump does not have it.
        pcs: addresses of the instructions that its threads run next.
        sm: number of the multiprocessor, as the dump counts them.
    """

    grid: Grid | None
    block: Triple
    cluster: Triple | None
    pcs: frozenset[int]
    sm: int


@dataclass(frozen=True, slots=True)
class CoreDump:
    """The contents of a core dump.

    Attributes:
        driver: version of the GPU driver, "" if the dump has none (before 565).
        device: name of the first device.
        architecture: the name of the architecture, such as sm_90.
        grids: the running grids.
        stops: warps that an exception stopped; by block, those without a block last.
        warps: the warps on the GPU, in no certain order.
        multiprocessors: the number of the dump's multiprocessors.
        images: (module handle, relocated cubin) of the loaded modules.
        time_s: the time at which it was made, in seconds since 1970; None if the dump does not say.
    """

    driver: str
    device: str
    architecture: str
    grids: tuple[Grid, ...]
    stops: tuple[Stop, ...]
    images: tuple[Image, ...]
    time_s: int | None = None
    warps: tuple[Warp, ...] = ()
    multiprocessors: int = 0

    def place_of(self, pc: int) -> Place | None:
        """The place of an address; None if no loaded image has it."""
        for module, image in self.images:
            for name, section in text_sections(image):
                if section.address <= pc < section.address + section.size:
                    return place_in(module, image, name, section.address, pc)
        return None


_Row = TypeVar("_Row")
_RELOCATED_IMAGE, _DEVICES, _CONTEXTS, _SMS, _GRIDS, _BLOCKS, _WARPS, _THREADS, _MODULES = (
    SHT_LOUSER + number for number in (7, 9, 10, 11, 12, 13, 14, 15, 16)
)
_PARAMETERS, _METADATA = SHT_LOUSER + 18, SHT_LOUSER + 22
_NAMES = {
    _DEVICES: "device table",
    _CONTEXTS: "context table",
    _SMS: "multiprocessor table",
    _GRIDS: "grid table",
    _BLOCKS: "block table",
    _WARPS: "warp table",
    _THREADS: "thread table",
    _MODULES: "module table",
    _METADATA: "metadata",
}
_KEPT = {*_NAMES, _RELOCATED_IMAGE, _PARAMETERS, SHT_STRTAB}
# The fields that are read of each row, which may be longer.
_DEVICE_ROW = struct.Struct("<QQQ")
_GRID_ROW = struct.Struct("<7Q4I3I3I2I")
_CLUSTER_AT, _CLUSTER = 104, struct.Struct("<3I")
_SM_ROW, _SM_EXCEPTION = struct.Struct("<I4x"), struct.Struct("<I4xIIQ")
_BLOCK_ROW, _BLOCK_CLUSTER_AT = struct.Struct("<Q3I4x"), 24
_WARP_ROW = struct.Struct("<QIIIII4x")
_THREAD_ROW = struct.Struct("<QQ4II12x")
_METADATA_ROW = struct.Struct("<Q6I")
_MAX_STOPS = 100_000
_STACK_OVERFLOW = 2
_MAX_NAME_BYTES = 4096


def read_core_dump(path: Path) -> CoreDump:
    """Read the dump in the file at `path`.

    Raises:
        CoreDumpError: no GPU core dump, cut short, of an unknown layout, or unreadable.
    """
    try:
        with open_regular(path) as file:
            if not file.seek(0, 2):
                raise CoreDumpError("is empty, expected a GPU core dump")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return decode_core_dump(data)
    except OSError as error:
        raise CoreDumpError(f"{path}: cannot be read ({error.strerror})") from error
    except CoreDumpError as error:
        raise CoreDumpError(f"{path}: {error}") from None


def decode_core_dump(data: bytes | mmap.mmap) -> CoreDump:
    """The dump in `data`.

    Raises:
        CoreDumpError: no GPU core dump, cut short, or of an unknown layout.
    """
    return _Reader(data).dump()


class _Reader:
    """The tables of one dump; sections that are not asked for are passed over."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        try:
            self.sections = dict(chosen_sections(data, ET_CORE, "GPU core dump", _KEPT))
        except SectionsError as error:
            raise CoreDumpError(str(error)) from None
        size_bytes = sum(section.size for section in self.sections.values())
        if size_bytes > len(data):
            # Sections that lie over each other would let a small file fill the memory.
            raise CoreDumpError(
                f"has sections of {size_bytes} bytes in {len(data)}: "
                "cut short, or a GPU core dump of unknown layout"
            )
        self.by_type: dict[int, list[int]] = {}
        for index, section in self.sections.items():
            self.by_type.setdefault(section.type, []).append(index)
        for needed in (_DEVICES, _SMS, _MODULES):
            if needed not in self.by_type:
                raise CoreDumpError(f"has no {_NAMES[needed]}: a GPU core dump of unknown layout")

    def dump(self) -> CoreDump:
        devices = self._rows(self.by_type[_DEVICES][0], _DEVICE_ROW.size)
        if not devices:
            raise CoreDumpError("has no device: a GPU core dump of unknown layout")
        name, _, architecture = _DEVICE_ROW.unpack_from(devices[0])
        grids = self._grids()
        images = self._images()
        stops = tuple(sorted(self._stops(grids, images), key=_order))
        driver, time_s = self._metadata()
        return CoreDump(
            driver=driver,
            device=self._string(name),
            architecture=self._string(architecture),
            grids=tuple(grids.values()),
            stops=stops,
            images=images,
            time_s=time_s,
            warps=tuple(islice(self._warps(grids), _MAX_STOPS)),
            multiprocessors=sum(
                len(self._rows(index, _SM_ROW.size)) for index, _ in self._of_type(_SMS)
            ),
        )

    def _bytes(self, section: Section) -> bytes:
        end = section.offset + section.size
        if end > len(self.data):
            raise CoreDumpError(f"is cut short: got {len(self.data)} bytes, expected {end} or more")
        return bytes(self.data[section.offset : end])

    def _rows(self, index: int, needed: int) -> list[bytes]:
        data, size = self._table(index, needed)
        return [data[at : at + size] for at in range(0, len(data), size)]

    def _table(self, index: int, needed: int) -> tuple[bytes, int]:
        """Return the bytes of a table's rows and the size of a row, at least `needed` bytes."""
        section = self.sections[index]
        size = section.entry_size
        if size < needed or section.size % size:
            raise CoreDumpError(
                f"{_NAMES[section.type]}: got {section.size} bytes in rows of {size}, expected "
                f"rows of {needed} or more: a GPU core dump of unknown layout"
            )
        return self._bytes(section), size

    def _firsts(self, index: int, needed: int) -> Iterator[int]:
        """Return the first number, of 8 bytes, of each row."""
        data, size = self._table(index, needed)
        return (first for (first,) in struct.iter_unpack(f"<Q{size - 8}x", data))

    def _of_type(self, type_: int) -> Iterator[tuple[int, Section]]:
        return ((index, self.sections[index]) for index in self.by_type.get(type_, ()))

    def _string(self, offset: int) -> str:
        # Two string tables: the first is the one that rows point into.
        strings = self.by_type.get(SHT_STRTAB)
        data = self._bytes(self.sections[strings[0]]) if strings else b""
        end = data.find(b"\0", offset, offset + _MAX_NAME_BYTES)
        return data[offset:end].decode(errors="replace") if end >= 0 else ""

    def _metadata(self) -> tuple[str, int | None]:
        """Return the driver's version and the dump's time; "" and None by drivers before 565."""
        for _, section in self._of_type(_METADATA):
            if section.size >= _METADATA_ROW.size:
                _, major, minor, *_, time_s = _METADATA_ROW.unpack_from(self._bytes(section))
                return f"{major}.{minor}" if major else "", time_s or None
        return "", None

    def _images(self) -> tuple[Image, ...]:
        found = []
        tables = {index: self._rows(index, 8) for index, _ in self._of_type(_MODULES)}
        for _, section in self._of_type(_RELOCATED_IMAGE):
            handles = tables.get(section.link)
            if handles is None:
                raise CoreDumpError("a loaded module belongs to no module table: unknown layout")
            if section.info >= len(handles):
                raise CoreDumpError(f"module {section.info} of {len(handles)}: unknown layout")
            handle = int.from_bytes(handles[section.info][:8], "little")
            found.append((handle, self._bytes(section)))
        return tuple(found)

    def _grids(self) -> dict[int, Grid]:
        parameters = {
            (section.link, section.info): section for _, section in self._of_type(_PARAMETERS)
        }
        grids: dict[int, Grid] = {}
        for index, _ in self._of_type(_GRIDS):
            for number, row in enumerate(self._rows(index, _GRID_ROW.size)):
                fields = _GRID_ROW.unpack_from(row)
                cluster = (0, 0, 0)
                if len(row) >= _CLUSTER_AT + _CLUSTER.size:
                    cluster = _CLUSTER.unpack_from(row, _CLUSTER_AT)
                section = parameters.get((index, number))
                grids[fields[0]] = Grid(
                    id=fields[0],
                    function=fields[2],
                    module=fields[4],
                    size=fields[11:14],
                    block_size=fields[14:17],
                    cluster_size=cluster,
                    parameters=b"" if section is None else self._bytes(section),
                )
        return grids

    def _stops(self, grids: Mapping[int, Grid], images: tuple[Image, ...]) -> Iterator[Stop]:
        threads = {(s.link, s.info): index for index, s in self._of_type(_THREADS)}
        blocks: dict[int, list[bytes]] = {}
        exceptions = {
            index: [_sm_exception(row) for row in self._rows(index, _SM_ROW.size)]
            for index, _ in self._of_type(_SMS)
        }
        with_exception: set[tuple[int, int]] = set()
        count = 0
        for index, section in self._of_type(_WARPS):
            parent = self._parent(section, _BLOCKS)
            if section.link not in blocks:
                blocks[section.link] = self._rows(section.link, _BLOCK_ROW.size)
            table = blocks[section.link]
            sm = self._row(exceptions.get(parent.link), parent.info)
            block = self._row(table, section.info)
            for number, row in enumerate(self._rows(index, _WARP_ROW.size)):
                at = threads.get((index, number))
                stop = self._stop(row, at, sm, block, grids, images)
                if stop is None:
                    continue
                with_exception.add((parent.link, parent.info))
                yield stop
                count += 1
                if count >= _MAX_STOPS:
                    return
        for index, rows in exceptions.items():
            for number, (sm_id, exception, pc) in enumerate(rows):
                if exception and (index, number) not in with_exception:
                    yield Stop(*_said(exception), pc=pc, sm=sm_id)

    def _warps(self, grids: Mapping[int, Grid]) -> Iterator[Warp]:
        threads = {(s.link, s.info): index for index, s in self._of_type(_THREADS)}
        blocks: dict[int, list[bytes]] = {}
        for index, section in self._of_type(_WARPS):
            parent = self._parent(section, _BLOCKS)
            if section.link not in blocks:
                blocks[section.link] = self._rows(section.link, _BLOCK_ROW.size)
            row = self._row(blocks[section.link], section.info)
            grid_id, *place = _BLOCK_ROW.unpack_from(row)
            cluster = None
            if len(row) >= _BLOCK_CLUSTER_AT + _CLUSTER.size:
                cluster = _CLUSTER.unpack_from(row, _BLOCK_CLUSTER_AT)
            for number in range(len(self._rows(index, _WARP_ROW.size))):
                at = threads.get((index, number))
                if at is not None:
                    pcs = frozenset(self._firsts(at, _THREAD_ROW.size))
                    block = (place[0], place[1], place[2])
                    yield Warp(grids.get(grid_id), block, cluster, pcs, parent.info)

    def _parent(self, section: Section, type_: int) -> Section:
        parent = self.sections.get(section.link)
        if parent is None or parent.type != type_:
            raise CoreDumpError(f"{_NAMES[section.type]} without its {_NAMES[type_]}")
        return parent

    @staticmethod
    def _row(rows: list[_Row] | None, number: int) -> _Row:
        if rows is None or number >= len(rows):
            raise CoreDumpError(f"row {number} of a table is missing: unknown layout")
        return rows[number]

    def _stop(
        self,
        warp: bytes,
        threads_at: int | None,
        sm: tuple[int, int, int | None],
        block: bytes,
        grids: Mapping[int, Grid],
        images: tuple[Image, ...],
    ) -> Stop | None:
        """The stop of this warp, or None if nothing stopped it."""
        error_pc, _, _, _, broken, pc_valid = _WARP_ROW.unpack_from(warp)
        sm_id, sm_exception, _ = sm
        if not (broken or pc_valid or sm_exception) or threads_at is None:
            return None
        rows = [_THREAD_ROW.unpack_from(r) for r in self._rows(threads_at, _THREAD_ROW.size)]
        hit = [row for row in rows if row[6]]
        pc: int | None = error_pc if pc_valid else None
        after_trap = bool(broken and not pc_valid and rows) and is_trap(
            images, rows[0][0] - INSTRUCTION_BYTES
        )
        # Where a kernel keeps data in R1, which it need not keep for the stack, the driver calls a
        # trap an overflow of the stack.
        if after_trap and all(row[6] == _STACK_OVERFLOW for row in hit):
            (kind, text), pc, hit = TRAP, rows[0][0] - INSTRUCTION_BYTES, rows
        elif hit:
            kind, text = _said(hit[0][6])
            if pc is None and hit[0][6] == ASSERT:
                pc = hit[0][0] - INSTRUCTION_BYTES
        elif pc_valid:
            kind, text = _said(sm_exception)
        else:
            return None
        grid_id, *place = _BLOCK_ROW.unpack_from(block)
        cluster = None
        if len(block) >= _BLOCK_CLUSTER_AT + _CLUSTER.size:
            cluster = _CLUSTER.unpack_from(block, _BLOCK_CLUSTER_AT)
        return Stop(
            kind,
            text,
            pc=pc,
            sm=sm_id,
            grid=grids.get(grid_id),
            block=(place[0], place[1], place[2]),
            cluster=cluster,
            threads=tuple((row[3], row[4], row[5]) for row in hit),
        )


def _sm_exception(row: bytes) -> tuple[int, int, int | None]:
    """Number, exception and PC of a multiprocessor; -1 and None by drivers before 555."""
    if len(row) < _SM_EXCEPTION.size:
        # Any warp of it may have one.
        return _SM_ROW.unpack_from(row)[0], -1, None
    number, exception, pc_valid, pc = _SM_EXCEPTION.unpack_from(row)
    return number, exception, pc if pc_valid else None


def _said(exception: int) -> tuple[str, str]:
    return EXCEPTIONS.get(exception, ("gpu-exception", f"exception {exception} of the GPU"))


def _order(stop: Stop) -> tuple[bool, tuple[int, ...], int]:
    block = stop.block or (0, 0, 0)
    return stop.block is None, block[::-1], min((t[::-1] for t in stop.threads), default=(0,))[-1]
