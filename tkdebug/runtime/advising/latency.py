"""How many times a program waits for memory: loads that wait for each other, rounds of loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.advice.facts import AccessFacts
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.runtime.advising.executions import Executions

# LLVM and ptxas unroll loops of loads so far; measured on sums of rows.
_ROUNDS_TOGETHER = 4


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of an average program.

    Attributes:
        plain: for loads that nothing runs ahead of.
        ahead: for those that run iterations ahead, in which each waits so much less.
    """

    plain: float
    ahead: float


def waits(
    tile: Module, executions: Executions, accesses: Mapping[int, AccessFacts], stages: int
) -> Waits:
    """The waits of a launch, divided by its programs."""
    programs = max(1, executions.of_gpu(None))
    plain = ahead = 0.0
    for block, runs in _blocks(tile, executions):
        depth, runs_ahead, reached = _depth(block, accesses)
        runs *= reached
        # Loads that need nothing of the round before are issued for several rounds together, but
        # not across the barriers around operands of a product in shared memory.
        together = _is_independent(block, accesses) and not _has_dot(block)
        apart = _ROUNDS_TOGETHER if together else 1
        plain += depth * runs / programs / apart
        if runs_ahead:
            # The first copy is waited for in full.
            ahead += 1 + runs / programs / max(1, stages - 1)
    return Waits(plain, ahead)


def _blocks(tile: Module, executions: Executions) -> list[tuple[Block, float]]:
    body = tt.Func(tile.function).body
    found: list[tuple[Block, float]] = [(body, executions.of_gpu(None))]
    for op in tile.walk():
        if scf.Loop.matches(op) or scf.If.matches(op):
            for region in op.regions:
                blocks = region.block.operations
                if blocks:
                    found.append((region.block, executions.of_tile(blocks[0])))
    return found


def _depth(block: Block, accesses: Mapping[int, AccessFacts]) -> tuple[int, bool, float]:
    """The longest chain of loads in a block, whether it has loads that run ahead, and how often.

    The last is the share of rounds in which any load is not masked off as a whole: nothing is
    waited for in the others.
    """
    depths: dict[Value, int] = {}
    deepest, runs_ahead, reached = 0, False, 0.0
    for op in block.operations:
        depth = max((depths.get(value, 0) for value in op.operands), default=0)
        access = accesses.get(op.id)
        if access is not None and access.kind == "load" and _waits(op):
            reached = max(reached, access.reached)
            if access.path == "registers":
                depth += 1
            else:
                runs_ahead = True
        for result in op.results:
            depths[result] = depth
        deepest = max(deepest, depth)
    return deepest, runs_ahead, reached


def _is_independent(block: Block, accesses: Mapping[int, AccessFacts]) -> bool:
    parent = block.parent_op
    if parent is None or not scf.For.matches(parent):
        return False
    known = [accesses[op.id] for op in block.operations if op.id in accesses]
    return not any(access.loop_depends for access in known)


def _has_dot(block: Block) -> bool:
    return any(tt.Dot.matches(op) for op in block.operations)


def _waits(op: Operation) -> bool:
    return tt.Load.matches(op) or tt.DescriptorLoad.matches(op)
