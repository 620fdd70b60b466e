"""The GPUs that predictions are made for: one for each architecture, by its data sheet.

Sources: NVIDIA's data sheets and white papers of the A100, A10, L40S and H100 (SXM); throughput of
instructions: CUDA C++ Programming Guide, "Arithmetic Instructions" (results a cycle and
multiprocessor, here in warps); bandwidth of the second-level cache and latencies: measured on an
H100, scaled by multiprocessors and clock for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Of products on tensor cores and of memory, what the best kernels reach of a data sheet's peak.
TENSOR_SHARE = 0.75
MEMORY_SHARE = 0.92
SECTOR_BYTES = 32
LINE_BYTES = 128


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU.

    Attributes:
        name: as its maker calls it.
        sms: multiprocessors.
        clock_hz: of them.
        dram_bytes_per_s: of its memory.
        l2_bytes_per_s: of the second-level cache.
        tensor_flops: a second, dense, by width of an operand in bits; "tf32" is of 19 bits.
        mma_share: what mma.sync reaches of that where warpgroup instructions reach all of it.
        warps_per_cycle: instructions of a warp that each pipe of a multiprocessor takes a cycle.
        l1_bytes: of the first-level cache and shared memory of a multiprocessor, together.
        l2_bytes: that the second-level cache holds.
        memory_latency_s: of a load from memory, while others are busy with it too.
        l2_latency_s: of one from the second-level cache, alike.
        l1_latency_s: of one from the first-level cache.
        basis: where its figures are from, to be read behind its name.
    """

    name: str
    sms: int
    clock_hz: float
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    tensor_flops: Mapping[int, float]
    mma_share: float
    warps_per_cycle: Mapping[str, float]
    l1_bytes: int
    l2_bytes: int
    memory_latency_s: float = 600e-9
    l2_latency_s: float = 300e-9
    l1_latency_s: float = 25e-9
    basis: str = "by its data sheet"

    @property
    def cycles_per_s(self) -> float:
        """Cycles of all multiprocessors together."""
        return self.sms * self.clock_hz


TF32_BITS = 19
_AMPERE = {
    **{"issue": 4, "fp32": 2, "imad": 2, "alu": 2},
    **{"fp64": 1, "special": 0.5, "convert": 0.5, "lsu": 1},
}
_CONSUMER = {**_AMPERE, "fp32": 4, "fp64": 1 / 16}
_HOPPER = {**_AMPERE, "fp32": 4, "fp64": 2}

MACHINES: Mapping[str, Machine] = {
    "sm_80": Machine(
        "A100 SXM 80 GB", 108, 1.41e9, 2.04e12, 9e12,
        {8: 624e12, 16: 312e12, TF32_BITS: 156e12, 64: 19.5e12}, 1.0, _AMPERE, 192 << 10, 40 << 20,
    ),
    "sm_86": Machine(
        "A10", 72, 1.7e9, 0.6e12, 2.2e12,
        {8: 250e12, 16: 125e12, TF32_BITS: 62.5e12}, 1.0, _CONSUMER, 128 << 10, 6 << 20,
    ),
    "sm_89": Machine(
        "L40S", 142, 2.5e9, 0.864e12, 4.5e12,
        {8: 733e12, 16: 362e12, TF32_BITS: 183e12}, 1.0, _CONSUMER, 128 << 10, 96 << 20,
    ),
    "sm_90a": Machine(
        "H100 SXM", 132, 1.755e9, 3.35e12, 14e12,
        {8: 1979e12, 16: 989e12, TF32_BITS: 494e12, 64: 67e12}, 0.62, _HOPPER, 256 << 10, 50 << 20,
    ),
}  # fmt: skip
