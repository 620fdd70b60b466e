"""`OverlapDots`: a loop's warpgroup dots run while the next iteration's operands arrive.

A dot whose accumulators are carried by the loop and used for nothing else becomes asynchronous: one
may still run when the next is issued, and the one before that has ended when buffers are filled
again. After the loop everything is waited for.

Invariant: between an asynchronous dot and the use of its result stands a wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.types import MemDescType
from tkdebug.compiler.rewriting.rewriter import Rewriter

_PENDING = 1
_VIEWS = frozenset(("ttg.memdesc_index", "ttg.memdesc_trans", "ttg.memdesc_subslice"))


@dataclass(frozen=True, slots=True)
class OverlapDots:
    """Makes carried warpgroup dots asynchronous."""

    name: ClassVar[str] = "overlap-dots"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every loop."""
        for op in module.walk():
            if op.name == "scf.for":
                dots = [inner for inner in _direct(op) if inner.name == "ttng.warp_group_dot"]
                if (
                    len(dots) == 1
                    and _is_carried(op, dots[0])
                    and _reads_lasting_buffers(op, dots[0])
                ):
                    _overlap(op, dots[0], rewriter)
        rewriter.commit()


def _direct(loop: Operation) -> list[Operation]:
    return loop.regions[0].block.operations


def _is_carried(loop: Operation, dot: Operation) -> bool:
    """Whether the dot adds to a carried value, and nothing else sees its result in the loop."""
    block = loop.regions[0].block
    acc, result = dot.operands[2], dot.result
    if "max_num_imprecise_acc" in dot.attributes:
        # Its sums are added outside of the tensor core, step by step.
        return False
    if acc.owner is not block or list(acc.uses) != [dot] or acc.uses[dot] != 1:
        return False
    slot = acc.index - 1
    terminator = block.terminator
    return terminator.operands[slot] is result and result.uses == {terminator: 1}


def _reads_lasting_buffers(loop: Operation, dot: Operation) -> bool:
    """Whether the next iteration leaves alone what the dot reads: rings, and buffers from outside.

    A buffer made in each iteration is one place in memory. A in registers would have to outlive
    the dot, too.
    """
    inside = set(loop.walk())
    for value in dot.operands[:2]:
        if not isinstance(value.type, MemDescType):
            return False
        owner = value.defining_op
        while owner is not None and owner in inside and owner.name in _VIEWS:
            owner = owner.operands[0].defining_op
        if owner is None or owner in inside:
            return False
    return True


def _overlap(loop: Operation, dot: Operation, rewriter: Rewriter) -> None:
    block = loop.regions[0].block
    terminator = block.terminator
    slot = dot.operands[2].index - 1
    dot.attributes["async"] = True
    rewriter.record_change(dot, "make-asynchronous")
    following = block.operations[block.operations.index(dot) + 1]
    waited = _wait(rewriter, following, dot.result, _PENDING, dot)
    terminator.operands = tuple(
        waited if index == slot else value for index, value in enumerate(terminator.operands)
    )
    rewriter.record_change(terminator, "yield-waited")
    assert loop.block is not None
    after = loop.block.operations[loop.block.operations.index(loop) + 1]
    result = loop.results[slot]
    users = list(result.uses)
    drained = _wait(rewriter, after, result, 0, dot)
    for user in users:
        user.replace_operand(result, drained)
        rewriter.record_change(user, "use-waited")


def _wait(
    rewriter: Rewriter, anchor: Operation, value: Value, pendings: int, dot: Operation
) -> Value:
    wait = rewriter.build_before(
        anchor,
        "ttng.warp_group_dot_wait",
        [value],
        [value.type],
        {"pendings": pendings},
        location=dot.location,
    )
    rewriter.record_new(wait, "wait-for-dots")
    return wait.result
