"""What sessions keep of advice: remarks, what launches cost, what lines of them cost.

Plugins may record remarks of their own: `HOOKS.record(Remark(…))`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.storage import stored


@stored("remarks", indices=("kernel_hash",))
@dataclass(frozen=True, slots=True)
class Remark:
    """Why a launch takes as long as it does, at the line of the cause, and what would help.

    Attributes:
        kernel_hash: which specialisation.
        launch_id: the launch that was looked at; 0 for none.
        kind: of the cause, such as "uncoalesced".
        predicted_ns: of the launch as it is; 0 where nothing was predicted.
        better_ns: of the launch without the cause.
    """

    kernel: str
    kernel_hash: str
    launch_id: int
    file: str
    line: int
    kind: str
    message: str
    predicted_ns: float = 0.0
    better_ns: float = 0.0


@stored("launch_costs", indices=("kernel_hash",))
@dataclass(frozen=True, slots=True)
class LaunchCost:
    """What one launch asks of a GPU, and the time that is predicted for it.

    Attributes:
        target: the architecture that it was compiled for.
        machine: the GPU that times are predicted for.
        ceilings: what is known of it: "by its data sheet", or "as measured on" a date.
        read_bytes: of sectors that it reads, each once.
        written_bytes: alike.
        l2_bytes: that go through the second-level cache.
        flops: of arithmetic on fp32 and fp64 units.
        tensor_flops: of products on tensor cores.
        predicted_ns: in steady state, without the time to launch.
        grid_ns: alike, as its grid fills the GPU.
        roof_ns: the least that its bytes and products take on that GPU.
        bound: the resource that takes longest.
        bound_share: of its time in `predicted_ns`.
        occupancy_percent: resident warps of those possible.
        limited_by: what keeps them from being more.
        is_exact: whether bytes are of every element, not of a sample.
    """

    kernel: str
    kernel_hash: str
    launch_id: int
    file: str
    line: int
    grid: tuple[int, int, int]
    target: str
    machine: str
    ceilings: str
    read_bytes: int
    written_bytes: int
    l2_bytes: int
    flops: int
    tensor_flops: int
    predicted_ns: float
    grid_ns: float
    roof_ns: float
    bound: str
    bound_share: float
    occupancy_percent: float
    limited_by: tuple[str, ...]
    is_exact: bool
    resources_ns: Mapping[str, float]


@stored("line_costs", indices=("kernel_hash",))
@dataclass(frozen=True, slots=True)
class LineCost:
    """What one line of a launch costs in memory.

    Attributes:
        what: "load", "store", "atomic", or "shared".
        tensor: the argument that it accesses, "" for none.
        requests: instructions of warps, in the launch.
        sectors: that each touches on average; 0 for shared memory.
        needed_sectors: that its bytes would fill; 0 for shared memory.
        width_bytes: of a thread's access; 0 for shared memory.
        conflicts: of shared memory, wavefronts beyond those that are needed, in the launch.
    """

    kernel: str
    kernel_hash: str
    launch_id: int
    file: str
    line: int
    what: str
    tensor: str
    requests: float
    sectors: float
    needed_sectors: float
    width_bytes: int
    conflicts: float
