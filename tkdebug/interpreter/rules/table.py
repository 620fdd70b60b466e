"""The rule of every op, by its name, from one table per family."""

from __future__ import annotations

from tkdebug.interpreter.rules import (
    arithmetic,
    control,
    dots,
    memory,
    program,
    shapes,
    shared,
)
from tkdebug.interpreter.rules.types import Rule

FAMILIES = (arithmetic, control, dots, memory, program, shapes, shared)
RULES: dict[str, Rule] = {
    view.name: rule for family in FAMILIES for view, rule in family.RULES.items()
}
