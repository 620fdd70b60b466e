"""Records of the GPU itself: the activities of all launchers on it, and its states.

`instrument.records` lists them with the other records; `instrument.activities` reads batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tkdebug.errors import Frame
from tkdebug.records.storage import SHORT, stored

ACTIVITY_KINDS = ("kernel", "memcpy", "memset")


@dataclass(frozen=True, slots=True)
class Activity:
    """One kernel, copy or fill that the GPU ran, as CUPTI recorded it.

    Attributes:
        kind: "kernel", "memcpy" or "memset".
        name: the name of the kernel, as its object file has it; for a copy, its direction, such as
            "HtoD".
        process: the process that launched it.
        launch: `id` of the launch that it belongs to; 0 for others' work.
        start_ns: its begin, since 1970.
        device: the number of the device in CUDA.
        context: CUPTI's number of the CUDA context.
        stream: CUPTI's number of the CUDA stream, which is not its handle.
        grid: blocks along x, y and z; of a copy or fill (0, 0, 0).
        block: threads along x, y and z.
        registers: the registers of a thread.
        static_shared_bytes: shared memory that the kernel declares, of a block.
        dynamic_shared_bytes: shared memory that the launch asked for.
        size_bytes: the size of a copy or fill.
        graph: CUPTI's number of the CUDA graph that launched it, 0 for none.
        origin: `number` of the `Origin` that it was launched from, 0 if that is not known.
    """

    kind: str
    name: str
    process: int
    launch: int
    start_ns: int
    duration_ns: int
    device: int
    context: int
    stream: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    size_bytes: int
    graph: int
    origin: int = 0


@stored("origins")
@dataclass(frozen=True, slots=True)
class Origin:
    """The place in the script from which others' kernels were launched.

    Attributes:
        number: unique in its process.
        frame: the line that called the operation of torch.
        scopes: names of the scopes around it, outermost first: modules, `record_function`,
            Proton's.
    """

    number: int
    frame: Frame
    scopes: tuple[Annotated[str, SHORT], ...]


@dataclass(frozen=True, slots=True)
class ActivityTotal:
    """Times of all activities of one kind and name that belong to no launch of tkdebug's.

    Attributes:
        in_graph: whether a CUDA graph launched them; those are tkdebug's kernels, too.
    """

    kind: str
    name: str
    in_graph: bool
    count: int
    total_ns: int
    min_ns: int
    max_ns: int

    @property
    def mean_ns(self) -> float:
        """Mean duration."""
        return self.total_ns / self.count if self.count else 0.0

    def plus(self, other: ActivityTotal) -> ActivityTotal:
        """Return the sum of both."""
        return ActivityTotal(
            self.kind,
            self.name,
            self.in_graph,
            self.count + other.count,
            self.total_ns + other.total_ns,
            min(self.min_ns, other.min_ns),
            max(self.max_ns, other.max_ns),
        )


@stored("activities")
@dataclass(frozen=True, slots=True)
class ActivityBatch:
    """Activities of one process that became known together.

    Attributes:
        count: the number of activities.
        start_ns: the start of the first.
        end_ns: the end of the last.
        names: the names that the records in `data` point to.
        totals: the totals of activities that belong to no launch of tkdebug's.
        data: the records, packed and compressed; `instrument.activities.unpacked` reads them.
    """

    count: int
    start_ns: int
    end_ns: int
    names: tuple[str, ...]
    totals: tuple[ActivityTotal, ...]
    data: bytes


@stored("lost_activities")
@dataclass(frozen=True, slots=True)
class LostActivities:
    """A loss: records that CUPTI could not record or deliver.

    Attributes:
        count: records that it dropped since the last time; 0 if recording ended.
        reason: why, in one line.
    """

    count: int
    reason: str


@stored("sampled_images")
@dataclass(frozen=True, slots=True)
class SampledImage:
    """The checksum by which CUPTI names a kernel's object file.

    Attributes:
        kernel_hash: the specialisation (`hash` of kernels).
        crc: CUPTI's checksum of the cubin.
    """

    kernel_hash: str
    crc: int


@stored("stall_samples")
@dataclass(frozen=True, slots=True)
class StallSamples:
    """Samples of one function since the last time: its warps' places and waits.

    Attributes:
        crc: CUPTI's checksum of the cubin that the function is in.
        function: the name of the function in the cubin.
        reasons: names of stall reasons, without the prefix that all have in common.
        counts: (offset of the instruction in the function, place in `reasons`, samples).
    """

    crc: int
    function: str
    reasons: tuple[str, ...]
    counts: tuple[tuple[int, int, int], ...]


@stored("sampling_totals")
@dataclass(frozen=True, slots=True)
class SamplingTotal:
    """The number of samples of one context since the last time.

    Attributes:
        samples: the samples of all kernels, also of those for which CUPTI gives no instructions.
        dropped: samples for which the hardware had no room.
    """

    samples: int
    dropped: int


@stored("gpu_states")
@dataclass(frozen=True, slots=True)
class GpuState:
    """The state of a GPU at one time, by NVML.

    Attributes:
        gpu: its UUID.
        name: the name of its model.
        is_busy: whether kernels of this process ran since the state before.
        sm_clock_mhz: the clock of its processors.
        memory_clock_mhz: the clock of its memory.
        slowdown_reasons: why clocks are lower than they could be: nvmlClocksEventReasons, a bit
            each.
        performance_state: 0 for P0, the fastest.
        temperature_c: the temperature of the chip.
        power_mw: the power that it takes.
    """

    gpu: str
    name: str
    is_busy: bool
    sm_clock_mhz: int
    memory_clock_mhz: int
    slowdown_reasons: int
    performance_state: int
    temperature_c: int
    power_mw: int
