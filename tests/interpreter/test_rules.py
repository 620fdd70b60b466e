"""The interpreter's tables of rules."""

from __future__ import annotations

from tkdebug.compiler.dialects.table import OPS
from tkdebug.interpreter.rules import FAMILIES, RULES

# A launch runs the kernel's; device functions are inlined.
_RUN_BY_THE_LAUNCH = {"tt.func"}


def test_every_op_has_a_rule():
    assert set(RULES) == set(OPS) - _RUN_BY_THE_LAUNCH


def test_no_op_has_two_rules():
    assert sum(len(family) for family in FAMILIES) == len(RULES)
