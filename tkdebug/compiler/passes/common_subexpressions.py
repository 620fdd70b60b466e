"""`EliminateCommonSubexpressions`: one op for all that compute the same.

Only ops without effects are merged, never loads: another program may write in between. An op
replaces those that it dominates, and takes over their locations.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects.table import ISOLATED, PURE
from tkdebug.compiler.ir.core import Attribute, Block, Module, Operation
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
            # Hashing a key is most of the work: once for each op.
            kept = known.setdefault(_key(op), op)
            if kept is not op and rewriter.begins(op, "merge-equal"):
                rewriter.merge(op, kept, "merge-equal")


def _key(op: Operation) -> Hashable:
    """A key that is equal for two ops exactly if they compute the same."""
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
