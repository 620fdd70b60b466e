"""Matrix products."""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.interpreter.rules.types import Rules, one
from tkdebug.interpreter.tile_ops import dots, scaled_dots

RULES: Rules = {
    tt.Dot: one(dots.dot),
    tt.DotScaled: one(scaled_dots.dot_scaled),
}
