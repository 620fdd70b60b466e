"""The lowering of every op, one table per family."""

from __future__ import annotations

from tkdebug.compiler.targets.nvptx.lowering import (
    arithmetic,
    casts,
    control,
    conversions,
    debug,
    elementwise,
    math,
    shapes,
    sorting,
)
from tkdebug.compiler.targets.nvptx.lowering.dots import mma, wgmma
from tkdebug.compiler.targets.nvptx.lowering.memory import atomics, loads_and_stores, tensor_maps
from tkdebug.compiler.targets.nvptx.lowering.reductions import reduce, scan
from tkdebug.compiler.targets.nvptx.lowering.shared_memory import async_copies, buffers, bulk_copies
from tkdebug.compiler.targets.nvptx.lowering.types import Lower

_FAMILIES = (
    control,
    shapes,
    conversions,
    arithmetic,
    casts,
    reduce,
    scan,
    loads_and_stores,
    wgmma,
    math,
    elementwise,
    atomics,
    debug,
    buffers,
    async_copies,
    bulk_copies,
    tensor_maps,
    mma,
    sorting,
)
LOWERINGS: dict[str, Lower] = {
    name: rule for family in _FAMILIES for name, rule in family.LOWERINGS.items()
}
