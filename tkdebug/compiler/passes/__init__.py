"""Passes over Tile IR, a file for each pass or family, and the pipeline that runs them.

A pass is a frozen dataclass whose fields are its options; it changes the module only through the
`Rewriter` it is given, so that every change is recorded.
"""

from __future__ import annotations

from tkdebug.compiler.passes.canonicalize import Canonicalize
from tkdebug.compiler.passes.cleanup import (
    EliminateCommonSubexpressions,
    EliminateDeadCode,
    HoistLoopInvariants,
)
from tkdebug.compiler.passes.dots import RaiseToDot
from tkdebug.compiler.passes.pass_run import Pass, PassRun
from tkdebug.compiler.passes.pipeline import (
    TILE_PIPELINE,
    PassManager,
    PassPlugin,
    run_pipeline,
    with_plugins,
)
from tkdebug.compiler.passes.unroll_loops import UnrollLoops

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
