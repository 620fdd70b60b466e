"""What a kernel is compiled with, noted on its function for the GPU passes and the lowering."""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.target import Target


def note_options(module: Module, options: NativeOptions, target: Target) -> None:
    """Say in a module of Tile IR for which target, and with which options, it is compiled."""
    function = tt.Func(module.function)
    function.num_warps = options.num_warps
    function.target = target.name
    if target.threads_per_warp != function.threads_per_warp:
        function.threads_per_warp = target.threads_per_warp
    if not options.fp_fusion:
        function.fp_fusion = False
    if not options.flush_subnormals:
        function.flush_subnormals = False
