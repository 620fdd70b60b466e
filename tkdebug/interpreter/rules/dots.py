"""Matrix products."""

from __future__ import annotations

from tkdebug.interpreter import dots, scaled
from tkdebug.interpreter.rules.types import Rule, one

RULES: dict[str, Rule] = {
    "tt.dot": one(dots.dot),
    "tt.dot_scaled": one(scaled.dot_scaled),
}
