"""Passes that remove redundant work: repeated, dead and loop-invariant ops.

- `EliminateCommonSubexpressions`: one op for all that compute the same. Only ops without effects
  are merged, never loads: another program may write in between. An op replaces those that it
  dominates, and takes over their locations.
- `EliminateDeadCode`: effect-free ops and carried values that nothing depends on. Liveness starts
  at ops with effects and runs backwards. A loop's carried value is live only if its result, or
  something live in the body, needs it, so a value that only feeds itself goes.
- `HoistLoopInvariants`: effect-free ops that compute the same in every iteration move out. A
  hoisted op also runs when the loop does not. Divisions therefore stay unless their divisor is a
  constant other than zero.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.data_flow import backward
from tkdebug.compiler.dialects import arith, scf
from tkdebug.compiler.dialects.table import (
    ASSEMBLY,
    ISOLATED,
    PURE,
    TRANSPARENT,
    is_effect_free,
    is_terminator,
)
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import Junction, deciding, junctions, tied_values
from tkdebug.compiler.ir.core import Attribute, Block, Module, Operation, Value
from tkdebug.compiler.rewriting.rewriter import Rewriter

_Table = dict[Hashable, Operation]


@dataclass(frozen=True, slots=True)
class EliminateCommonSubexpressions:
    """Merges equal effect-free ops, scope by scope of dominance."""

    name: ClassVar[str] = "eliminate-common-subexpressions"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Merge in one walk."""
        self._block(module.body, {}, rewriter)
        rewriter.commit()

    def _block(self, block: Block, known: _Table, rewriter: Rewriter) -> None:
        for op in block.operations:
            if op.regions:
                for region in op.regions:
                    for inner in region.blocks:
                        self._block(inner, {} if op.name in ISOLATED else known.copy(), rewriter)
                continue
            if op.name not in PURE or not op.results:
                continue
            # Hashing the key is most of the work, so it is done once for each op.
            kept = known.setdefault(_key(op), op)
            if kept is not op and rewriter.begins(op, "merge-equal"):
                rewriter.merge(op, kept, "merge-equal")


def _key(op: Operation) -> Hashable:
    """A key that is equal for two ops only if they compute the same."""
    types = op.results[0].type if len(op.results) == 1 else tuple(r.type for r in op.results)
    attributes = _attributes_key(op.attributes) if op.attributes else None
    return (op.name, op.operands, attributes, types)


def _attributes_key(attributes: Mapping[str, Attribute]) -> Hashable:
    return tuple(
        (name, value if isinstance(value, str) else _attribute_key(value))
        for name, value in sorted(attributes.items())
    )


def _attribute_key(value: Attribute) -> Hashable:
    # Python holds 1 == 1.0 == True and 0.0 == -0.0, and NaN unequal to itself; the IR does not.
    if isinstance(value, float):
        return (float, value.hex())
    if isinstance(value, tuple):
        return (tuple, tuple(_attribute_key(item) for item in value))
    return (type(value), value)


@dataclass(frozen=True, slots=True)
class EliminateDeadCode:
    """Erases effect-free ops without live uses, and drops dead carried values and results."""

    name: ClassVar[str] = "eliminate-dead-code"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Mark live ops and values, then sweep the rest."""
        _sweep(module.body, _Liveness(module), rewriter)
        rewriter.commit()


class _Liveness:
    """The ops and values that something observable depends on."""

    def __init__(self, module: Module) -> None:
        self.ops: set[Operation] = set()
        roots = [
            value for op in module.walk() if _has_effects(op) for value in self._needed_to_run(op)
        ]
        self.values = backward(roots, self._needs)

    def _needs(self, value: Value) -> list[Value]:
        """The values that a live value needs."""
        owner = value.owner
        op = owner if isinstance(owner, Operation) else owner.parent_op
        needed = self._needed_to_run(op)
        tied = tied_values(value)
        # A live result of a loop needs its initial value too: it may run no iteration.
        return needed if tied is None else [*needed, *tied.sources, *tied.values]

    def _needed_to_run(self, op: Operation | None) -> list[Value]:
        """Make `op` and all ops around it live; return the values that they need to run."""
        needed: list[Value] = []
        while op is not None and op not in self.ops:
            self.ops.add(op)
            needed += deciding(op)
            for region in op.regions:
                for block in region.blocks:
                    if block.operations and is_terminator(block.terminator):
                        needed += deciding(block.terminator)
            op = op.block.parent_op if op.block is not None else None
        return needed


def _has_effects(op: Operation) -> bool:
    return op.name not in PURE and op.name not in TRANSPARENT and not is_terminator(op)


def _sweep(block: Block, live: _Liveness, rewriter: Rewriter) -> None:
    # From the end, so that an op's users are gone before it is looked at.
    for op in reversed(block.operations):
        if op in live.ops:
            for junction in junctions(op):
                _drop_dead_values(junction, live, rewriter)
            for region in op.regions:
                for inner in region.blocks:
                    _sweep(inner, live, rewriter)
        elif not is_terminator(op) and rewriter.begins(op, "erase-dead"):
            rewriter.erase(op, "erase-dead")


def _drop_dead_values(junction: Junction, live: _Liveness, rewriter: Rewriter) -> None:
    tied = junction.tied()
    kept = [place for place, each in enumerate(tied) if each.values[0] in live.values]
    if len(kept) == len(tied) or not rewriter.begins(junction.op, "drop-dead-carried-values"):
        return
    junction.keep(kept)
    if None in junction.targets:
        rewriter.keep_results(junction.op, kept, "drop-dead-results")
    else:
        rewriter.record_change(junction.op, "drop-dead-carried-values")


@dataclass(frozen=True, slots=True)
class HoistLoopInvariants:
    """Moves invariant ops out of scf.for and scf.while, innermost loops first.

    A loop with the attribute `disable_licm` is left as it is, to need fewer registers.
    """

    name: ClassVar[str] = "hoist-loop-invariants"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Hoist from every loop."""
        # A walk meets a loop before the loops inside it.
        for loop in reversed([op for op in module.walk() if scf.Loop.matches(op)]):
            if not scf.Loop(loop).disable_licm:
                self._hoist(loop, rewriter)
                rewriter.commit()

    def _hoist(self, loop: Operation, rewriter: Rewriter) -> None:
        inside = _blocks(loop)
        for region in loop.regions:
            for block in region.blocks:
                for op in block.operations:
                    if _is_invariant(op, inside) and rewriter.begins(op, "hoist"):
                        rewriter.move_before(op, loop, "hoist")


def _blocks(op: Operation) -> set[Block]:
    """Every block inside `op`, at any depth."""
    return {
        block
        for inner in op.walk()
        if inner.regions
        for region in inner.regions
        for block in region.blocks
    }


def _is_invariant(op: Operation, inside: set[Block]) -> bool:
    if is_terminator(op) or not is_effect_free(op):
        return False
    own = _blocks(op) if op.regions else set()
    for inner in op.walk() if op.regions else (op,):
        if inner.name == ASSEMBLY:  # the interpreter may lack it, and the loop never reach it
            return False
        if arith.IntegerDivision.matches(inner) and not constant_value(arith.Binary(inner).rhs):
            return False
        for value in inner.operands:
            block = value.parent_block
            if block in inside and block not in own:
                return False
    return True
