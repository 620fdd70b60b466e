"""Passes over Tile IR, one a file, and the pipeline that runs them.

A pass is a frozen dataclass whose fields are its options; it changes the module only through the
`Rewriter` it is given, so that every change is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.compiler.passes.canonicalize import Canonicalize
from tkdebug.compiler.passes.common_subexpressions import EliminateCommonSubexpressions
from tkdebug.compiler.passes.dead_code import EliminateDeadCode
from tkdebug.compiler.passes.dots import RaiseToDot
from tkdebug.compiler.passes.loop_invariants import HoistLoopInvariants
from tkdebug.compiler.passes.pass_run import Pass, PassRun
from tkdebug.compiler.passes.pipeline import (
    TILE_PIPELINE,
    PassManager,
    run_pipeline,
    with_plugins,
)
from tkdebug.compiler.passes.unroll_loops import UnrollLoops

if TYPE_CHECKING:
    from tkdebug.compiler.passes.plugin_passes import PassPlugin

__all__ = [
    "TILE_PIPELINE",
    "Canonicalize",
    "EliminateCommonSubexpressions",
    "EliminateDeadCode",
    "HoistLoopInvariants",
    "Pass",
    "PassManager",
    "PassPlugin",
    "PassRun",
    "RaiseToDot",
    "UnrollLoops",
    "run_pipeline",
    "with_plugins",
]


def __getattr__(name: str) -> object:
    """`PassPlugin`, which launches without plugins do not wait for."""
    if name != "PassPlugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tkdebug.compiler.passes.plugin_passes import PassPlugin

    return PassPlugin
