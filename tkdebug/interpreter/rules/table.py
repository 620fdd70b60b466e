"""The rule of every op, one table per family."""

from __future__ import annotations

from tkdebug.interpreter.rules import (
    arithmetic,
    control,
    dots,
    math,
    memory,
    program,
    shapes,
    shared,
)
from tkdebug.interpreter.rules.types import Rule

FAMILIES = (arithmetic, control, dots, math, memory, program, shapes, shared)
RULES: dict[str, Rule] = {name: rule for family in FAMILIES for name, rule in family.RULES.items()}
