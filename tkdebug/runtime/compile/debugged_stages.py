"""A kernel's IR as its passes leave it, for debuggers, and code that answers questions.

The passes and their order are those of a compile; for debuggers, nothing is lowered. The
interpreter has questions about compiled code, for which kernels are compiled for a GPU: nothing is
launched, or announced. The target is the default of launches, an H200's if there is no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.analysis.thread_order import ThreadOrder, thread_order
from tkdebug.compiler.ir import DescriptorType
from tkdebug.compiler.passes.gpu.assign_layouts import AssignLayouts
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.rewriting.copies import copy_module
from tkdebug.compiler.targets.backend import NativeOptions, Observers, note_options
from tkdebug.compiler.targets.registered_backends import backend_of
from tkdebug.errors import TkError, UsageError
from tkdebug.runtime.arguments.specialize import alignment_key
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.compile.compilation import note_arguments
from tkdebug.runtime.compile.native_compilation import native_options, target_for
from tkdebug.runtime.device.platform import platform_in_force

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.passes.pass_run import Pass, PassRun
    from tkdebug.compiler.targets.target import Target
    from tkdebug.runtime.compile.specialization import Specialization

# The default of `tkdebug passes`, too.
_USUAL_TARGET = "sm_90a"


def source_for_gpu(
    src: Specialization, target: str | None, values: Sequence[Any]
) -> Specialization:
    """Return the specialisation of an interpreted kernel for an architecture.

    Args:
        src: the source of the interpreted kernel.
        target: the architecture, where the launch asks for none; None for the usual one.
        values: the launch's values, whose alignment GPU code knows.
    """
    options = src.options
    target = target or usual_target()
    if target is not None and not options.arch:
        options = replace(options, arch=target)
    return replace(src, alignment=alignment_key(src.fn.params, values), options=options)


def values_for(module: Module, values: Sequence[Any]) -> Sequence[Any]:
    """The values of a launch's Tile IR, with descriptors spread where a module takes them so."""
    arguments = module.function.regions[0].block.arguments
    if len(values) == len(arguments):
        return values
    spread: list[Any] = []
    for value in values:
        if isinstance(value, TensorDescriptor):
            # Tensor maps stay descriptors.
            is_map = isinstance(arguments[len(spread)].type, DescriptorType)
            spread += [value if is_map else value.base, *value.shape, *value.strides]
        else:
            spread.append(value)
    return spread


def usual_target() -> str | None:
    """Return the default architecture of GPU IR; None for the architecture of the GPU here."""
    return None if platform_in_force().obstacle() is None else _USUAL_TARGET


def tile_passes() -> tuple[Pass, ...]:
    """The passes over Tile IR, in order."""
    from tkdebug.compiler.passes import TILE_PIPELINE, with_plugins

    return with_plugins(TILE_PIPELINE, "tile")


def gpu_passes(target: Target, options: NativeOptions) -> tuple[Pass, ...]:
    """The passes from Tile IR to GPU IR, in order."""
    from tkdebug.compiler.passes import with_plugins

    return with_plugins(backend_of(target).pipeline(target, options), "gpu")


def run_to_stage(
    src: Specialization, module: Module, stage: str, pass_name: str, run: int
) -> Iterator[tuple[PassRun, frozenset[str]]]:
    """Run passes on the front end's module up to one of them, which is the last.

    Args:
        src: the compiled specialisation.
        module: changed.
        stage: "tile-ir" or "gpu-ir".
        pass_name: the last pass; "" for all.
        run: the number of the run, if the pass has several.

    Yields:
        The record of each pass, and its rules whose ops belong to other iterations of a
            loop.

    Raises:
        TkError: a pass refuses the kernel.
    """
    from tkdebug.compiler.passes.pipeline import PassManager, other_rounds

    note_arguments(src, module)
    left = run
    for is_gpu, pass_ in passes_of(src, module, stage):
        (done,) = PassManager((pass_,), verify_each=False, print_after=()).run(module)
        yield done, other_rounds(pass_)
        if is_gpu == (stage == "gpu-ir") and pass_.name == pass_name:
            left -= 1
            if not left:
                return
    if pass_name:
        times = "not" if left == run else "once" if run - left == 1 else f"{run - left} times"
        raise UsageError(f"{pass_name} runs {times} with the options of this kernel, got run {run}")


def passes_of(src: Specialization, module: Module, stage: str) -> Iterator[tuple[bool, Pass]]:
    """Yield the passes up to a stage, each with whether it is one to GPU IR.

    Args:
        src: the specialisation to compile.
        module: the module that the caller runs each pass on before it takes the next one.
        stage: "tile-ir" or "gpu-ir".
    """
    for pass_ in tile_passes():
        yield False, pass_
    if stage == "gpu-ir":
        target, options = target_for(src.options), native_options(src)
        note_options(module, options, target)
        for pass_ in gpu_passes(target, options):
            yield True, pass_


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
        # A kernel that native code does not have, or that does not compile, is limited by warps.
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
