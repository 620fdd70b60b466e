"""The NVIDIA architectures that tkdebug compiles for, and the sentence for the others.

Sources: CUDA C++ Programming Guide, appendix "Compute Capabilities", table "Technical
Specifications per Compute Capability" (limits), and tables "Arithmetic Instructions" and
"Feature Support per Compute Capability"; PTX ISA, "Target ISA Notes" of each instruction
(features); CUDA Occupancy Calculator (allocation units).
"""

from __future__ import annotations

import re

from tkdebug.compiler.layouts.shared_banks import SharedBanks
from tkdebug.compiler.targets.target import (
    BF16_ARITHMETIC,
    CLUSTER,
    FP8_CONVERSIONS,
    FP8_MMA,
    STMATRIX,
    TMA,
    VECTOR_ATOMICS,
    WGMMA,
    Target,
)

BACKEND = "nvptx"
WARP_SIZE = 32
# CUDA C++ Programming Guide, "Shared Memory": 32 banks, successive 32-bit words in successive
# banks; an access of 8 or 16 bytes per thread is made in two or four parts of consecutive lanes.
BANKS = SharedBanks(count=32, word_bytes=4, access_bytes=16)
_KIB = 1024

_ADA = frozenset((FP8_CONVERSIONS, FP8_MMA))
_HOPPER = _ADA | {BF16_ARITHMETIC, CLUSTER, TMA, WGMMA, STMATRIX, VECTOR_ATOMICS}
_NAME = re.compile(r"(?:sm_?)?(\d{2,3})[af]?")


def _architecture(
    name: str,
    shared_kib: int,
    warps: int,
    blocks: int,
    capabilities: frozenset[str] = frozenset(),
) -> Target:
    """An architecture of `shared_kib` KiB of shared memory a multiprocessor.

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
        shared_bytes_per_block=(shared_kib - 1) * _KIB,
        warps_per_sm=warps,
        blocks_per_sm=blocks,
        registers_per_sm=65536,
        registers_per_thread=255,
        threads_per_block=1024,
        register_unit=256,
        shared_bytes_reserved=_KIB,
        shared_unit_bytes=128,
        capabilities=capabilities,
    )


def capability_of(asked: object) -> tuple[int, int] | None:
    """The compute capability that `asked` names: "sm_90a", "sm90", "90", 90 or (9, 0)."""
    if isinstance(asked, tuple):
        return asked
    match = _NAME.fullmatch(str(asked))
    return None if match is None else divmod(int(match[1]), 10)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _architecture("sm_80", 164, warps=64, blocks=32),
        _architecture("sm_86", 100, warps=48, blocks=16),
        _architecture("sm_89", 100, warps=48, blocks=24, capabilities=_ADA),
        _architecture("sm_90a", 228, warps=64, blocks=32, capabilities=_HOPPER),
    )
}
_OLDEST = min(target.capability for target in TARGETS.values())
_NEWEST = max(target.capability for target in TARGETS.values())


def find(asked: object) -> Target | None:
    """The target of this name or compute capability; None where there is none."""
    capability = capability_of(asked)
    return next((t for t in TARGETS.values() if t.capability == capability), None)


def unsupported(asked: object) -> str | None:
    """The sentence for an architecture that is none of `TARGETS`.

    None where `asked` names no NVIDIA GPU of compute capability 5.0 or later.
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
