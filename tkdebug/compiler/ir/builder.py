"""Builds operations at an insertion point under a location that must be set first.

Invariant: no operation is built without a location.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tkdebug.compiler.ir.core import Attribute, Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.location import Location
from tkdebug.compiler.ir.op_view import OpName, op_name
from tkdebug.compiler.ir.types import Type


class Builder:
    """Appends to `block` (or inserts before an operation), stamping ids and locations."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.block: Block = module.body
        self.index: int | None = None
        self.location: Location | None = None

    def build(
        self,
        name: OpName,
        operands: Sequence[Value] = (),
        result_types: Sequence[Type] = (),
        attributes: Mapping[str, Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> Operation:
        """Build and insert an operation without consulting the op table."""
        assert self.location is not None, f"{op_name(name)} built without a location"
        op = Operation(
            op_name(name),
            operands,
            result_types,
            attributes or {},
            regions,
            self.location,
            self.module.new_id(),
        )
        if self.index is None:
            self.block.append(op)
        else:
            self.block.insert(self.index, op)
            self.index += 1
        return op

    @contextmanager
    def at(self, location: Location) -> Iterator[None]:
        """Build under `location` inside the `with`."""
        previous, self.location = self.location, location
        try:
            yield
        finally:
            self.location = previous

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Append to `block` inside the `with`."""
        previous = self.block, self.index
        self.block, self.index = block, None
        try:
            yield
        finally:
            self.block, self.index = previous

    @contextmanager
    def before(self, op: Operation) -> Iterator[None]:
        """Insert before `op` inside the `with`."""
        assert op.block is not None
        previous = self.block, self.index
        self.block, self.index = op.block, op.block.operations.index(op)
        try:
            yield
        finally:
            self.block, self.index = previous
