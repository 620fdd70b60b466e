"""The lowering of every op, one table per family."""

from __future__ import annotations

from tkdebug.compiler.targets.nvptx.lowering import (
    control,
    conversions,
    shapes,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Lower

_FAMILIES = (control, shapes, conversions)
LOWERINGS: dict[str, Lower] = {
    name: rule for family in _FAMILIES for name, rule in family.LOWERINGS.items()
}
