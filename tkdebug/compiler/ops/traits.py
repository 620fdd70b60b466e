"""Traits of ops, by name: which are pure, end a block, are isolated, loop, or pass effects on.

The op table knows single ops; `is_effect_free` answers for an op with everything inside it.
"""

from __future__ import annotations

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ops.spec import Effects
from tkdebug.compiler.ops.table import OPS

# The terminator of each region, for the ops whose regions are known.
REGION_TERMINATORS: dict[str, tuple[str, ...]] = {
    tt.Func.name: (tt.Return.name,),
    scf.For.name: (scf.Yield.name,),
    scf.If.name: (scf.Yield.name, scf.Yield.name),
    scf.While.name: (scf.Condition.name, scf.Yield.name),
    tt.Reduce.name: (tt.ReduceReturn.name,),
    tt.Scan.name: (tt.ReduceReturn.name,),
    tt.MapElementwise.name: (tt.MapElementwiseReturn.name,),
}
# Their regions use no value from outside, and nothing is moved or merged across their border.
ISOLATED = names_of(tt.Func, tt.Reduce, tt.Scan, tt.MapElementwise)
# They have the effects of what is inside them and no others. scf.while is not one of them:
# it may never end, and a kernel that hangs must still hang after every pass.
TRANSPARENT = names_of(scf.For, scf.If)
# By name, since every pass asks for every op, and flags of an enum are slow to ask.
_TERMINATORS = frozenset(name for name, spec in OPS.items() if Effects.TERMINATOR in spec.effects)
PURE = frozenset(name for name, spec in OPS.items() if not spec.effects)
ASSEMBLY = tt.ElementwiseInlineAsm.name


def is_terminator(op: Operation) -> bool:
    """Whether `op` ends its block."""
    return op.name in _TERMINATORS


def is_effect_free(op: Operation) -> bool:
    """Whether `op`, with everything inside it, does nothing but compute its results."""
    is_pure = op.name in PURE or (op.name == ASSEMBLY and op.attributes.get("pure") is True)
    if not op.regions or not (is_pure or op.name in TRANSPARENT):
        return is_pure
    return all(
        is_terminator(inner) or is_effect_free(inner)
        for region in op.regions
        for block in region.blocks
        for inner in block.operations
    )
