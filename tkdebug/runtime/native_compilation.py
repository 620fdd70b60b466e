"""Compiles a kernel to a cubin for one specialisation and one architecture.

Responsible for what stands around code generation: options it cannot honour, dumped and overridden
stages, telling hooks. The front end's part is `compilation`'s, code generation and its cache on
disk `compiler.targets`'.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tkdebug.errors import CompileError, Frame, UnsupportedError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.compilation import (
    TileStage,
    announce,
    announce_failure,
    compile_tile_ir,
    tell_compile_error,
)
from tkdebug.runtime.cuda.binary import Binary
from tkdebug.runtime.driver import compute_capability, driver
from tkdebug.runtime.errors import OptionValueError, OutOfResources
from tkdebug.runtime.native_kernel import NativeKernel
from tkdebug.runtime.options import LaunchOptions
from tkdebug.runtime.specialization import Specialization
from tkdebug.runtime.stage_files import TILE_IR_FILE, StageDump, StageOverride

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.passes import PassRun
    from tkdebug.compiler.targets import Target
    from tkdebug.compiler.targets.nvptx.compile import CompiledModule

# Options that code generation does not look at, with the only value each may have.
_FIXED_OPTIONS = {
    "ir_override": None,
    "extern_libs": (),
    "warp_size": 32,
    "ptx_version": None,
    "ptx_options": None,
    "instrumentation_mode": "",
}
# Linked without being asked for, from where they are installed.
_LINKED_LIBRARIES = frozenset(("libdevice",))
STAGE_FILES = {"gpu-ir": "gpu-ir.mlir", "llvm-ir": "llvm-ir.ll", "ptx": "kernel.ptx"}
CUBIN_FILE = "kernel.cubin"
# Stages whose edited file takes the place of what the compiler makes.
_REPLACEABLE = ("llvm-ir", "ptx")


def compile_native_kernel(src: Specialization, device: int) -> NativeKernel:
    """Compile for CUDA device `device` and tell the hooks; nothing is loaded yet.

    Raises:
        CompileError: the kernel does not compile; also told as a fault.
        UnsupportedError: an option or op that native code does not have.
        OutOfResources: it needs more shared memory or threads than the architecture has.
    """
    from tkdebug.compiler.ir.printer import print_module
    from tkdebug.compiler.targets.nvptx.line_tables import line_table_data, op_places

    refuse_options(src.fn.__name__, src.options)
    target = target_for(src.options)
    if src.options.num_ctas > 1:
        if not target.cluster:
            raise OptionValueError(
                f"kernel {src.fn.__name__}: num_ctas > 1 requires NVIDIA SM90+ (Hopper), "
                f"got num_ctas={src.options.num_ctas} for {target}; leave it out"
            )
        note_cluster(src.options.num_ctas)
    started_ns = time.perf_counter_ns()
    tile = compile_tile_ir(src)
    # Before code generation turns the module into GPU IR.
    tile_ir = print_module(tile.module)
    tile_ops = None if tile.recorder is None else op_places(tile.module)
    try:
        compiled = _compile(src, tile, target)
    except Exception as error:
        if isinstance(error, OutOfResources) and _has_launch_maps(tile.module):
            # Bulk stores take buffers that stores by pointers do without.
            return compile_native_kernel(replace(src, launch_maps=False), device)
        if isinstance(error, CompileError):
            tell_compile_error(src.fn.__name__, error)
        announce_failure(src, tile.recorder, error, time.perf_counter_ns() - started_ns)
        raise
    binary = _binary(compiled, target)
    kernel = NativeKernel(src, tile_ir, compiled.module, binary, tile.used_globals, device)
    if tile_ops is not None:
        duration_ns = time.perf_counter_ns() - started_ns
        texts = {"llvm-ir": binary.llvm_ir, "ptx": binary.ptx}
        lines = {"ptx": _ptx_frames(compiled)}
        table = partial(line_table_data, compiled, target, tile_ops)
        announce(kernel, tile, texts, lines, duration_ns, not compiled.code.times_ns, table)
    return kernel


@cache
def note_cluster(num_ctas: int) -> None:
    """Say once that programs do not spread over clusters here; what they compute is the same."""
    print(
        f"tkdebug: num_ctas={num_ctas}: clusters are not used, each program runs in one block",
        file=sys.stderr,
    )


def refuse_options(kernel: str, options: LaunchOptions) -> None:
    """Refuse options that native code cannot honour.

    Raises:
        UnsupportedError: naming the option.
    """
    for name, only in _FIXED_OPTIONS.items():
        value = getattr(options, name)
        if name == "extern_libs" and {library for library, _ in value} <= _LINKED_LIBRARIES:
            continue
        if value != only:
            raise UnsupportedError(
                f"kernel {kernel}: option {name}={value!r} is not supported natively "
                f"(expected {only!r}); leave it out, or run with --mode interpret"
            )


def target_for(options: LaunchOptions) -> Target:
    """The architecture that `options`, or the current device, ask for.

    Raises:
        UnsupportedError: tkdebug does not compile for it.
    """
    from tkdebug.compiler.targets import target_of

    if options.arch is None:
        number = int(driver.active.get_current_target().arch)
    else:
        number = compute_capability(options.arch)
    return target_of(divmod(number, 10))


def _compile(src: Specialization, tile: TileStage, target: Target) -> CompiledModule:
    from tkdebug.compiler.targets.nvptx.compile import NativeOptions, compile_module

    dump, override = StageDump.of(src), StageOverride.of(src)
    options = src.options
    compiled = compile_module(
        tile.module,
        NativeOptions(
            options.num_warps,
            options.num_stages,
            options.maxnreg,
            options.debug or KNOBS.debug,
            options.enable_fp_fusion,
            options.enable_reflect_ftz,
            src.launch_maps,
        ),
        target,
        snapshot=None if dump is None else partial(dump.write_snapshot, "gpu-ir"),
        on_run=_on_run(tile),
        on_stage=None if dump is None and override is None else _on_stage(dump, override),
        on_resources=partial(_check_resources, target),
    )
    cubin = None if override is None else override.read(CUBIN_FILE)
    if cubin is not None:
        compiled = replace(compiled, code=replace(compiled.code, cubin=cubin))
    if dump is not None:
        dump.write_ir(STAGE_FILES["gpu-ir"], compiled.module)
        dump.write(CUBIN_FILE, compiled.code.cubin)
    return compiled


def _check_resources(target: Target, threads: int, shared_bytes: int) -> None:
    """Refuse what no device of the architecture can run.

    Raises:
        OutOfResources: it has less.
    """
    if threads > target.threads_per_block:
        raise OutOfResources(threads, target.threads_per_block, "threads")
    if shared_bytes > target.shared_bytes_per_block:
        raise OutOfResources(shared_bytes, target.shared_bytes_per_block, "shared memory")


def _has_launch_maps(module: Module) -> bool:
    from tkdebug.compiler.analysis.tensor_maps import LAUNCH_MADE

    return any(op.attributes.get(LAUNCH_MADE) for op in module.walk())


def _binary(compiled: CompiledModule, target: Target) -> Binary:
    from tkdebug.compiler.analysis.tensor_maps import made_maps, tensor_maps

    code = compiled.code
    return Binary(
        llvm_ir=compiled.llvm_ir,
        ptx=code.ptx,
        cubin=code.cubin,
        entry=compiled.symbol,
        target=target.name,
        threads=compiled.num_warps * target.threads_per_warp,
        shared_bytes=compiled.shared_bytes,
        registers=code.registers,
        spill_bytes=code.spill_store_bytes,
        tensor_maps=tensor_maps(compiled.module.function),
        made_maps=tuple(made for _, made in made_maps(compiled.module.function)),
        ptx_ops={row.line: row.op_id for row in code.ptx_lines if row.op_id is not None},
    )


def _ptx_frames(compiled: CompiledModule) -> dict[int, tuple[Frame, ...]]:
    """The source frames of the PTX's lines."""
    frames = {op.id: op.location.frames for op in compiled.module.walk()}
    return {
        line.line: frames[line.op_id]
        for line in compiled.code.ptx_lines
        if line.op_id is not None and line.op_id in frames
    }


def _on_run(tile: TileStage) -> Callable[[PassRun, Module], None] | None:
    """What is called after each GPU pass, when somebody wants to know."""
    if tile.recorder is None:
        return None
    from tkdebug.compiler.artifacts import GPU_STAGE

    tile.recorder.stage = GPU_STAGE
    return tile.recorder.after_run


def _on_stage(
    dump: StageDump | None, override: StageOverride | None
) -> Callable[[str, str], str | None]:
    """What is called with the text of each stage, and may give an edited one."""
    gpu_ir = None if override is None else override.path(STAGE_FILES["gpu-ir"])
    if gpu_ir is not None:
        raise UnsupportedError(
            f"TKDEBUG_OVERRIDE: {gpu_ir}: the GPU IR cannot be replaced "
            f"by an edited file; {', '.join(STAGE_FILES[stage] for stage in _REPLACEABLE)}, "
            f"{CUBIN_FILE} and {TILE_IR_FILE} can"
        )

    def on_stage(stage: str, text: str) -> str | None:
        if stage not in _REPLACEABLE:
            return None
        edited = None if override is None else override.read_text(STAGE_FILES[stage])
        if dump is not None:
            dump.write(STAGE_FILES[stage], text if edited is None else edited)
        return edited

    return on_stage
