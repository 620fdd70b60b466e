"""`EliminateDeadCode`: effect-free ops and carried values that nothing depends on.

Liveness starts at ops with effects and runs backwards. A loop's carried value is live only if its
result, or something live in the body, needs it, so a value that only feeds itself goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ops.traits import PURE, TRANSPARENT, is_terminator
from tkdebug.compiler.rewriting.rewriter import Rewriter

# Ops whose results are handed out of their regions one by one, so that single ones can go.
_SLOTTED = names_of(scf.For, scf.If, scf.While)


@dataclass(frozen=True, slots=True)
class EliminateDeadCode:
    """Erases effect-free ops without live uses, and drops dead carried values and results."""

    name: ClassVar[str] = "eliminate-dead-code"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Mark what is live, then sweep the rest."""
        live = _Liveness()
        live.mark(module)
        _sweep(module.body, live, rewriter)
        rewriter.commit()


class _Liveness:
    """The ops and values that something observable depends on."""

    def __init__(self) -> None:
        self.ops: set[Operation] = set()
        self.values: set[Value] = set()
        self._worklist: list[Value] = []

    def mark(self, module: Module) -> None:
        """Find everything live, from the ops with effects backwards."""
        for op in module.walk():
            has_effects = op.name not in PURE and op.name not in TRANSPARENT
            if has_effects and not is_terminator(op):
                self._op(op)
        while self._worklist:
            self._propagate(self._worklist.pop())

    def _value(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self._worklist.append(value)

    def _op(self, op: Operation) -> None:
        """Make `op` live, with what it always needs and all that encloses it."""
        while op not in self.ops:
            self.ops.add(op)
            for value in _own_operands(op):
                self._value(value)
            for region in op.regions:
                for block in region.blocks:
                    for value in _always_handed_on(op, block):
                        self._value(value)
            parent = op.block.parent_op if op.block is not None else None
            if parent is None:
                return
            op = parent

    def _propagate(self, value: Value) -> None:
        owner = value.owner
        op = owner if isinstance(owner, Operation) else owner.parent_op
        if op is None:
            return
        self._op(op)
        if op.name in _SLOTTED:
            for source in _slot_sources(op, value):
                self._value(source)


def _own_operands(op: Operation) -> tuple[Value, ...]:
    """The operands a live `op` needs whichever of its results are live."""
    match op.name:
        case scf.For.name:
            return op.operands[:3]
        case scf.While.name:
            return ()
        case _:
            return op.operands


def _always_handed_on(op: Operation, block: Block) -> tuple[Value, ...]:
    """What the terminator of a region of a live `op` always needs."""
    if scf.While.matches(op) and block is op.regions[0].block:
        return block.terminator.operands[:1]
    if op.name in _SLOTTED or not block.operations:
        return ()
    return block.terminator.operands if is_terminator(block.terminator) else ()


def _slot_sources(op: Operation, value: Value) -> list[Value]:
    """The values from which a result or region argument of a slotted op comes."""
    index = value.index
    is_result = value.owner is op
    match op.name:
        case scf.If.name:
            return [region.block.terminator.operands[index] for region in op.regions]
        case scf.For.name:
            block = op.regions[0].block
            if not is_result:
                if index == 0:
                    return []
                index -= 1
            # A live result needs its initial value too: the loop may run no iteration.
            return [
                op.operands[3 + index],
                block.terminator.operands[index],
                block.arguments[1 + index],
                op.results[index],
            ]
        case _:
            before, after = (region.block for region in op.regions)
            if is_result or value.owner is after:
                return [
                    before.terminator.operands[1 + index],
                    after.arguments[index],
                    op.results[index],
                ]
            return [
                op.operands[index],
                after.terminator.operands[index],
                before.arguments[index],
            ]


def _sweep(block: Block, live: _Liveness, rewriter: Rewriter) -> None:
    # From the end, so that an op's users are gone before it is looked at.
    for op in reversed(block.operations):
        if op in live.ops:
            if op.name in _SLOTTED:
                _drop_dead_slots(op, live, rewriter)
            for region in op.regions:
                for inner in region.blocks:
                    _sweep(inner, live, rewriter)
        elif not is_terminator(op):
            rewriter.erase(op, "erase-dead")


def _drop_dead_slots(op: Operation, live: _Liveness, rewriter: Rewriter) -> None:
    kept = [index for index, result in enumerate(op.results) if result in live.values]
    if scf.While.matches(op):
        _drop_while_inits(op, live, rewriter)
        if len(kept) == len(op.results):
            return
        before, after = (region.block for region in op.regions)
        condition = before.terminator
        condition.operands = (
            condition.operands[0],
            *(condition.operands[1 + index] for index in kept),
        )
        _keep_arguments(after, kept)
    elif len(kept) == len(op.results):
        return
    else:
        for region in op.regions:
            terminator = region.block.terminator
            terminator.operands = tuple(terminator.operands[index] for index in kept)
        if scf.For.matches(op):
            op.operands = (*op.operands[:3], *(op.operands[3 + index] for index in kept))
            _keep_arguments(op.regions[0].block, [0, *(1 + index for index in kept)])
    rewriter.keep_results(op, kept, "drop-dead-results")


def _drop_while_inits(op: Operation, live: _Liveness, rewriter: Rewriter) -> None:
    before, after = (region.block for region in op.regions)
    kept = [index for index, value in enumerate(before.arguments) if value in live.values]
    if len(kept) == len(before.arguments):
        return
    op.operands = tuple(op.operands[index] for index in kept)
    after.terminator.operands = tuple(after.terminator.operands[index] for index in kept)
    _keep_arguments(before, kept)
    rewriter.record_change(op, "drop-dead-carried-values")


def _keep_arguments(block: Block, kept: list[int]) -> None:
    block.arguments = [block.arguments[index] for index in kept]
    for index, value in enumerate(block.arguments):
        value.index = index
