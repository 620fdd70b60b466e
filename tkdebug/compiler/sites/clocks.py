"""Clock sites: where a kernel with timelines reads the clock, and the memory for the readings.

A site is an op that takes time: one that goes to memory, multiplies, exchanges between threads or
waits, or arithmetic of floats on a line of its own. Both the lowering and the reader of a launch
number the sites of the same GPU IR, so nothing is written into it but the programs that are asked
for.

For each program that is asked for, and each of its warps, there is a header and room for marks, all
zero before the launch. A header has four words of 8 bytes: the global timer at the beginning and at
the end, the multiprocessor's number above the clock at the beginning, the count of marks above the
clock at the end. A mark has the clock in its lower 32 bits and the number of its site above.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tkdebug.compiler.dialects import scf, tt, ttg
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.core import Block, Operation
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, TensorType, element_of
from tkdebug.timelines import ClockSite, WarpTimeline

HEADER_WORDS: Final = 4
WORD_BYTES: Final = 8
_HEADER: Final = struct.Struct("<QQQQ")
_MARK: Final = struct.Struct("<II")
# Ops that compute addresses and shapes, or nothing at all; their time counts as their users'.
_FREE: Final = names_of(
    tt.Rearrangement,
    tt.Hint,
    tt.AddPtr,
    ttg.MemDescView,
    ttg.LocalAlloc,
    ttg.LocalDealloc,
    tt.Return,
)


@dataclass(frozen=True, slots=True)
class TimelineOptions:
    """The programs whose timelines a kernel keeps, and the length of each.

    Attributes:
        programs: numbers of the programs.
        marks: the marks for each warp.
    """

    programs: tuple[int, ...]
    marks: int = 2048


@dataclass(frozen=True, slots=True)
class TimelinePlan:
    """The key to the timelines of a launch.

    Attributes:
        options: the readings to keep.
        warps: the warps of a program.
        sites: the clock sites, by number.
    """

    options: TimelineOptions
    warps: int
    sites: tuple[ClockSite, ...]

    @property
    def size_bytes(self) -> int:
        """Size of a launch's memory for timelines, in bytes."""
        return len(self.options.programs) * self.warps * warp_bytes(self.options.marks)


def warp_bytes(marks: int) -> int:
    """Size of the memory for one warp's header and marks, in bytes."""
    return WORD_BYTES * (HEADER_WORDS + marks)


def clock_sites(function: Operation) -> Mapping[Operation, int]:
    """The ops before which the clock is read, with their numbers, in program order."""
    return {op: number for number, op in enumerate(_sites(function.regions[0].block))}


def described_sites(function: Operation) -> tuple[ClockSite, ...]:
    """Return the clock sites as sessions store them: op, loop depth and frames of each."""
    return tuple(
        ClockSite(op.name, sum(1 for _ in scf.loops_around(op)), op.location.frames)
        for op in clock_sites(function)
    )


def _sites(block: Block) -> Iterator[Operation]:
    last: Operation | None = None
    for op in block.operations:
        if op.name in CONTROL_FLOW:
            for region in op.regions:
                for inner in region.blocks:
                    yield from _sites(inner)
            last = None
        elif _acts(op) or _is_float_arithmetic(op):
            is_elsewhere = last is None or op.location.frames != last.location.frames
            if is_elsewhere or (_acts(op) and last is not None and op.name != last.name):
                yield op
                last = op


def _acts(op: Operation) -> bool:
    """Whether an op goes to memory, multiplies tiles, exchanges between threads, or waits."""
    dialect = op.name.partition(".")[0]
    if dialect in ("arith", "math", "scf") or op.name in _FREE:
        return False
    # Ranges and program numbers have results and no operands.
    return bool(op.operands) or not op.results


def _is_float_arithmetic(op: Operation) -> bool:
    if op.name.partition(".")[0] not in ("arith", "math") or not op.results:
        return False
    type_ = op.results[0].type
    element = element_of(type_)
    is_float = isinstance(element, ScalarType) and element.name[0] in "fb" and element.bits > 1
    return isinstance(type_, TensorType) and is_float and bool(op.operands)


def timelines_of(
    plan: TimelinePlan, data: bytes, kernel: str, launch_id: int, grid: tuple[int, int, int]
) -> Sequence[WarpTimeline]:
    """The timelines that a launch left; programs that are not in its grid have none."""
    found, size = [], warp_bytes(plan.options.marks)
    for place, program in enumerate(plan.options.programs):
        for warp in range(plan.warps):
            first = (place * plan.warps + warp) * size
            start_ns, end_ns, begin, end = _HEADER.unpack_from(data, first)
            if not start_ns:
                continue
            count = end >> 32
            kept = min(count, plan.options.marks)
            marks = data[first + _HEADER.size : first + _HEADER.size + kept * _MARK.size]
            found.append(
                WarpTimeline(
                    kernel,
                    launch_id,
                    grid,
                    program,
                    warp,
                    begin >> 32,
                    start_ns,
                    end_ns,
                    begin & 0xFFFFFFFF,
                    end & 0xFFFFFFFF,
                    plan.sites,
                    tuple((clock, site) for clock, site in _MARK.iter_unpack(marks)),
                    count - kept,
                )
            )
    return found
