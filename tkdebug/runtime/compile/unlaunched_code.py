"""Compiles interpreted kernels for a GPU to answer questions: nothing is launched, or announced.

Responsible for questions that the interpreter has about compiled code. The target is the default of
launches, an H200's if there is no GPU.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tkdebug.compiler.analysis.thread_order import ThreadOrder, thread_order
from tkdebug.compiler.passes.gpu.assign_layouts import AssignLayouts
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.rewriting.copies import copy_module
from tkdebug.compiler.targets.backend import Observers, note_options
from tkdebug.compiler.targets.registered_backends import backend_of
from tkdebug.errors import TkError
from tkdebug.runtime.compile.compilation import note_arguments
from tkdebug.runtime.compile.debugged_stages import gpu_passes
from tkdebug.runtime.compile.native_compilation import native_options, target_for

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.runtime.compile.specialization import Specialization


def order_of_threads(src: Specialization, module: Module) -> ThreadOrder | None:
    """Find out which threads access which elements in a kernel, and what orders them.

    Args:
        src: the source of the kernel, for a GPU (`source_for_gpu`).
        module: its Tile IR after the passes; not changed.

    Returns:
        None if native code does not have the kernel.
    """
    target, options = target_for(src.options), native_options(src)
    gpu_ir = copy_module(module)
    note_arguments(src, gpu_ir)
    note_options(gpu_ir, options, target)
    passes = gpu_passes(target, options)
    names = [one.name for one in passes]
    if AssignLayouts.name not in names:
        return None
    passes = passes[: names.index(AssignLayouts.name) + 1]
    try:
        PassManager(passes, verify_each=False, print_after=()).run(gpu_ir)
    except TkError:
        return None
    return thread_order(module, gpu_ir, backend_of(target).scratch_bytes)


def fitting_programs(src: Specialization, module: Module, multiprocessors: int) -> tuple[int, str]:
    """Count the programs of a kernel that a GPU holds at once.

    Args:
        src: the source of the kernel, for a GPU (`source_for_gpu`).
        module: its Tile IR after the passes; not changed.
        multiprocessors: the multiprocessors of the GPU.

    Returns:
        The number, and what limits it, in words. If no code can be generated, it is by warps
            alone.
    """
    target, options = target_for(src.options), native_options(src)
    backend = backend_of(target)
    registers, shared_bytes = 0, 0
    if backend.obstacle() is None:
        module = copy_module(module)
        note_arguments(src, module)
        # What native code does not have is limited by its warps, as is what cannot be generated.
        with suppress(TkError):
            lowered = backend.lower(module, options, target, Observers())
            binary = backend.generate(lowered).binary()
            registers, shared_bytes = binary.registers, binary.shared_bytes
    threads = options.num_warps * target.threads_per_warp
    fits = backend.occupancy(target, threads, registers, shared_bytes)
    amounts = {
        "registers": f"{registers} registers a thread",
        "shared memory": f"{shared_bytes:,} bytes of shared memory",
        "warps": f"{options.num_warps} warps",
        "blocks": "blocks",
    }
    blocks = max(1, fits.blocks)
    limits = " and ".join(amounts[name] for name in fits.limited_by)
    where = f"{blocks} on each of {multiprocessors} multiprocessors"
    return blocks * multiprocessors, f"{where}, by {limits}"
