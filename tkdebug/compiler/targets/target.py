"""The features of an architecture, as data: limits, warp size, the names of its capabilities.

Responsible for nothing that only one kind of GPU has. The architectures themselves are the
backends' (`nvptx/architectures.py`); the facts of this machine's device (memory, clock, number of
multiprocessors) are the runtime's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.layouts.shared import SharedBanks

# The capabilities that our passes and lowerings ask for. A backend may have others, for its own.
ASYNC_COPIES = "async_copies"  # `cp.async`
MMA_SM80 = "mma_sm80"  # `mma` of sm_80: m16n8k16, bf16, tf32 and bytes; without it m16n8k8 of fp16
REDUX = "redux"  # `redux.sync`
L2_POLICIES = "l2_policies"  # `createpolicy` and `.L2::cache_hint`
BF16_CONVERSIONS = "bf16_conversions"  # `cvt` to bf16
BF16_ARITHMETIC = "bf16_arithmetic"  # `add`, `sub`, `mul` on bfloat16, not only `fma.rn.bf16`
FP8_CONVERSIONS = "fp8_conversions"  # `cvt` to and from e4m3x2 and e5m2x2
FP8_MMA = "fp8_mma"  # `mma` on e4m3 and e5m2
CLUSTER = "cluster"  # thread block clusters, distributed shared memory, `mapa`
TMA = "tma"  # `cp.async.bulk.tensor`
TCGEN05 = "tcgen05"  # `tcgen05.mma` and tensor memory; no lowering uses them
WGMMA = "wgmma"  # `wgmma.mma_async` and `setmaxnreg`
STMATRIX = "stmatrix"
VECTOR_ATOMICS = "vector_atomics"  # `atom.add` and `red.add` of 16 bytes of floats


@dataclass(frozen=True, slots=True)
class Target:
    """One architecture: its limits on a kernel, and its capabilities.

    Attributes:
        name: the name as its tools write it, `sm_90a`.
        backend: name of the backend that compiles for it.
        capability: (major, minor) of its version.
        threads_per_warp: lanes of a warp.
        banks: the banks of shared memory.
        shared_bytes_per_sm: shared memory of a multiprocessor.
        shared_bytes_per_block: most that one block may have, after opting in.
        warps_per_sm: resident warps of a multiprocessor.
        blocks_per_sm: resident blocks of a multiprocessor.
        registers_per_sm: 32-bit registers of a multiprocessor; also the most one block may use.
        registers_per_thread: most registers of one thread.
        register_unit: registers are given to warps in multiples of this.
        shared_bytes_reserved: the system's part of every block's share.
        shared_unit_bytes: shared memory is given out in multiples of this.
        threads_per_block: most threads of one block.
        capabilities: the capabilities by name, such as those above.
        is_tried: whether its kernels ever ran on such a GPU; else they were only compiled.
    """

    name: str
    backend: str
    capability: tuple[int, int]
    threads_per_warp: int
    banks: SharedBanks
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    warps_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    registers_per_thread: int
    threads_per_block: int
    register_unit: int = 1
    shared_bytes_reserved: int = 0
    shared_unit_bytes: int = 1
    capabilities: frozenset[str] = frozenset()
    is_tried: bool = True

    def has(self, capability: str) -> bool:
        """Whether the architecture has the capability of this name."""
        return capability in self.capabilities

    def __str__(self) -> str:
        return self.name
