"""Matrix products."""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.interpreter import dots, scaled
from tkdebug.interpreter.rules.types import Rules, one

RULES: Rules = {
    tt.Dot: one(dots.dot),
    tt.DotScaled: one(scaled.dot_scaled),
}
