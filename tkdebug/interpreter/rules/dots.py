"""Matrix products."""

from __future__ import annotations

from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.types import Rule, one

RULES: dict[str, Rule] = {
    "tt.dot": one(Evaluator.dot),
    "tt.dot_scaled": one(Evaluator.dot_scaled),
}
