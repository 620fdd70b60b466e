"""GPU core dumps: what stopped, where in the machine code, in which block, thread and grid.

Which Python line and which launch that means for a kernel of tkdebug's is `runtime.crashes`'s. A
dump may be of any process, its kernels of any compiler. `core_dump_reader` reads the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.errors import TkError
from tkdebug.linemap.nvidia.loaded_images import Image, Place, place_in, text_sections

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
    """One warp that an exception stopped, or a multiprocessor whose warp has gone since.

    Attributes:
        kind: of the fault, such as "illegal-address", "misaligned", "trap".
        text: what it was, in words.
        pc: address of the instruction, None where the dump gives none.
        sm: number of the multiprocessor.
        grid: None where the warp has gone.
        block: index of the block in the grid; None where the warp has gone.
        cluster: index of the cluster in the grid, where there are clusters.
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
        grid: None where the dump does not have it.
        block: index of its block in the grid.
        cluster: index of the cluster in the grid, where there are clusters.
        pcs: where its threads are: addresses of the instructions that they run next.
        sm: number of the multiprocessor, as the dump counts them.
    """

    grid: Grid | None
    block: Triple
    cluster: Triple | None
    pcs: frozenset[int]
    sm: int


@dataclass(frozen=True, slots=True)
class CoreDump:
    """What a dump says.

    Attributes:
        driver: version of the GPU driver, "" where the dump does not tell (before 565).
        device: name of the first device.
        architecture: such as sm_90.
        grids: what was running.
        stops: what an exception stopped; by block, those without a block last.
        warps: what was on the GPU, in no certain order.
        multiprocessors: how many the dump has.
        images: (module handle, relocated cubin) of the loaded modules.
        time_s: when it was made, in seconds since 1970; None where it does not tell.
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
        """The place of an address; None when no loaded image has it."""
        for module, image in self.images:
            for name, section in text_sections(image):
                if section.address <= pc < section.address + section.size:
                    return place_in(module, image, name, section.address, pc)
        return None
