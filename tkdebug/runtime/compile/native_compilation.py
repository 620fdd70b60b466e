"""Compiles a kernel to machine code for one specialisation and one architecture.

Responsible for what is around code generation: options it cannot honour, its steps, stages as files
(which there are, and which an edited file can replace), and calling hooks. The front end's part is
in `compilation`, the folders of files in `stage_files`, code generation in the backend
(`compiler.targets`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tkdebug.compiler.analysis.global_memory import hands_out_addresses
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.registered_backends import backend_of, target_of
from tkdebug.errors import UnsupportedError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.compile.compilation import (
    announce,
    compile_tile_ir,
    snapshot_recorder,
    tell_failure,
)
from tkdebug.runtime.compile.options import LaunchOptions
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.compile.stage_files import TILE_IR_FILE, StageDump, StageOverride
from tkdebug.runtime.device.driver import compute_capability, driver
from tkdebug.runtime.errors import OptionValueError, OutOfResources
from tkdebug.runtime.launch.breakpoints import ignore_breakpoints
from tkdebug.runtime.launch.native_kernel import NativeKernel, locate
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.frontend.scope import UsedGlobal
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.passes.pipeline import SnapshotCallback
    from tkdebug.compiler.targets import Target
    from tkdebug.compiler.targets.backend import (
        GeneratedKernel,
        ImageCallback,
        LoweredKernel,
        NativeStage,
    )
    from tkdebug.linemap.parts import OpPlace

GPU_IR_FILE = "gpu-ir.mlir"


def compile_native_kernel(src: Specialization, device: int) -> NativeKernel:
    """Compile for CUDA device `device` and report to the hooks; nothing is loaded yet.

    Raises:
        CompileError: the kernel does not compile; also reported as a fault.
        UnsupportedError: an option or op that native code does not have.
        OutOfResources: it needs more shared memory or threads than the architecture has.
    """
    return NativeCompilation(src, device).finish()


class NativeCompilation:
    """One compile in three steps: lowering, code generation, the kernel.

    Lowering is done at once, in Python; `generate` waits for another process and may be called in
    another thread. A failure of either is kept until `finish`, which is also when hooks are called,
    so that they hear of compiles in the order in which kernels are wanted.

    Args:
        src: the specialisation to compile.
        device: index of the CUDA device.

    Raises:
        UnsupportedError: an option or architecture that native code does not have.
        OptionValueError: an option that the architecture does not have.
    """

    def __init__(self, src: Specialization, device: int) -> None:
        self._target = target_for(src.options)
        refuse_options(src.fn.__name__, src.options, self._target)
        self._backend = backend_of(self._target)
        _refuse_clusters(src, self._target)
        self._src = src
        self._device = device
        self._recorder = snapshot_recorder(self._src)
        self._duration_ns = 0
        self._failure: Exception | None = None
        self._lowered: _Lowered | None = None
        self._compiled: GeneratedKernel | None = None
        self._step(self._lower)

    @property
    def code_key(self) -> Hashable:
        """Return the cache key of the generated code, or None if nothing is generated."""
        if self._lowered is None:
            return None
        return self._lowered.module.code_key

    @property
    def generated(self) -> GeneratedKernel | None:
        """The kernel with its code; None before `generate`, and if that failed."""
        return self._compiled

    @property
    def target(self) -> Target:
        """The architecture it is compiled for."""
        return self._target

    @property
    def options(self) -> LaunchOptions:
        """The options it is compiled with."""
        return self._src.options

    @property
    def kernel_hash(self) -> str:
        """The hash of its specialisation."""
        return self._src.hash

    @property
    def tile_ops(self) -> Mapping[int, OpPlace] | None:
        """The ops of its Tile IR; None if no hook wants to know of compiles."""
        return None if self._lowered is None else self._lowered.tile_ops

    @property
    def failure(self) -> Exception | None:
        """The failure of the steps so far, if any."""
        return self._failure

    def generate(self) -> None:
        """Generate code, unless that is done."""
        if self._lowered is not None and self._compiled is None and self._failure is None:
            self._step(self._generate)

    def finish(self) -> NativeKernel:
        """Return the kernel, and call the hooks.

        Raises:
            CompileError: it does not compile; also reported as a fault.
            UnsupportedError: an op that native code does not have.
            OutOfResources: it needs more shared memory or threads than the architecture has.
        """
        self.generate()
        if self._failure is not None:
            if isinstance(self._failure, OutOfResources):
                locate(self._failure, self._src)
            tell_failure(self._src, self._recorder, self._failure, self._duration_ns)
            raise self._failure
        lowered, compiled = self._lowered, self._compiled
        assert lowered is not None
        assert compiled is not None
        kernel = NativeKernel(
            self._src,
            lowered.tile_ir,
            lambda: compiled.module,
            compiled.binary(),
            lowered.used_globals,
            self._device,
            compile_native_kernel,
        )
        if lowered.tile_ops is not None:
            announce(
                kernel,
                self._recorder,
                compiled.texts(),
                compiled.text_frames(),
                self._duration_ns,
                compiled.is_cached,
                partial(compiled.line_table, lowered.tile_ops),
                lambda: kernel.binary.image,
            )
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
        from tkdebug.compiler.artifacts import op_places
        from tkdebug.compiler.ir.printer import print_module

        tile = compile_tile_ir(self._src, self._recorder)
        ignore_breakpoints(tile.breakpoints, "this kernel runs on the GPU")
        _tell_summarised_prints(tile.module)
        if hands_out_addresses(tile.module):
            from tkdebug.interpreter.memory.address_registry import (
                ADDRESSES,  # with torch, which is there by now
            )

            ADDRESSES.are_stored_by_kernels = True
        # Before GPU passes turn the module into GPU IR.
        tile_ir = print_module(tile.module)
        tile_ops = None if self._recorder is None else op_places(tile.module)
        files = NativeStageFiles.of(self._src, self._backend.stages)
        try:
            module = self._lower_module(tile.module, files)
        except OutOfResources:
            if not any(is_mapped(op) for op in tile.module.walk()):
                raise
            # Bulk stores take buffers that stores by pointers do without.
            self._src = replace(self._src, host_tma_descriptors=False)
            self._recorder = snapshot_recorder(self._src)
            self._lower()
        else:
            self._lowered = _Lowered(tile_ir, tile_ops, tile.used_globals, module, files)

    def _generate(self) -> None:
        lowered = self._lowered
        assert lowered is not None
        files = lowered.files
        self._compiled = self._backend.generate(lowered.module, files.on_stage, files.on_image)

    def _lower_module(self, module: Module, files: NativeStageFiles) -> LoweredKernel:
        from tkdebug.compiler.artifacts import GPU_STAGE
        from tkdebug.compiler.targets.backend import Observers

        files.refuse_gpu_ir()
        recorder = self._recorder
        if recorder is not None:
            recorder.stage = GPU_STAGE
        observers = Observers(
            files.on_snapshot,
            None if recorder is None else recorder.after_run,
            files.on_stage,
            partial(_check_resources, self._target),
            recorder,
        )
        options = native_options(self._src)
        lowered = self._backend.lower(module, options, self._target, observers)
        if recorder is not None and not recorder.is_finished:
            recorder.finish(lowered.module)
        files.write_gpu_ir(lowered)
        return lowered


@dataclass(frozen=True, slots=True)
class _Lowered:
    """The results of lowering that the other steps need.

    Attributes:
        tile_ir: text of the Tile IR after its passes.
        tile_ops: its ops by id; None if no hook wants them.
        used_globals: module-level values it was compiled with.
        module: the module that code is generated from.
        files: the files of its stages.
    """

    tile_ir: str
    tile_ops: Mapping[int, OpPlace] | None
    used_globals: tuple[UsedGlobal, ...]
    module: LoweredKernel
    files: NativeStageFiles


def _tell_summarised_prints(module: Module) -> None:
    """Report the prints that the kernel summarises."""
    from tkdebug.compiler.dialects import tt
    from tkdebug.compiler.print_summaries import is_summarised

    most = int(KNOBS.print_elements)
    for op in module.walk():
        if tt.Print.matches(op) and any(is_summarised(op, value, most) for value in op.operands):
            from tkdebug.interpreter.watching.prints import tell_summarised

            tell_summarised(op, most)


@cache
def note_cluster(num_ctas: int) -> None:
    """Report once that programs do not spread over clusters; their results are the same."""
    tell(f"num_ctas={num_ctas}: clusters are not used, each program runs in one block")


def refuse_options(kernel: str, options: LaunchOptions, target: Target) -> None:
    """Refuse options that native code cannot honour.

    Raises:
        UnsupportedError: naming the option.
    """
    backend = backend_of(target)
    linked = backend.linked_libraries()
    for name, only in backend.fixed_options(target).items():
        value = getattr(options, name)
        if name == "extern_libs" and {library for library, _ in value} <= linked:
            continue
        if value != only:
            raise UnsupportedError(
                f"kernel {kernel}: option {name}={value!r} is not supported natively "
                f"(expected {only!r}); leave it out, or use "
                "`tkdebug run --mode interpret`"
            )


def target_for(options: LaunchOptions) -> Target:
    """The architecture that `options`, or the current device, ask for.

    Raises:
        UnsupportedError: tkdebug does not compile for it.
    """
    if options.arch is None:
        return target_of(driver.active.get_current_target().arch)
    # Raises where it names no architecture at all.
    compute_capability(options.arch)
    return target_of(options.arch)


def _refuse_clusters(src: Specialization, target: Target) -> None:
    num_ctas = src.options.num_ctas
    problem = backend_of(target).cluster_problem(target, num_ctas)
    if problem is not None:
        raise OptionValueError(f"kernel {src.fn.__name__}: {problem}")
    if num_ctas > 1:
        note_cluster(num_ctas)


def native_options(src: Specialization) -> NativeOptions:
    """The options of a launch that code generation looks at."""
    options = src.options
    return NativeOptions(
        options.num_warps,
        options.num_stages,
        options.maxnreg,
        options.debug or KNOBS.debug,
        options.enable_fp_fusion,
        options.enable_reflect_ftz,
        src.host_tma_descriptors,
        src.checks,
        int(KNOBS.print_elements),
    )


def _check_resources(target: Target, threads: int, shared_bytes: int) -> None:
    """Refuse a kernel that no device of the architecture can run.

    Raises:
        OutOfResources: the architecture has less than the kernel needs.
    """
    if threads > target.threads_per_block:
        raise OutOfResources(threads, target.threads_per_block, "threads")
    if shared_bytes > target.shared_bytes_per_block:
        raise OutOfResources(shared_bytes, target.shared_bytes_per_block, "shared memory")


@dataclass(frozen=True, slots=True)
class NativeStageFiles:
    """The files of one compile: the written ones, and the edited ones.

    Attributes:
        stages: the stages after the GPU IR.
        dump: writes stages; None if none are wanted.
        override: reads edited stages; None if there are none.
    """

    stages: tuple[NativeStage, ...]
    dump: StageDump | None
    override: StageOverride | None

    @staticmethod
    def of(src: Specialization, stages: tuple[NativeStage, ...]) -> NativeStageFiles:
        """The files that the knobs ask for, if any."""
        return NativeStageFiles(stages, StageDump.of(src), StageOverride.of(src))

    @property
    def on_snapshot(self) -> SnapshotCallback | None:
        """The callback that gets the GPU IR after each pass; None if stages are not written."""
        return None if self.dump is None else partial(self.dump.write_snapshot, "gpu-ir")

    @property
    def on_stage(self) -> Callable[[str, str], str | None] | None:
        """The callback that gets each stage's text, and may return another; None if unwanted."""
        return None if self.dump is None and self.override is None else self._on_stage

    def _on_stage(self, stage: str, text: str) -> str | None:
        file = next(known.file for known in self.stages if known.name == stage)
        edited = None if self.override is None else self.override.read_text(file)
        if self.dump is not None:
            self.dump.write(file, text if edited is None else edited)
        return edited

    def refuse_gpu_ir(self) -> None:
        """Refuse an edited file of GPU IR, which cannot be used.

        Raises:
            UnsupportedError: there is an edited file of the GPU IR.
        """
        gpu_ir = None if self.override is None else self.override.path(GPU_IR_FILE)
        if gpu_ir is not None:
            raise UnsupportedError(
                f"TKDEBUG_OVERRIDE: {gpu_ir}: the GPU IR cannot be replaced "
                f"by an edited file; {', '.join(stage.file for stage in self.stages)} "
                f"and {TILE_IR_FILE} can"
            )

    def write_gpu_ir(self, lowered: LoweredKernel) -> None:
        """Write the GPU IR after its passes, if it is wanted."""
        if self.dump is not None:
            self.dump.write_ir(GPU_IR_FILE, lowered.module)

    @property
    def on_image(self) -> ImageCallback | None:
        """The callback that gets the image to load, and may return another; None if unwanted."""
        return None if self.dump is None and self.override is None else self._on_image

    def _on_image(self, image: bytes) -> bytes:
        file = next((stage.file for stage in self.stages if stage.is_image), None)
        if file is None:
            return image
        edited = None if self.override is None else self.override.read(file)
        if edited is not None:
            image = edited
        if self.dump is not None:
            self.dump.write(file, image)
        return image
