"""Copies of ops with everything inside them, on other values."""

from __future__ import annotations

from collections.abc import Iterable

from tkdebug.compiler.ir.core import Block, Operation, Region, Value
from tkdebug.compiler.rewriting.rewriter import Rewriter


def clone_before(
    anchor: Operation,
    ops: Iterable[Operation],
    known: dict[Value, Value],
    rewriter: Rewriter,
    rule: str,
) -> list[Operation]:
    """Clone `ops`, in order, before `anchor`.

    Args:
        anchor: where to.
        ops: with their regions.
        known: what stands for values in the clones; others stand for themselves. What stands for
            the results of `ops` is added.
        rewriter: builds the clones.
        rule: under which they are recorded.
    """
    clones = []
    for op in ops:
        clone = rewriter.build_before(
            anchor,
            op.name,
            [known.get(value, value) for value in op.operands],
            [result.type for result in op.results],
            op.attributes,
            location=op.location,
            regions=[clone_region(region, known, rewriter, rule) for region in op.regions],
        )
        rewriter.record_new(clone, rule)
        rewriter.note_copied(op, clone, known)
        _match(op.results, clone.results, known)
        clones.append(clone)
    return clones


def clone_region(
    region: Region, known: dict[Value, Value], rewriter: Rewriter, rule: str
) -> Region:
    """A copy of a region, for an op that is built; `known` as in `clone_before`."""
    blocks = []
    for old in region.blocks:
        new = Block([argument.type for argument in old.arguments])
        _match(old.arguments, new.arguments, known)
        for op in old.operations:
            new.append(_clone(op, known, rewriter, rule))
        blocks.append(new)
    return Region(blocks)


def _clone(op: Operation, known: dict[Value, Value], rewriter: Rewriter, rule: str) -> Operation:
    regions = [clone_region(region, known, rewriter, rule) for region in op.regions]
    clone = Operation(
        op.name,
        [known.get(value, value) for value in op.operands],
        [result.type for result in op.results],
        op.attributes,
        regions,
        op.location,
        rewriter.module.new_id(),
    )
    rewriter.record_new(clone, rule)
    rewriter.note_copied(op, clone, known)
    _match(op.results, clone.results, known)
    return clone


def _match(old: Iterable[Value], new: Iterable[Value], known: dict[Value, Value]) -> None:
    for before, after in zip(old, new, strict=True):
        after.name = before.name
        known[before] = after
