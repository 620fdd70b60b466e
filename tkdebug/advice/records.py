"""Records of advice in sessions: remarks, costs of launches, costs of their lines.

The code that they are about is tkdebug's, without checks and watches.

Plugins may record remarks of their own: `HOOKS.record(Remark(…))`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tkdebug.records.storage import stored

LAUNCH, FILLED = "launch", "filled"
SMALL_GRID_KIND = "small-grid"
_HOLDS = 1.07
# Work that a full GPU does in less is a test's: launching it again takes as long.
TINY_NS = 10e3
# A grid that takes so many times as long as its work on a full GPU leaves much of it idle.
SMALL_GRID = 1.3


@stored("remarks", indices=("kernel_hash",))
@dataclass(frozen=True, slots=True)
class Remark:
    """A cause of a launch's time, at its line, and what would help.

    Attributes:
        kernel_hash: the specialisation.
        launch_id: the launch that was looked at; 0 for none.
        kind: the kind of the cause, such as "uncoalesced".
        predicted_ns: the time of the launch as it is; 0 if nothing was predicted.
        better_ns: the time of the launch without the cause.
        filled_ns: the time of the launch if as much work were part of a grid that fills the GPU.
        filled_better_ns: the same without the cause.
        judged: "launch" or "filled", by which of the two it is ranked; "" if nothing was predicted.
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
    filled_ns: float = 0.0
    filled_better_ns: float = 0.0
    judged: str = ""

    @property
    def holds_filled(self) -> bool:
        """Whether the change would help in a grid that fills the GPU, too."""
        return self.filled_ns > _HOLDS * self.filled_better_ns

    @property
    def ranked_by(self) -> tuple[float, float]:
        """The times by which the remark is ranked: with the cause and without it."""
        if self.judged == FILLED:
            return self.filled_ns, self.filled_better_ns
        return self.predicted_ns, self.better_ns


def ranked(remarks: Iterable[Remark]) -> list[Remark]:
    """The remarks on one launch, the most promising first.

    For a launch with so little work that a full GPU would end it before the next one is launched,
    remarks on its grid come after those that would hold for a larger one, too.
    """
    found = sorted(remarks, key=lambda one: one.ranked_by[1] / max(1e-9, one.ranked_by[0]))
    held = [one for one in found if one.holds_filled and one.kind != SMALL_GRID_KIND]
    if not held or held[0].filled_ns >= TINY_NS:
        return found
    of_grid = [one for one in found if one.kind == SMALL_GRID_KIND]
    last = held[-1]
    rest = [one for one in found if one.kind != SMALL_GRID_KIND]
    after = rest.index(last) + 1
    return [*rest[:after], *of_grid, *rest[after:]]


@stored("launch_costs", indices=("kernel_hash",))
@dataclass(frozen=True, slots=True)
class LaunchCost:
    """Costs of one launch on a GPU, and the time that is predicted for it.

    Attributes:
        target: the architecture that it was compiled for.
        machine: the GPU that times are predicted for.
        ceilings: the source of its figures: "by its data sheet", or "as measured on" a date.
        read_bytes: bytes of sectors that it reads, each once.
        written_bytes: bytes written, counted in the same way.
        l2_bytes: bytes that go through the second-level cache.
        flops: the flops of arithmetic on fp32 and fp64 units.
        tensor_flops: the flops of products on tensor cores.
        predicted_ns: the time if as much work were part of a grid that fills the GPU, without the
            time to launch.
        grid_ns: the same for the grid as it is.
        roof_ns: the least that its bytes and products take on that GPU.
        bound: the resource that takes longest, of `resources_ns`.
        bound_share: the share of its time in `predicted_ns`.
        occupancy_percent: share of resident warps among those possible.
        limited_by: the resources that limit the number of resident warps.
        is_exact: whether bytes are of every element, not of a sample.
        resources_ns: the time of each resource, were there nothing else and the GPU full.
        launched_bound: the resource that takes longest with the grid as it is.
        launched_share: the share of its time in `grid_ns`.
        program_ns: times of one program from its begin to its end, by activity.
        ceilings_per_s: bytes and flops a second that "memory", "tensor cores" (for its products)
            and "fp32" reach at most.
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
    launched_bound: str = ""
    launched_share: float = 0.0
    program_ns: Mapping[str, float] = field(default_factory=dict)
    ceilings_per_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_small(self) -> bool:
        """Whether its grid leaves much of the GPU idle."""
        return self.grid_ns > SMALL_GRID * self.predicted_ns


@stored("line_costs", indices=("kernel_hash",))
@dataclass(frozen=True, slots=True)
class LineCost:
    """Costs of one line of a launch in memory.

    Attributes:
        what: "load", "store", "atomic", or "shared".
        tensor: the argument that it accesses, "" for none.
        requests: instructions of warps, in the launch.
        sectors: the sectors that each touches on average; 0 for shared memory.
        needed_sectors: the sectors that its bytes would fill; 0 for shared memory.
        width_bytes: the size of a thread's access; 0 for shared memory.
        conflicts: wavefronts of shared memory beyond the needed ones, in the launch.
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


@stored("line_times", indices=("kernel_hash",))
@dataclass(frozen=True, slots=True)
class LineTime:
    """The part of a launch's predicted time that is a line's.

    Attributes:
        share: the line's share of the launch's time, 0 to 1; a launch's shares add up to 1.
        instructions: the warp instructions that the launch executes there.
    """

    kernel: str
    kernel_hash: str
    launch_id: int
    file: str
    line: int
    share: float
    instructions: float
