"""Whether a checked kernel may go wrong in a launch like one that went well: by what it loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess, stored
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.passes.insert_probes import stores_floats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_READS = (tt.Load, tt.Atomic)


def depends_on_data(module: Module) -> bool:
    """Whether a site of a kernel goes by what was loaded.

    Args:
        module: the Tile IR, whose ops carry the numbers of their sites.
    """
    values_matter = {"nan", "inf"}.intersection(tt.Func(module.function).probe_symptoms)
    return any(
        (OpView(op).probe is not None and _comes_of_loads(_tested(op)))
        # Whether memory was written may differ in each launch.
        or OpView(op).value_probe is not None
        or (values_matter and stores_floats(op) and _comes_of_loads((stored(op),)))
        for op in module.walk()
    )


def _comes_of_loads(tested: Iterable[Value]) -> bool:
    """Whether what a site tests depends on a load; control flow that a load decides counts too."""
    pending, seen = list(tested), set[Value]()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.owner, Block):
            # Of a loop: all that goes into it and around it.
            parent = value.owner.parent_op
            pending += () if parent is None else _inputs(parent)
        elif any(read.matches(value.owner) for read in _READS):
            return True
        else:
            pending += _inputs(value.owner)
    return False


def _tested(site: Operation) -> Iterator[Value]:
    access = PointerAccess.cast(site)
    if access is None:
        # Of what accesses no memory, all operands are looked at.
        yield from site.operands
        return
    yield access.pointer
    masked = MaskedAccess.cast(site)
    if masked is not None and masked.mask is not None:
        yield masked.mask


def _inputs(op: Operation) -> Iterator[Value]:
    yield from op.operands
    if tt.Func.matches(op):
        return
    for region in op.regions:
        for block in region.blocks:
            yield from block.terminator.operands if block.operations else ()
