"""A kernel's IR as its passes leave it, one pass after the other, for a debugger.

The passes and their order are those of a compile; nothing is lowered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.ir import DescriptorType
from tkdebug.compiler.targets.backend import NativeOptions, note_options
from tkdebug.compiler.targets.registered_backends import backend_of
from tkdebug.errors import UsageError
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


# As `tkdebug passes` has it.
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
        module: which they are run on as they come.
        stage: "tile-ir" or "gpu-ir".
    """
    for pass_ in tile_passes():
        yield False, pass_
    if stage == "gpu-ir":
        target, options = target_for(src.options), native_options(src)
        note_options(module, options, target)
        for pass_ in gpu_passes(target, options):
            yield True, pass_
