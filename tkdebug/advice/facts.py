"""Facts of one launch: accesses, products, instructions, resources. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tkdebug.errors import Frame
from tkdebug.linemap.parts import Occupancy
from tkdebug.linemap.warp_waits import Cause

AccessKind = Literal["load", "store", "atomic"]
# The way of an access's data.
AccessPath = Literal["registers", "copy", "bulk"]


# The sectors of a tile without gaps, of those that its bytes need: it may begin and end anywhere.
_FILLED = 1.5


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """All executions of one access to global memory.

    Attributes:
        frame: its line.
        tensor: name of the argument, "" if it is none.
        element_bytes: the size of the elements that pointers point to.
        executions: the number of executions by all programs together.
        tile_elems: elements of the tile.
        tile_axes: the number of its axes, 0 for a scalar.
        elements: the elements that masks let through, in all executions.
        requests: warp instructions in one execution.
        sectors: sectors of 32 bytes that one execution's requests touch, added up over requests.
        needed_sectors: the sectors that its bytes would fill without gaps.
        lines: lines of 128 bytes, counted in the same way.
        program_sectors: sectors that one execution touches, each once.
        width_bytes: the size of one thread's access.
        possible_bytes: widest access that the tile would permit (16 bytes at most).
        thread_bytes: the size of a thread's elements that follow each other in memory, aligned or
            not.
        held_bytes: the size of a thread's elements that follow each other in the tile.
        in_loop: whether it is in a loop.
        loop_depends: whether its addresses depend on loads of the loop.
        is_gather: whether its addresses come from memory.
        is_divided: whether its addresses come from divisions of whole tiles.
        repeated: share of executions that access the same memory as the program's previous one.
        again: the number of times that a program accesses the same elements, because iterations of
            loops do not change them.
        address_loads: ops of the loads that its addresses come from.
        loaded_by: op of an earlier load of the same elements in the program; None for none.
        same_address: most times that one address is accessed, in the launch.
        same_sector: most times that one sector of 32 bytes is accessed, each element counted.
        reached: share of executions in which masks let anything through, estimated; the others ask
            for nothing.
        addresses: the number of different addresses in one execution.
        overfetch_bytes: bytes of sectors that the launch reads or writes through it and does not
            need, not through another access either; shared by those that touch the same sector.
        footprint_bytes: bytes of elements that the launch accesses through it, each once.
        why_narrow: why `width_bytes` is not more, "" if no more is possible.
        odd: the arguments that keep addresses from being aligned, "" if none does.
        exact: whether counts are of all elements, not of a sample.
        axes: the axes of the grid that its addresses depend on.
        kept: share of its sectors that the program's execution before touched, too.
    """

    op_id: int
    frame: Frame
    kind: AccessKind
    path: AccessPath
    tensor: str
    element_bytes: int
    executions: int
    tile_elems: int
    elements: int
    requests: float
    sectors: float
    needed_sectors: float
    lines: float
    program_sectors: float
    width_bytes: int
    possible_bytes: int
    thread_bytes: int = 0
    held_bytes: int = 0
    in_loop: bool = False
    loop_depends: bool = False
    is_gather: bool = False
    is_divided: bool = False
    repeated: float = 0.0
    again: float = 1.0
    address_loads: tuple[int, ...] = ()
    loaded_by: int | None = None
    same_address: int = 1
    same_sector: int = 1
    reached: float = 1.0
    addresses: float = 0.0
    overfetch_bytes: int = 0
    footprint_bytes: int = 0
    tile_axes: int = 1
    why_narrow: str = ""
    odd: str = ""
    exact: bool = True
    axes: frozenset[int] = frozenset((0, 1, 2))
    kept: float = 0.0

    @property
    def on_share(self) -> float:
        """Share of all elements that masks let through."""
        possible = self.executions * self.tile_elems
        return self.elements / possible if possible else 1.0

    @property
    def is_split(self) -> bool:
        """Whether a thread loads neighbours of the tile one by one.

        Each of its requests then leaves gaps that the next ones fill.
        """
        return (
            self.width_bytes < self.held_bytes
            and self.program_sectors <= _FILLED * self.needed_sectors < self.sectors
        )


@dataclass(frozen=True, slots=True)
class DotFacts:
    """All executions of one matrix product.

    Attributes:
        flops: the flops of all executions.
        unit: "wgmma", "mma" or "fma".
        bits: the bits of an operand's element; 19 for tf32.
        operands: the operands' type as text, such as "f16".
        why: why the unit is no better, "" if it is the best.
        passes: products that one is made of: 3 for tf32x3.
        widened: the narrower type that an operand was cast from, if the data of the other are no
            wider; else "".
        tile: rows, columns and elements of a sum, in one execution.
        loads: ops of the loads that bring its operands; None if one is computed.
    """

    op_id: int
    frame: Frame
    flops: int
    unit: str
    bits: int
    operands: str
    why: str = ""
    passes: int = 1
    tile: tuple[int, int, int] = (0, 0, 0)
    loads: tuple[int | None, int | None] = (None, None)
    widened: str = ""


@dataclass(frozen=True, slots=True)
class BroadcastFacts:
    """All executions of a matrix product that is written as a sum of products of broadcast tiles.

    Attributes:
        frame: the frame of the sum.
        frames: the lines of the sum and of the products.
        flops: the flops of all executions.
        tile: rows, columns and elements of a sum, in one execution.
        bits: the bits of an element of the operands.
        loop_ops: all ops of the loop, if an iteration adds one element of each sum.
    """

    frame: Frame
    frames: tuple[Frame, ...]
    flops: int
    tile: tuple[int, int, int]
    bits: int
    loop_ops: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class WaitFacts:
    """Cycles that a warp of an average program waits for one thing, alone on its multiprocessor.

    Attributes:
        cause: the kind of the wait (`linemap.warp_waits.Cause`).
        frame: the frame of the awaited instruction.
        op_id: the id of its Tile IR op; None if there is none.
        cycles: the cycles in all iterations of loops.
        removable: by kind of slow code (`LineCode.by_cause`), the share that it takes.
    """

    cause: Cause
    frame: Frame
    op_id: int | None
    cycles: float
    removable: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """An outermost loop.

    Attributes:
        frame: its line.
        op_ids: the ids of all Tile IR ops in it, and its own.
        entries: how often programs enter it.
        rounds: the number of iterations each time.
        needs_before: the place of a loop-carried dependence other than a sum, minimum or maximum;
            None if iterations may run in any order.
        is_counted: whether the trip count is known when the loop begins.
        frames: the lines of its ops.
    """

    frame: Frame
    op_ids: frozenset[int]
    entries: int
    rounds: float
    needs_before: Frame | None
    is_counted: bool = True
    frames: frozenset[Frame] = frozenset()

    def has(self, wait: WaitFacts) -> bool:
        """Whether a wait is in the loop; for an instruction without an op, its line decides."""
        return wait.op_id in self.op_ids or (wait.op_id is None and wait.frame in self.frames)


# The kind of access to shared memory at the indices of a tl.gather.
GATHER = "gather"


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """All accesses to shared memory of one op.

    Attributes:
        wavefronts: wavefronts of 128 bytes, in all executions.
        needed: the number that there would be without bank conflicts.
    """

    op_id: int
    frame: Frame
    what: str
    wavefronts: float
    needed: float


@dataclass(frozen=True, slots=True)
class LineCode:
    """Machine instructions of one line, as a launch executes them.

    Attributes:
        by_pipe: instructions of warps, by the pipe that executes them ("fp64", "special", …);
            "issue" is all of them.
        by_cause: instructions that a slow op was lowered to, or that repeat earlier work, by kind
            ("integer-division") and pipe.
        per_element: by kind, instructions that such an op takes for one element.
    """

    frame: Frame
    by_pipe: Mapping[str, float]
    by_cause: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    per_element: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Discarded:
    """Products whose tiles a program discards entirely.

    Attributes:
        share: the share of executions whose whole tile is masked out.
    """

    frame: Frame
    share: float


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One launch.

    Attributes:
        frame: the kernel's `def`.
        programs: the programs of the grid.
        waits: the waits of a warp.
        why_not_pipelined: by op of a load, why it is not pipelined.
        read_bytes: bytes of sectors that are read, each once.
        written_bytes: bytes written, counted in the same way.
        widest_tile: elements of the largest tile of a program.
        local_bytes: local memory of a thread, spills included.
        flops: the flops of fp32 and fp64 arithmetic, without products of tensor cores.
        loops: the outermost ones.
        fullest: the line where most registers are in use; None if that is not known.
        exact: whether bytes are of all elements.
    """

    kernel: str
    kernel_hash: str
    frame: Frame
    target: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    occupancy: Occupancy
    registers: int
    spill_bytes: int
    shared_bytes: int
    accesses: tuple[AccessFacts, ...]
    dots: tuple[DotFacts, ...]
    shared: tuple[SharedFacts, ...]
    code: tuple[LineCode, ...]
    waits: tuple[WaitFacts, ...]
    why_not_pipelined: Mapping[int, str]
    read_bytes: int
    written_bytes: int
    flops: int
    widest_tile: int = 0
    local_bytes: int = 0
    broadcast_products: tuple[BroadcastFacts, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    loops: tuple[LoopFacts, ...] = ()
    fullest: Frame | None = None
    local_lines: Mapping[Frame, float] = field(default_factory=dict)
    exact: bool = True

    @property
    def programs(self) -> int:
        """Number of programs of the grid."""
        x, y, z = self.grid
        return x * y * z

    @property
    def tensor_flops(self) -> int:
        """Flops of products on tensor cores."""
        return sum(dot.flops for dot in self.dots if dot.unit != "fma")
