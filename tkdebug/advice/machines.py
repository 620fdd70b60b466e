"""The GPUs that predictions are made for: of each architecture one by default, or one by its name.

Sources: NVIDIA's data sheets and white papers of the A100, A10, L40S and H100 (SXM); throughput of
instructions: CUDA C++ Programming Guide, "Arithmetic Instructions" (results a cycle and
multiprocessor, here in warps); bandwidth of the second-level cache and latencies: measured on an
H100, scaled by multiprocessors and clock for the others.

Ceilings that were measured on a GPU (`tkdebug.ceilings`) are kept in a small file beside compiled
kernels, and replace the data sheet's figures. Invariant: a figure that was not measured stays the
data sheet's, and predictions say which they are made for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
from tkdebug.process.disk_cache import user_cache
from tkdebug.process.named_files import read_text
from tkdebug.terminal.text import tell

# The share of a data sheet's peak that the best kernels reach, of tensor cores and of memory.
TENSOR_SHARE = 0.75
MEMORY_SHARE = 0.92
SECTOR_BYTES = 32
LINE_BYTES = 128


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU.

    Attributes:
        name: its maker's name for it.
        sms: multiprocessors.
        clock_hz: the clock of its multiprocessors.
        dram_bytes_per_s: the bandwidth of its memory.
        l2_bytes_per_s: the bandwidth of the second-level cache.
        tensor_flops: dense flops a second, by width of an operand in bits; 19 bits for tf32.
        mma_share: the share of the peak that mma.sync reaches, if warpgroup instructions reach all
            of it.
        warps_per_cycle: instructions of a warp that each pipe of a multiprocessor takes a cycle.
        l1_bytes: the size of the first-level cache and shared memory of a multiprocessor, together.
        l2_bytes: the size of the second-level cache.
        memory_latency_s: the latency of a load from memory, while others are busy with it too.
        l2_latency_s: the latency of a load from the second-level cache.
        l1_latency_s: the latency of a load from the first-level cache.
        basis: the origin of its figures, to be read after its name.
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
# Others of these architectures, by the names that NVML gives them. Sources: NVIDIA's data sheets of
# the H200 (SXM), H100 (PCIe) and A100 (40 GB).
_A100_40GB = replace(MACHINES["sm_80"], name="A100 40 GB", dram_bytes_per_s=1.555e12)
NAMED: Mapping[tuple[str, str], Machine] = {
    ("sm_90a", "NVIDIA H200"): replace(
        MACHINES["sm_90a"], name="H200 SXM", dram_bytes_per_s=4.8e12
    ),
    ("sm_90a", "NVIDIA H100 PCIe"): replace(
        MACHINES["sm_90a"],
        name="H100 PCIe",
        sms=114,
        dram_bytes_per_s=2.0e12,
        l2_bytes_per_s=12e12,
        tensor_flops={8: 1513e12, 16: 756e12, TF32_BITS: 378e12, 64: 51e12},
    ),
    ("sm_80", "NVIDIA A100-SXM4-40GB"): _A100_40GB,
    ("sm_80", "NVIDIA A100-PCIE-40GB"): _A100_40GB,
}


FORMAT = 1
_MAX_BYTES = 1 << 20
# The measured ceilings, and their units.
UNITS: Mapping[str, str] = {
    "memory": "B/s",
    "L2 cache": "B/s",
    "fp32": "flop/s",
    "tensor fp16": "flop/s",
    "tensor bf16": "flop/s",
    "tensor tf32": "flop/s",
    "tensor fp8": "flop/s",
}
_TENSOR_BITS = {"tensor fp16": 16, "tensor tf32": TF32_BITS, "tensor fp8": 8}
_FLOPS_OF_A_WARP = 64  # an FMA of 32 threads


def fp32_flops_per_s(machine: Machine) -> float:
    """Return the flops a second of its fp32 units, all of them in fused multiply-adds."""
    return machine.cycles_per_s * machine.warps_per_cycle["fp32"] * _FLOPS_OF_A_WARP


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One measured figure, and the spread of its repeats.

    Attributes:
        rate: median of the repeats, a second.
        lowest: the lowest of the repeats.
        highest: the highest of the repeats.
        repeats: the number of repeats.
        sm_mhz: clock of the multiprocessors while they ran, None if NVML does not say.
    """

    rate: float
    lowest: float
    highest: float
    repeats: int
    sm_mhz: int | None


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Figures that one GPU reached.

    Attributes:
        gpu: its UUID.
        driver: version of its driver.
        target: architecture that the kernels were compiled for.
        sms: multiprocessors.
        date: the date of the measurement, as 2026-11-23.
        figures: the figures by their names in `UNITS`.
    """

    gpu: str
    name: str
    driver: str
    target: str
    sms: int
    date: str
    figures: Mapping[str, Ceiling]

    @property
    def sm_mhz(self) -> int | None:
        """The lowest clock of the multiprocessors that was seen, or None."""
        return min((f.sm_mhz for f in self.figures.values() if f.sm_mhz), default=None)


def folder() -> Path:
    """Return the folder of the ceilings' files, beside compiled kernels."""
    return (KNOBS.cache_dir or user_cache()) / "ceilings"


