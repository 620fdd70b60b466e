"""NVIDIA architectures that tkdebug compiles for, the error for the others, and occupancy.

Sources: CUDA C++ Programming Guide, appendix "Compute Capabilities", table "Technical
Specifications per Compute Capability" (limits; the same as `arch_traits` of NVIDIA's CCCL), and
tables "Arithmetic Instructions" and "Feature Support per Compute Capability"; PTX ISA, "Target ISA
Notes" of each instruction (features) and "Release Notes" (versions); CUDA Occupancy Calculator,
cuda_occupancy.h (allocation units): registers are given to warps by the unit and each of the four
partitions of a multiprocessor has a quarter of them; shared memory is given to blocks by the unit,
with the system's reserve.
"""

from __future__ import annotations

import re

from tkdebug.compiler.layouts.shared import SharedBanks
from tkdebug.compiler.targets.target import (
    ASYNC_COPIES,
    BF16_ARITHMETIC,
    BF16_CONVERSIONS,
    CLUSTER,
    FP8_CONVERSIONS,
    FP8_MMA,
    L2_POLICIES,
    MMA_SM80,
    REDUX,
    STMATRIX,
    TCGEN05,
    TMA,
    VECTOR_ATOMICS,
    WGMMA,
    Target,
)
from tkdebug.linemap.parts import Occupancy

BACKEND = "nvptx"
WARP_SIZE = 32
# CUDA C++ Programming Guide, "Shared Memory": 32 banks, successive 32-bit words in successive
# banks; an access of 8 or 16 bytes per thread is made in two or four parts of consecutive lanes.
BANKS = SharedBanks(count=32, word_bytes=4, access_bytes=16)
_KIB = 1024

_TURING: frozenset[str] = frozenset()
_AMPERE = _TURING | {ASYNC_COPIES, BF16_CONVERSIONS, L2_POLICIES, MMA_SM80, REDUX}
_ADA = _AMPERE | {FP8_CONVERSIONS, FP8_MMA}
_SM90 = _ADA | {BF16_ARITHMETIC, CLUSTER, TMA, STMATRIX, VECTOR_ATOMICS}
# wgmma is sm_90a's alone, and tcgen05 is not in GPUs of compute capability 12.
_HOPPER = _SM90 | {WGMMA}
_BLACKWELL = _SM90 | {TCGEN05}
_BLACKWELL_RTX = _SM90
# PTX 8.7 (CUDA 12.8) has all that the targets have; with an older assembler it becomes less, down
# to the first version that knows the target.
_PTX_VERSION, _OLDEST_PTX_VERSION = 87, 80
_FIRST_PTX_VERSIONS = {"sm_100a": 86, "sm_120a": 87, "sm_103a": 88, "sm_121a": 88, "sm_110a": 90}
_NAME = re.compile(r"(?:sm_?)?(\d{2,3})[af]?")


def _architecture(
    name: str,
    shared_kib: int,
    warps: int,
    blocks: int,
    capabilities: frozenset[str],
    *,
    is_tried: bool = False,
    reserved_kib: int = 1,
    shared_unit_bytes: int = 128,
) -> Target:
    """An architecture with `shared_kib` KiB of shared memory per multiprocessor.

    The `a` of a name means architecture-specific code, which runs on no other capability; wgmma and
    setmaxnreg need it.
    """
    capability = capability_of(name)
    assert capability is not None
    return Target(
        name,
        BACKEND,
        capability,
        threads_per_warp=WARP_SIZE,
        banks=BANKS,
        shared_bytes_per_sm=shared_kib * _KIB,
        shared_bytes_per_block=(shared_kib - reserved_kib) * _KIB,
        warps_per_sm=warps,
        blocks_per_sm=blocks,
        registers_per_sm=65536,
        registers_per_thread=255,
        threads_per_block=1024,
        register_unit=256,
        shared_bytes_reserved=reserved_kib * _KIB,
        shared_unit_bytes=shared_unit_bytes,
        capabilities=capabilities,
        is_tried=is_tried,
    )


