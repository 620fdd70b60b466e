"""Reports inputs that a launch means to read in full and does not, or whose parts it sums twice.

The elements that were read are worked out when the launch ends, and only where something points to
a gap: a mask whose bound no program reaches, a loop whose blocks do not divide what it walks along,
programs that share a sum. Reads whose offsets are loaded, and tensors that the kernel writes, are
left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.compiler.faults.hints import counted
from tkdebug.compiler.faults.messages import FaultText, named
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.checks.access_pattern_check import AccessPatternCheck
from tkdebug.interpreter.checks.coverage.load_facts import ModuleLoads
from tkdebug.interpreter.checks.coverage.rules import Gap, Gaps, Read, Reading
from tkdebug.interpreter.checks.dimension_ranges import is_small
from tkdebug.interpreter.checks.value_sources import MEMORY
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.checked_access import loaded_type
from tkdebug.interpreter.observers import LaunchContext, Moments
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    BoxMask,
    DescriptorTile,
    PointerTile,
    TileValue,
)


def coverage_text(gap: Gap, grid: tuple[int, int, int]) -> FaultText:
    """Return the text of a fault: elements that the launch left out, or read twice."""
    message, hint = _message_and_hint(gap, grid)
    return FaultText(
        "coverage", message, "warning", gap.buffer.name, gap.first * gap.stride, hint=hint
    )


def _message_and_hint(gap: Gap, grid: tuple[int, int, int]) -> tuple[str, str]:
    name = named(gap.buffer.name, "the tensor")
    elements = f"{gap.count * gap.behind} of the {counted(gap.size * gap.behind)} of {name}"
    if gap.dimension is None or len(gap.buffer.shape) == 1:
        place = f"the first at offset {gap.first * gap.stride}"
    else:
        place = f"the first at index {gap.first} of dimension {gap.dimension}"
    if gap.rule == "overlap":
        message = f"{elements} are added up twice, {place}; most are once"
        return message, (
            "the parts of the programs overlap: mask each part off where the next begins, as in "
            "offs < tl.minimum(start + part, n)"
        )
    message = f"{elements} are never read, {place}"
    if gap.rule == "block":
        return f"a block lies wholly past the end of {name}, while {message}", (
            "offsets of a block are in elements, program id * BLOCK, and in the order of the shape"
        )
    if gap.rule == "mask":
        return message, f"the mask ends before the last of {gap.size}: compare with n, not n - 1"
    if gap.rule == "repeated":
        return f"{message}, while others are read so much more often", (
            f"the {counted(gap.size)} along this dimension would all be read by as many reads: is "
            "its index made of the right program id, with the right block, group or stride?"
        )
    if gap.rule == "part":
        return message, (
            f"the parts of the programs do not add up to {gap.size}: use tl.cdiv for the length "
            f"of a part, and check the loop's bound and the grid, {grid}"
        )
    if gap.walk == "tile":
        return message, (
            f"the tile ends before the last of {gap.size}, and nothing moves it along: is its "
            "extent too small? Use triton.next_power_of_2(n), or a loop"
        )
    if gap.walk == "loop":
        return message, (
            "the loop ends before the last, ragged block: use tl.cdiv(n, BLOCK) rounds and a mask, "
            "or range(0, n, BLOCK)"
        )
    return message, f"is the grid, {grid}, too small? Use triton.cdiv(n, BLOCK) programs"


# Accesses of a launch that are kept until it ends; beyond, the launch is not looked at.
_MOST_KEPT = 100_000


class CoverageCheck(AccessPatternCheck):
    """`--check coverage`."""

    def __init__(self, module: Module, faults: FaultLog) -> None:
        super().__init__(module, faults)
        self._facts = ModuleLoads.of(module)
        self._reading: Reading | None = None

    def _moments_of(self, op: Operation) -> Moments:
        """Ask to be called before loads, and the comparisons of their masks."""
        is_seen = op in self._facts.loads or op in self._facts.compared
        return Moments.BEFORE if is_seen else Moments.NEVER

    def launch_begins(self, launch: LaunchContext) -> None:
        """Look at launches whose reads are all seen."""
        super().launch_begins(launch)
        if self._is_cleared:
            return
        if self._facts.is_known and launch.written is not None and self._facts.loads:
            numbers = self._faults.arguments.values()
            known = frozenset(number for number in numbers if isinstance(number, int))
            self._reading = Reading(launch.grid, launch.written, known)

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Keep the offsets and the mask of a load, or the sides of a comparison."""
        reading = self._reading
        if reading is None:
            return
        reading.kept += 1
        if reading.kept > _MOST_KEPT:
            self._reading = None
        elif op in self._facts.compared:
            left, right = operands
            reading.compared.setdefault(op, []).append((left, right))
        else:
            self._note(reading, run, op, operands)

    def _note(
        self, reading: Reading, run: Evaluator, op: Operation, operands: Sequence[TileValue]
    ) -> None:
        pointer = operands[0]
        base = pointer.base if isinstance(pointer, DescriptorTile) else pointer
        if not isinstance(base, PointerTile):
            assert isinstance(base, AddressTile)
            if not base.buffers:
                self._reading = None  # it may read anything
            reading.unknown.update(buffer.storage_key for buffer in base.buffers)
            return
        key = base.buffer.storage_key
        if key in reading.written or key in reading.unknown:
            return
        if _reads_nothing(operands):
            return
        read = None
        if MEMORY not in self._facts.loads[op].sources:
            read = _read(run, op, base, operands)
        if read is None:
            reading.unknown.add(key)
        else:
            reading.reads.setdefault(op, []).append(read)

    def _report(self) -> bool:
        """Report elements that were left out, or read twice."""
        if self._reading is None:
            return False
        gaps = list(Gaps(self._reading, self._facts.loads).find())
        for gap in gaps:
            text = coverage_text(gap, self._faults.grid)
            self._faults.record(gap.load, text, count=gap.count * gap.behind)
        return bool(gaps)


def _reads_nothing(operands: Sequence[TileValue]) -> bool:
    is_masked = isinstance(operands[0], PointerTile) and len(operands) > 1
    return is_masked and isinstance(operands[1], int) and not operands[1]


def _read(
    run: Evaluator, op: Operation, base: PointerTile, operands: Sequence[TileValue]
) -> Read | None:
    """Return what `op` is about to read, or None if that is not worth keeping."""
    shape = ir.shape_of(loaded_type(op))
    active = None if run.active is None else run.active.clone()
    pointer, *rest = operands
    if isinstance(pointer, DescriptorTile):
        starts = tuple(_vector(run, start) for start in rest)
        block = (pointer, starts)
        return Read(base.buffer, run.first, run.programs, shape, active, block=block)
    tile = run.index.affine(base.offset, shape)
    if tile is None or not is_small(tile):
        return None
    mask = rest[0] if rest else 1
    exact = mask if isinstance(mask, int | BoxMask) else None
    return Read(base.buffer, run.first, run.programs, shape, active, tile, exact)


def _vector(run: Evaluator, value: TileValue) -> Tensor:
    """Return a scalar as a vector with an entry for each program, or one for all."""
    return run.dense(value, ir.I64).reshape(-1).to(torch.int64)
