"""Control flow, and what runs a region of its own."""

from __future__ import annotations

from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.types import Rule, nothing, unchanged

RULES: dict[str, Rule] = {
    "tt.return": nothing,
    "scf.if": Evaluator.run_if,
    "scf.for": Evaluator.run_for,
    "scf.while": Evaluator.run_while,
    "scf.yield": unchanged,
    "scf.condition": unchanged,
    "tt.reduce": Evaluator.reduce,
    "tt.scan": Evaluator.scan,
    "tt.reduce.return": unchanged,
    "tt.map_elementwise": Evaluator.map_elementwise,
    "tt.map_elementwise.return": unchanged,
}
