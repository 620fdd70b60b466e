"""Control flow, and what runs a region of its own."""

from __future__ import annotations

from tkdebug.interpreter import elementwise, reductions
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.types import Rule, nothing, unchanged

RULES: dict[str, Rule] = {
    "tt.return": nothing,
    "scf.if": Evaluator.run_if,
    "scf.for": Evaluator.run_for,
    "scf.while": Evaluator.run_while,
    "scf.yield": unchanged,
    "scf.condition": unchanged,
    "tt.reduce": reductions.reduce,
    "tt.scan": reductions.scan,
    "tt.reduce.return": unchanged,
    "tt.map_elementwise": elementwise.map_elementwise,
    "tt.map_elementwise.return": unchanged,
}
