"""Tests of tiles that are made together, before the first access of a kernel.

A test at each access waits for what the access before it branched on, in code that is spread over
what bad elements need; launches of few microseconds feel both. In a straight line of accesses one
predicate says whether all of their tiles lie inside, and each access goes by it: one for those
that programs move, one for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.analysis.data_flow import backward
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Block, Operation, Value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.probes.access import tile_of
from tkdebug.compiler.targets.nvptx.lowering.probes.kernel_probes import Probes
from tkdebug.compiler.targets.nvptx.lowering.probes.tile_tests import tiles_are_inside

# What places tiles: cheap, and the same wherever it is computed.
_PLACING = names_of(
    tt.GridQuery,
    tt.AddPtr,
    arith.Constant,
    arith.ExtSI,
    arith.WrappingBinary,
)

_POINTER_TILES = names_of(tt.Splat, tt.AddPtr)
_MOST_REGISTERS = 16

# What differs between programs.
_BY_PROGRAM = names_of(tt.GetProgramId, tt.Load, tt.Atomic)


def lower_tested_block(ctx: Lowering, probes: Probes, block: Block) -> Operation:
    """Lower all ops of a kernel's block but its terminator, which is returned."""
    ops = block.operations[:-1]
    accesses = [place for place, op in enumerate(ops) if probes.tested(op) is not None]
    begin = accesses[0] if accesses else len(ops)
    for op in ops[:begin]:
        ctx.lower(op)
    # What is tested before a loop stays in a register while it runs.
    line = _straight_line(ops[begin:])
    ahead = {op for op in line if _is_placing(ctx, op) and _is_lowered_early(ctx, op)}
    _test_together(ctx, probes, line)
    for op in ops[begin:]:
        if op not in ahead:
            ctx.lower(op)
    return block.terminator


def _straight_line(ops: Sequence[Operation]) -> Sequence[Operation]:
    """The ops before the first loop or branch."""
    end = next((place for place, op in enumerate(ops) if op.name in CONTROL_FLOW), len(ops))
    return ops[:end]


def _is_placing(ctx: Lowering, op: Operation) -> bool:
    """Whether an op is lowered before the first access.

    So are a tile's addresses, unless they may take many registers. Behind the branch of an access,
    ptxas would load the kernel's pointer there, and the access would wait for it.
    """
    if op.name in _POINTER_TILES and isinstance(op.result.type, TensorType):
        return ctx.register_count(op.result) <= _MOST_REGISTERS
    return op.name in _PLACING and not isinstance(op.result.type, TensorType)


def _is_lowered_early(ctx: Lowering, op: Operation) -> bool:
    """Lower an op where all that it needs is there; whether it was."""
    if not all(operand in ctx.values for operand in op.operands):
        return False
    ctx.lower(op)
    return True


def _test_together(ctx: Lowering, probes: Probes, line: Sequence[Operation]) -> None:
    """Test the tiles of accesses whose places are known here, those that are alike together.

    Tiles that are the same in all programs are a group of their own: of a weight with fewer
    elements than the block, for one, no program has all of its tile.
    """
    sites = ((op, probes.tested(op)) for op in line)
    # Where a loaded pointer leads is known only once it is loaded.
    tiles = [tile_of(probes, op, site) for op, site in sites if site is not None and site.tensor]
    for moves in (True, False):
        group = [tile for tile in tiles if _is_moved(tile.pointer) == moves]
        if len(group) > 1:
            tested, inside = tiles_are_inside(ctx, group)
            if inside is not None:
                probes.tested_early |= dict.fromkeys(tested, inside)


def _is_moved(pointer: Value) -> bool:
    """Whether programs have a tile at different places."""
    made = (value.defining_op for value in backward([pointer], _operands))
    return any(op is not None and op.name in _BY_PROGRAM for op in made)


def _operands(value: Value) -> Sequence[Value]:
    return () if value.defining_op is None else value.defining_op.operands