def save(ceilings: Ceilings) -> Path:
    """Write ceilings into the file of their GPU; return its path.

    Raises:
        UsageError: the file cannot be written.
    """
    path = folder() / f"{ceilings.gpu}.json"
    beside = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(as_json(ceilings), encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise UsageError(f"cannot write {path} ({error.strerror}); set TKDEBUG_CACHE_DIR") from None
    return path


def as_json(ceilings: Ceilings) -> str:
    """The text of the ceilings' file."""
    return json.dumps({"format": FORMAT, **asdict(ceilings)}, indent=1) + "\n"


def read(path: Path) -> Ceilings:
    """Read the ceilings in a file.

    Raises:
        ValueError: it is no file of ceilings.
        OSError: the file cannot be read.
    """
    data = json.loads(read_text(path, _MAX_BYTES))
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise ValueError(f"expected a file of format {FORMAT}")
    try:
        figures = {name: Ceiling(**data["figures"][name]) for name in data["figures"]}
        found = Ceilings(**{**data, "figures": figures})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not as it was written: {error}") from None
    if not found.figures.keys() <= UNITS.keys() or not all(f.rate > 0 for f in figures.values()):
        raise ValueError("figures that are not known, or not positive")
    return found


def newest(target: str, gpu: str | None = None) -> Ceilings | None:
    """Return the newest measured ceilings of an architecture, or None if there are none.

    Args:
        target: the architecture.
        gpu: the only name of a GPU that counts; None for all.
    """
    found = [one for one in _all() if one.target == target and gpu in (None, one.name)]
    return max(found, key=lambda one: one.date, default=None)


def _all() -> Iterator[Ceilings]:
    for path in sorted(folder().glob("*.json")):
        try:
            yield read(path)
        except (OSError, ValueError) as error:
            _tell_damaged(path, str(error))


@cache
def _tell_damaged(path: Path, reason: str) -> None:
    """Report a damaged file once, although each launch that is judged reads it."""
    tell(f"{path}: {reason}; measure again with tkdebug ceilings")


def measured_machine(machine: Machine, ceilings: Ceilings) -> Machine:
    """`machine` with measured figures in place of the data sheet's.

    The model takes a share of a data sheet's peak. A measured rate is what is reached, and so is
    divided by that share first.
    """
    figures = ceilings.figures
    clock_hz = machine.clock_hz if ceilings.sm_mhz is None else ceilings.sm_mhz * 1e6
    tensor = dict(machine.tensor_flops)
    for name, bits in _TENSOR_BITS.items():
        if name in figures:
            tensor[bits] = figures[name].rate / TENSOR_SHARE
    warps = dict(machine.warps_per_cycle)
    if "fp32" in figures:
        warps["fp32"] = figures["fp32"].rate / (_FLOPS_OF_A_WARP * ceilings.sms * clock_hz)
    memory, l2 = figures.get("memory"), figures.get("L2 cache")
    at = "" if ceilings.sm_mhz is None else f" at {ceilings.sm_mhz} MHz"
    return replace(
        machine,
        name=ceilings.name,
        sms=ceilings.sms,
        clock_hz=clock_hz,
        dram_bytes_per_s=machine.dram_bytes_per_s if not memory else memory.rate / MEMORY_SHARE,
        l2_bytes_per_s=machine.l2_bytes_per_s if not l2 else l2.rate,
        tensor_flops=tensor,
        warps_per_cycle=warps,
        basis=f"as measured on {ceilings.date}{at}",
    )
