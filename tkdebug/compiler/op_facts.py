"""Facts of a module's ops at one time, as plain values that outlive the module.

Diffs between passes are made of them: an op is known by its id, never by its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.ir.printer import attribute_text
from tkdebug.compiler.ir.types import LayoutAliases, type_text
from tkdebug.records.events import OpFacts, Rewrite

if TYPE_CHECKING:
    from tkdebug.compiler.passes.pass_run import PassRun
    from tkdebug.linemap.op_place import OpPlace

# Set on the function between passes: options of the compile, which no pass chose.
_COMPILE_OPTIONS = frozenset(
    ("num_warps", "target", "fp_fusion", "flush_subnormals", "threads_per_warp")
)


def module_facts(module: Module, aliases: LayoutAliases) -> dict[int, OpFacts]:
    """The facts of every op, by id, in program order.

    Args:
        module: read only.
        aliases: the names of layouts, as in the texts printed of the same kernel.
    """
    facts: dict[int, OpFacts] = {}
    for op in module.body.operations:
        _add(op, None, 0, aliases, facts)
    return facts


def _add(
    op: Operation,
    parent: int | None,
    region_index: int,
    aliases: LayoutAliases,
    facts: dict[int, OpFacts],
) -> None:
    facts[op.id] = OpFacts(
        name=op.name,
        attributes=_attributes(op, aliases),
        types=tuple(type_text(result.type, aliases) for result in op.results),
        parent=parent,
        region=region_index,
        places=tuple(
            dict.fromkeys(
                (frame.file, frame.line)
                for place in op.location.sources
                for frame in reversed(place.frames)
            )
        ),
    )
    for index, region in enumerate(op.regions):
        for block in region.blocks:
            for inner in block.operations:
                _add(inner, op.id, index, aliases, facts)


def _attributes(op: Operation, aliases: LayoutAliases) -> dict[str, str]:
    return {
        name: attribute_text(value, aliases)
        for name, value in op.attributes.items()
        if not (tt.Func.matches(op) and name in _COMPILE_OPTIONS)
    }


def plain_rewrites(run: PassRun) -> tuple[Rewrite, ...]:
    """The records of a pass, without the compiler's own types."""
    return tuple(
        Rewrite(
            record.rule,
            record.old_op_ids,
            record.new_op_ids,
            tuple(
                dict.fromkeys(
                    (place.file, place.line)
                    for location in record.erased_locations
                    for place in location.sources
                )
            ),
        )
        for record in run.records
    )


def op_places(module: Module) -> dict[int, OpPlace]:
    """The ops of Tile IR as they are now, by id; to be taken before GPU passes change it."""
    from tkdebug.linemap.op_place import OpPlace  # interpreted kernels have no line table

    return {
        op.id: OpPlace(
            id=op.id,
            tile_name=op.name,
            gpu_name=None,
            chains=tuple(dict.fromkeys(place.frames for place in op.location.sources)),
            column=op.location.primary.column,
        )
        for op in module.walk()
    }