def capability_of(asked: object) -> tuple[int, int] | None:
    """The compute capability named by "sm_90a", "sm90", "90", 90 or (9, 0); None if none is."""
    if isinstance(asked, tuple):
        return asked
    match = _NAME.fullmatch(str(asked))
    return None if match is None else divmod(int(match[1]), 10)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _architecture("sm_75", 64, 32, 16, _TURING, reserved_kib=0, shared_unit_bytes=256),
        _architecture("sm_80", 164, 64, 32, _AMPERE),
        _architecture("sm_86", 100, 48, 16, _AMPERE),
        _architecture("sm_87", 164, 48, 16, _AMPERE),
        _architecture("sm_89", 100, 48, 24, _ADA),
        _architecture("sm_90a", 228, 64, 32, _HOPPER, is_tried=True),
        _architecture("sm_100a", 228, 64, 32, _BLACKWELL),
        _architecture("sm_103a", 228, 64, 32, _BLACKWELL),
        _architecture("sm_110a", 228, 48, 24, _BLACKWELL),
        _architecture("sm_120a", 100, 48, 24, _BLACKWELL_RTX),
        _architecture("sm_121a", 100, 48, 24, _BLACKWELL_RTX),
    )
}
_OLDEST = min(target.capability for target in TARGETS.values())
_NEWEST = max(target.capability for target in TARGETS.values())


def ptx_versions(target: Target) -> tuple[int, int]:
    """The first PTX version that knows a target, and the version to write, as 87 for 8.7."""
    least = _FIRST_PTX_VERSIONS.get(target.name, _OLDEST_PTX_VERSION)
    return least, max(least, _PTX_VERSION)


def find(asked: object) -> Target | None:
    """The target of this name or compute capability; None if there is none."""
    capability = capability_of(asked)
    return next((t for t in TARGETS.values() if t.capability == capability), None)


def unsupported(asked: object) -> str | None:
    """The error message for an architecture that is not in `TARGETS`.

    None if `asked` names no NVIDIA GPU of compute capability 5.0 or later.
    """
    capability = capability_of(asked)
    if capability is None or capability < (5, 0):
        return None
    major, minor = capability
    place = "not among"
    if capability > _NEWEST:
        place = "newer than"
    elif capability < _OLDEST:
        place = "older than"
    return (
        f"sm_{major}{minor} (compute capability {major}.{minor}) is {place} the GPUs that this "
        f"version of tkdebug compiles for ({', '.join(TARGETS)})"
    )


_PARTITIONS = 4


def occupancy(target: Target, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """The occupancy of a kernel.

    Args:
        target: the architecture.
        threads: the threads of a block.
        registers: the registers of a thread.
        shared_bytes: shared memory of a block, static and dynamic.
    """
    warps = -(-threads // target.threads_per_warp)
    shared = _up(shared_bytes + target.shared_bytes_reserved, target.shared_unit_bytes)
    limits = {
        "registers": _by_registers(target, warps, registers),
        # Before sm_80 a block without any takes none, and other limits are lower.
        "shared memory": target.shared_bytes_per_sm // (shared or target.shared_unit_bytes),
        "warps": target.warps_per_sm // warps,
        "blocks": target.blocks_per_sm,
    }
    if shared_bytes > target.shared_bytes_per_block:
        limits["shared memory"] = 0
    blocks = min(limits.values())
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        max_warps=target.warps_per_sm,
        limits=limits,
        limited_by=tuple(name for name, most in limits.items() if most == blocks),
    )


def _by_registers(target: Target, warps: int, registers: int) -> int:
    if registers > target.registers_per_thread:
        return 0
    per_warp = _up(max(registers, 1) * target.threads_per_warp, target.register_unit)
    per_partition = target.registers_per_sm // _PARTITIONS // per_warp
    return per_partition * _PARTITIONS // warps


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
