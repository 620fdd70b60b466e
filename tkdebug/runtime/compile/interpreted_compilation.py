"""Compiles a kernel for interpretation, in the thread that wants it."""

from __future__ import annotations

import time

from tkdebug.errors import UnsupportedError
from tkdebug.runtime.compile.compilation import (
    announce,
    compile_tile_ir,
    snapshot_recorder,
    tell_failure,
)
from tkdebug.runtime.compile.cross_compilation import cross_compile
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel


def compile_kernel(src: Specialization) -> InterpretedKernel:
    """Compile for interpretation and tell the hooks.

    Raises:
        CompileError: the kernel's source is wrong or not available; also reported as a fault.
        UnsupportedError: an option that interpretation cannot honour.
    """
    if src.options.ir_override is not None:
        raise UnsupportedError(
            f"kernel {src.fn.__name__}: option ir_override is not supported under interpret"
        )
    recorder = snapshot_recorder()
    started_ns = time.perf_counter_ns()
    try:
        tile = compile_tile_ir(src, recorder)
    except Exception as error:
        tell_failure(src, recorder, error, time.perf_counter_ns() - started_ns)
        raise
    kernel = InterpretedKernel(src, tile.module, tile.used_globals, tile.breakpoints, cross_compile)
    announce(kernel, recorder, {}, {}, time.perf_counter_ns() - started_ns)
    return kernel
