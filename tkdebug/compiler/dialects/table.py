"""Every op by its name, and queries on ops of any kind.

An op is in the table because its class is in the module of its dialect.
"""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.compiler.dialects import arith, gpu, math, nvvm, scf, tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import Op, Terminator
from tkdebug.compiler.ir.core import Operation


def _classes() -> Iterator[type[Op]]:
    for dialect in (arith, math, tt, scf, ttg, ttng, gpu, nvvm):
        prefix = dialect.__name__.rpartition(".")[2] + "."
        for view in vars(dialect).values():
            if isinstance(view, type) and issubclass(view, Op) and view.name.startswith(prefix):
                yield view


OPS: dict[str, type[Op]] = {view.name: view for view in _classes()}
# Names of ops without effects: every pass looks up every op, and flags of an enum are slow to test.
PURE = frozenset(name for name, view in OPS.items() if not view.effects)
# Ops that may have a constant result.
FOLDING = frozenset(name for name, view in OPS.items() if view.fold is not Op.fold)
ISOLATED = frozenset(name for name, view in OPS.items() if view.is_isolated)
# Ops that have the effects of the ops inside them and no others.
TRANSPARENT = frozenset(name for name, view in OPS.items() if view.has_effects_of_regions)
ASSEMBLY = tt.ElementwiseInlineAsm.name


def is_terminator(op: Operation) -> bool:
    """Whether `op` ends its block."""
    return op.name in Terminator.names


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
