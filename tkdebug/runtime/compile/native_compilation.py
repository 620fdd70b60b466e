"""Compiles a kernel to a cubin for one specialisation and one architecture.

Responsible for what stands around code generation: options it cannot honour, its steps, telling
hooks. The front end's part is `compilation`'s, code generation and its cache on disk
`compiler.targets`'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tkdebug.errors import Frame, UnsupportedError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.compile.compilation import (
    announce,
    compile_tile_ir,
    snapshot_recorder,
    tell_failure,
)
from tkdebug.runtime.compile.native_stage_files import NativeStageFiles
from tkdebug.runtime.compile.needed_resources import locate
from tkdebug.runtime.compile.options import LaunchOptions
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.cuda.binary import Binary
from tkdebug.runtime.device.driver import compute_capability, driver
from tkdebug.runtime.errors import OptionValueError, OutOfResources
from tkdebug.runtime.launch.native_kernel import NativeKernel
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.artifacts import SnapshotRecorder
    from tkdebug.compiler.frontend.scope import UsedGlobal
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.targets import Target
    from tkdebug.compiler.targets.nvptx.compile import CompiledModule, LoweredModule
    from tkdebug.linemap.line_table import OpPlace

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


def compile_native_kernel(src: Specialization, device: int) -> NativeKernel:
    """Compile for CUDA device `device` and tell the hooks; nothing is loaded yet.

    Raises:
        CompileError: the kernel does not compile; also told as a fault.
        UnsupportedError: an option or op that native code does not have.
        OutOfResources: it needs more shared memory or threads than the architecture has.
    """
    return NativeCompilation(src, device).finish()


class NativeCompilation:
    """One compile in three steps: lowering, code generation, the kernel.

    Lowering is done when it is made, in Python; `generate` waits for another process and may be
    called in another thread. A failure of either is kept until `finish`, which is also when hooks
    are told, so that they hear of compiles in the order in which kernels are wanted.

    Args:
        src: what to compile for.
        device: index of the CUDA device.

    Raises:
        UnsupportedError: an option or architecture that native code does not have.
        OptionValueError: an option that the architecture does not have.
    """

    def __init__(self, src: Specialization, device: int) -> None:
        refuse_options(src.fn.__name__, src.options)
        self._target = target_for(src.options)
        _refuse_clusters(src, self._target)
        self._src = src
        self._device = device
        self._recorder = snapshot_recorder()
        self._duration_ns = 0
        self._failure: Exception | None = None
        self._lowered: _Lowered | None = None
        self._compiled: CompiledModule | None = None
        self._step(self._lower)

    @property
    def code_key(self) -> Hashable:
        """What is the same where the same code is generated; None where none is."""
        if self._lowered is None:
            return None
        module = self._lowered.module
        return module.llvm_ir, module.target.name, module.max_registers

    def generate(self) -> None:
        """Generate code, unless that is done."""
        if self._lowered is not None and self._compiled is None and self._failure is None:
            self._step(self._generate)

    def finish(self) -> NativeKernel:
        """The kernel; hooks are told.

        Raises:
            CompileError: it does not compile; also told as a fault.
            UnsupportedError: an op that native code does not have.
            OutOfResources: it needs more shared memory or threads than the architecture has.
        """
        from tkdebug.compiler.targets.nvptx.line_tables import line_table_data

        self.generate()
        if self._failure is not None:
            if isinstance(self._failure, OutOfResources):
                locate(self._failure, self._src)
            tell_failure(self._src, self._recorder, self._failure, self._duration_ns)
            raise self._failure
        lowered, compiled = self._lowered, self._compiled
        assert lowered is not None
        assert compiled is not None
        binary = _binary(compiled, self._target)
        kernel = NativeKernel(
            self._src,
            lowered.tile_ir,
            compiled.module,
            binary,
            lowered.used_globals,
            self._device,
        )
        if lowered.tile_ops is not None:
            texts = {"llvm-ir": binary.llvm_ir, "ptx": binary.ptx}
            lines = {"ptx": _ptx_frames(compiled)}
            table = partial(line_table_data, compiled, self._target, lowered.tile_ops)
            cached = not compiled.code.times_ns
            announce(kernel, self._recorder, texts, lines, self._duration_ns, cached, table)
        return kernel

    def _step(self, step: Callable[[], None]) -> None:
        started_ns = time.perf_counter_ns()
        try:
            step()
        except Exception as error:
            self._failure = error
        self._duration_ns += time.perf_counter_ns() - started_ns

    def _lower(self) -> None:
        from tkdebug.compiler.analysis.tensor_maps import is_mapped
        from tkdebug.compiler.ir.printer import print_module
        from tkdebug.compiler.targets.nvptx.line_tables import op_places

        tile = compile_tile_ir(self._src, self._recorder)
        # Before GPU passes turn the module into GPU IR.
        tile_ir = print_module(tile.module)
        tile_ops = None if self._recorder is None else op_places(tile.module)
        files = NativeStageFiles.of(self._src)
        try:
            module = _lower_to_llvm(self._src, tile.module, self._target, self._recorder, files)
        except OutOfResources:
            if not any(is_mapped(op) for op in tile.module.walk()):
                raise
            # Bulk stores take buffers that stores by pointers do without.
            self._src = replace(self._src, launch_maps=False)
            self._recorder = snapshot_recorder()
            self._lower()
        else:
            self._lowered = _Lowered(tile_ir, tile_ops, tile.used_globals, module, files)

    def _generate(self) -> None:
        from tkdebug.compiler.targets.nvptx.compile import generate_code

        lowered = self._lowered
        assert lowered is not None
        compiled = generate_code(lowered.module, lowered.files.on_stage)
        cubin = lowered.files.final_cubin(compiled.code.cubin)
        self._compiled = replace(compiled, code=replace(compiled.code, cubin=cubin))


@dataclass(frozen=True, slots=True)
class _Lowered:
    """What lowering leaves for the other steps.

    Attributes:
        tile_ir: text of the Tile IR after its passes.
        tile_ops: its ops by id; None when no hook wants to know.
        used_globals: module-level values it was compiled with.
        module: what code is generated of.
        files: its stages as files.
    """

    tile_ir: str
    tile_ops: Mapping[int, OpPlace] | None
    used_globals: tuple[UsedGlobal, ...]
    module: LoweredModule
    files: NativeStageFiles


@cache
def note_cluster(num_ctas: int) -> None:
    """Say once that programs do not spread over clusters here; what they compute is the same."""
    tell(f"num_ctas={num_ctas}: clusters are not used, each program runs in one block")


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


def _refuse_clusters(src: Specialization, target: Target) -> None:
    num_ctas = src.options.num_ctas
    if num_ctas > 1:
        if not target.cluster:
            raise OptionValueError(
                f"kernel {src.fn.__name__}: num_ctas > 1 requires NVIDIA SM90+ (Hopper), "
                f"got num_ctas={num_ctas} for {target}; leave it out"
            )
        note_cluster(num_ctas)


def _lower_to_llvm(
    src: Specialization,
    module: Module,
    target: Target,
    recorder: SnapshotRecorder | None,
    files: NativeStageFiles,
) -> LoweredModule:
    from tkdebug.compiler.artifacts import GPU_STAGE
    from tkdebug.compiler.targets.nvptx.compile import NativeOptions, lower_to_llvm

    files.refuse_gpu_ir()
    if recorder is not None:
        recorder.stage = GPU_STAGE
    options = src.options
    lowered = lower_to_llvm(
        module,
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
        snapshot=files.on_snapshot,
        on_run=None if recorder is None else recorder.after_run,
        on_stage=files.on_stage,
        on_resources=partial(_check_resources, target),
    )
    files.write_gpu_ir(lowered.module)
    return lowered


def _check_resources(target: Target, threads: int, shared_bytes: int) -> None:
    """Refuse what no device of the architecture can run.

    Raises:
        OutOfResources: it has less.
    """
    if threads > target.threads_per_block:
        raise OutOfResources(threads, target.threads_per_block, "threads")
    if shared_bytes > target.shared_bytes_per_block:
        raise OutOfResources(shared_bytes, target.shared_bytes_per_block, "shared memory")


def _binary(compiled: CompiledModule, target: Target) -> Binary:
    from tkdebug.compiler.analysis.tensor_maps import made_maps, tensor_maps, workspace_bytes

    code, function = compiled.code, compiled.module.function
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
        tensor_maps=tensor_maps(function),
        made_maps=tuple(made for _, made in made_maps(function)),
        workspace_bytes=workspace_bytes(function),
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
