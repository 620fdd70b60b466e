"""The lowering of every op, one table per family."""

from __future__ import annotations

from tkdebug.compiler.targets.nvptx.lowering import (
    arithmetic,
    async_copies,
    atomics,
    bulk_copies,
    casts,
    control,
    conversions,
    debug,
    dots,
    elementwise,
    indexing,
    math,
    memory,
    reductions,
    scans,
    shapes,
    shared,
    sorting,
    tensor_maps,
    warp_group_dots,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Lower

_FAMILIES = (
    control,
    shapes,
    conversions,
    arithmetic,
    casts,
    reductions,
    scans,
    memory,
    warp_group_dots,
    math,
    elementwise,
    atomics,
    debug,
    shared,
    async_copies,
    bulk_copies,
    tensor_maps,
    dots,
    indexing,
    sorting,
)
LOWERINGS: dict[str, Lower] = {
    name: rule for family in _FAMILIES for name, rule in family.LOWERINGS.items()
}
