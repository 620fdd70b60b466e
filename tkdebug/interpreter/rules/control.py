"""Control flow, and what runs a region of its own."""

from __future__ import annotations

from tkdebug.compiler.dialects import scf, tt
from tkdebug.interpreter import control_flow
from tkdebug.interpreter.rules.types import Rules, nothing, unchanged
from tkdebug.interpreter.tile_ops import elementwise, reductions

RULES: Rules = {
    tt.Return: nothing,
    scf.If: control_flow.run_if,
    scf.For: control_flow.run_for,
    scf.While: control_flow.run_while,
    scf.Yield: unchanged,
    scf.Condition: unchanged,
    tt.Reduce: reductions.reduce,
    tt.Scan: reductions.scan,
    tt.ReduceReturn: unchanged,
    tt.MapElementwise: elementwise.map_elementwise,
    tt.MapElementwiseReturn: unchanged,
}
