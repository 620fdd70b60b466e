"""The GPU architectures tkdebug compiles for, as data.

Responsible for limits and features by architecture. Not responsible for the device at hand: what
the driver says of it (memory, clock, number of multiprocessors) belongs to the runtime.

Sources: CUDA C++ Programming Guide, appendix "Compute Capabilities", table "Technical
Specifications per Compute Capability" (limits), and tables "Arithmetic Instructions" and
"Feature Support per Compute Capability"; PTX ISA, "Target ISA Notes" of each instruction
(features); CUDA Occupancy Calculator (allocation units).
"""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.errors import UnsupportedError

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """One architecture: what limits a kernel there, and which instructions there are.

    Attributes:
        name: as ptxas and LLVM write it, `sm_90a`; the `a` means architecture-specific code, which
            runs on no other capability (wgmma and setmaxnreg need it).
        capability: (major, minor) of the compute capability.
        registers_per_sm: 32-bit registers of a multiprocessor; also the most one block may use.
        registers_per_thread: most registers of one thread.
        register_unit: registers are given to warps in multiples of this.
        shared_bytes_per_sm: shared memory of a multiprocessor.
        shared_bytes_per_block: most that one block may have, after opting in.
        shared_bytes_reserved: what the system takes of every block's share.
        shared_unit_bytes: shared memory is given out in multiples of this.
        warps_per_sm: resident warps of a multiprocessor.
        blocks_per_sm: resident blocks of a multiprocessor.
        threads_per_block: most threads of one block.
        bf16_arithmetic: `add`, `sub`, `mul` on bfloat16 (before it only `fma.rn.bf16`).
        fp8_conversions: `cvt` to and from e4m3x2 and e5m2x2.
        fp8_mma: `mma` on e4m3 and e5m2.
        cluster: thread block clusters, distributed shared memory, `mapa`.
        tma: `cp.async.bulk.tensor`.
        wgmma: `wgmma.mma_async` and `setmaxnreg`.
        stmatrix: `stmatrix`.
        vector_atomics: `atom.add` and `red.add` of 16 bytes of floats.
    """

    name: str
    capability: tuple[int, int]
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    warps_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    register_unit: int = 256
    shared_bytes_reserved: int = _KIB
    shared_unit_bytes: int = 128
    threads_per_block: int = 1024
    threads_per_warp: int = 32
    bf16_arithmetic: bool = False
    fp8_conversions: bool = False
    fp8_mma: bool = False
    cluster: bool = False
    tma: bool = False
    wgmma: bool = False
    stmatrix: bool = False
    vector_atomics: bool = False

    @property
    def threads_per_sm(self) -> int:
        """Resident threads of a multiprocessor."""
        return self.warps_per_sm * self.threads_per_warp

    def __str__(self) -> str:
        return self.name


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            "sm_80",
            (8, 0),
            shared_bytes_per_sm=164 * _KIB,
            shared_bytes_per_block=163 * _KIB,
            warps_per_sm=64,
            blocks_per_sm=32,
        ),
        Target(
            "sm_86",
            (8, 6),
            shared_bytes_per_sm=100 * _KIB,
            shared_bytes_per_block=99 * _KIB,
            warps_per_sm=48,
            blocks_per_sm=16,
        ),
        Target(
            "sm_89",
            (8, 9),
            shared_bytes_per_sm=100 * _KIB,
            shared_bytes_per_block=99 * _KIB,
            warps_per_sm=48,
            blocks_per_sm=24,
            fp8_conversions=True,
            fp8_mma=True,
        ),
        Target(
            "sm_90a",
            (9, 0),
            shared_bytes_per_sm=228 * _KIB,
            shared_bytes_per_block=227 * _KIB,
            warps_per_sm=64,
            blocks_per_sm=32,
            bf16_arithmetic=True,
            fp8_conversions=True,
            fp8_mma=True,
            cluster=True,
            tma=True,
            wgmma=True,
            stmatrix=True,
            vector_atomics=True,
        ),
    )
}


def target_of(capability: tuple[int, int] | str) -> Target:
    """The target for a compute capability, `(9, 0)`, or by name, `"sm_90a"` or `"sm_90"`.

    Raises:
        UnsupportedError: tkdebug does not compile for it.
    """
    if isinstance(capability, str):
        for target in TARGETS.values():
            if capability in (target.name, target.name.rstrip("a")):
                return target
        asked = f"architecture {capability!r}"
    else:
        for target in TARGETS.values():
            if capability == target.capability:
                return target
        asked = "compute capability " + ".".join(str(part) for part in capability)
    known = ", ".join(
        f"{target.name} ({target.capability[0]}.{target.capability[1]})"
        for target in TARGETS.values()
    )
    raise UnsupportedError(
        f"native mode: got {asked}, expected one of {known}; run with --mode interpret instead"
    )
