"""A module's ops put aside, to go back to where a pass failed in the middle."""

from __future__ import annotations

from tkdebug.compiler.ir.core import Block, Module, Operation, Region, Value


class SavedModule:
    """The ops of `module` as they are now, with their ids, names and places."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._operations = list(module.body.operations)
        self._copies = [_copy(op, {}) for op in self._operations]

    def restore(self) -> None:
        """Make the module again what it was; its top-level ops are the same objects as then."""
        self._module.body.operations[:] = self._operations
        for op, copy in zip(self._operations, self._copies, strict=True):
            op.block = self._module.body
            op.attributes = copy.attributes
            op.location = copy.location
            op.regions = copy.regions
            for region in op.regions:
                region.parent = op


def copy_module(module: Module) -> Module:
    """The module as it is now, in ops of its own, with the same ids and names."""
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
        [_copy_region(region, known) for region in op.regions],
        op.location,
        op.id,
    )
    _match(op.results, copy.results, known)
    return copy


def _copy_region(region: Region, known: dict[Value, Value]) -> Region:
    blocks = []
    for old in region.blocks:
        new = Block([argument.type for argument in old.arguments])
        _match(tuple(old.arguments), tuple(new.arguments), known)
        for op in old.operations:
            new.append(_copy(op, known))
        blocks.append(new)
    return Region(blocks)


def _match(old: tuple[Value, ...], new: tuple[Value, ...], known: dict[Value, Value]) -> None:
    for before, after in zip(old, new, strict=True):
        after.name = before.name
        known[before] = after
