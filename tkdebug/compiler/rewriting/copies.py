"""Copies of ops with everything inside them: clones on other values, and whole modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tkdebug.compiler.ir.core import Block, Module, Operation, Region, Value
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
        anchor: the op before which the clones are put.
        ops: the ops, with their regions.
        known: replacements of operands in the clones, by original value; other operands are
            kept. The clones' results are added to it.
        rewriter: builds the clones.
        rule: the rule under which they are recorded.
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
    """Clone a region for an op that is being built; `known` is used as in `clone_before`."""
    return _copy_region(region, known, lambda op: _clone(op, known, rewriter, rule))


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


class SavedModule:
    """A snapshot of a module: copies of its ops with their ids, names and locations."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._operations = list(module.body.operations)
        self._copies = [_copy(op, {}) for op in self._operations]

    def restore(self) -> None:
        """Restore the module; its top-level ops are the same objects as before."""
        self._module.body.operations[:] = self._operations
        for op, copy in zip(self._operations, self._copies, strict=True):
            op.block = self._module.body
            op.attributes = copy.attributes
            op.location = copy.location
            op.regions = copy.regions
            for region in op.regions:
                region.parent = op


def copy_module(module: Module) -> Module:
    """Return a copy of `module` that shares no ops with it, with the same ids and names."""
    copy = Module(module.name)
    for op in module.body.operations:
        copy.body.append(_copy(op, {}))
    copy.reserve_ids(max((op.id for op in module.walk()), default=0))
    return copy


def _copy(op: Operation, known: dict[Value, Value]) -> Operation:
    copy = Operation(
        op.name,
        [known[value] for value in op.operands],
        [result.type for result in op.results],
        op.attributes,
        [_copy_region(region, known, lambda op: _copy(op, known)) for region in op.regions],
        op.location,
        op.id,
    )
    _match(op.results, copy.results, known)
    return copy


def _copy_region(
    region: Region, known: dict[Value, Value], copy: Callable[[Operation], Operation]
) -> Region:
    blocks = []
    for old in region.blocks:
        new = Block([argument.type for argument in old.arguments])
        _match(old.arguments, new.arguments, known)
        for op in old.operations:
            new.append(copy(op))
        blocks.append(new)
    return Region(blocks)
