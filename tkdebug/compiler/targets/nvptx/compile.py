"""Tile IR to cubin: the stages of native compilation, each a named artifact.

Responsible for their order and for errors that name the op's line. Nothing here needs a GPU.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from tkdebug.compiler.artifacts import op_places
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module
from tkdebug.compiler.passes.asserts_and_prints import SummarisePrints
from tkdebug.compiler.passes.pass_run import Pass, PassRun
from tkdebug.compiler.passes.pipeline import run_pipeline, with_plugins
from tkdebug.compiler.targets.backend import (
    NativeOptions,
    Observers,
    StageCallback,
    note_options,
)
from tkdebug.compiler.targets.nvptx.codegen.generation import NativeCode, generate
from tkdebug.compiler.targets.target import Target
from tkdebug.errors import CompileError, Frame
from tkdebug.linemap.parts import Frames, OpPlace
from tkdebug.process.apart_imports import import_apart

if TYPE_CHECKING:
    from tkdebug.compiler.analysis.tensor_maps import MadeMap, TensorMap
    from tkdebug.compiler.sites.checks import CheckPlan, CheckSite
    from tkdebug.compiler.sites.clocks import TimelineOptions


# The modules that lower a kernel.
LOWERING = tuple(
    f"tkdebug.compiler.targets.nvptx.{name}" for name in ("pipeline", "lowering.driver")
)
_NOBODY = Observers()


@dataclass(frozen=True, slots=True)
class Binary:
    """A kernel's machine code and its resources.

    Attributes:
        llvm_ir: text.
        ptx: text.
        cubin: the ELF image.
        entry: name of the kernel in it.
        target: name of the architecture, such as sm_90a.
        threads: the threads of a block.
        shared_bytes: dynamic shared memory of a block.
        registers: the registers of a thread.
        spill_bytes: bytes that a thread stores to local memory as registers ran out.
        tensor_maps: by the position of the parameter, for descriptors that are passed as such.
        made_maps: tensor maps that the launch makes of its arguments, in parameters after all
            others.
        workspace_bytes: global memory that each program needs for tensor maps it makes itself; the
            launch allocates it, and passes its address in a parameter after all others.
        ptx_ops: line (1-based) of the PTX -> id of its GPU IR op.
        checks: the plan to read a checked kernel's reports by; None for a bare one. A checked
            kernel takes more parameters after all others: the addresses of the table that it
            reports to and of the host's copy of that, and for each of `check_bounds` the first and
            the end byte address and the number of elements from its pointer on.
    """

    llvm_ir: str
    ptx: str
    cubin: bytes
    entry: str
    target: str
    threads: int
    shared_bytes: int
    registers: int
    spill_bytes: int
    tensor_maps: Mapping[int, TensorMap] = field(default_factory=dict)
    made_maps: tuple[MadeMap, ...] = ()
    workspace_bytes: int = 0
    ptx_ops: Mapping[int, int] = field(default_factory=dict)
    checks: CheckPlan | None = None

    @property
    def check_sites(self) -> tuple[CheckSite, ...]:
        """The sites of a checked kernel, by number."""
        return () if self.checks is None else self.checks.sites

    @property
    def check_bounds(self) -> tuple[str, ...]:
        """The parameters whose tensors' bounds are passed, in that order."""
        return () if self.checks is None else self.checks.bounds

    @property
    def image(self) -> bytes:
        """The image that is loaded."""
        return self.cubin

    def stages(self) -> Mapping[str, Callable[[], str | bytes]]:
        """Functions that make each stage after the GPU IR, by its name in `kernel.asm`."""
        return {
            "llir": lambda: self.llvm_ir,
            "ptx": lambda: self.ptx,
            "cubin": lambda: self.cubin,
            "sass": self.sass,
        }

    def sass(self) -> str:
        """The machine code as text.

        Raises:
            TkError: nvdisasm is not installed.
        """
        from tkdebug.linemap.nvidia.unread_code import sass_text

        return sass_text(self.cubin)


@dataclass(frozen=True, slots=True)
class LaunchMaps:
    """The tensor maps of a kernel, and the memory for them, as `Binary` has them."""

    tensor_maps: Mapping[int, TensorMap] = field(default_factory=dict)
    made_maps: tuple[MadeMap, ...] = ()
    workspace_bytes: int = 0

    @staticmethod
    def of(module: Module) -> LaunchMaps:
        """Return the tensor maps of GPU IR, and the size of the memory for them."""
        from tkdebug.compiler.analysis.tensor_maps import made_maps, tensor_maps, workspace_bytes

        function = module.function
        made = tuple(made for _, made in made_maps(function))
        return LaunchMaps(tensor_maps(function), made, workspace_bytes(function))


@dataclass(frozen=True, slots=True)
class LoweredModule:
    """A kernel that is ready for code generation.

    Attributes:
        symbol: the kernel's name in the cubin.
        make_module: gives the GPU IR; that of a kernel from the disk is made by lowering it again.
        llvm_ir: text.
        target: the architecture.
        max_registers: most registers of a thread; None leaves it to ptxas.
        shared_bytes: dynamic shared memory of a block.
        num_warps: warps of a block.
        passes: the runs of the passes in `prepare`, then those of the GPU passes.
        checks: the plan to read reports by; None for a bare kernel.
        is_lasting: whether all launches are made by it (`CheckOptions`).
        places: the ops of the GPU IR, by id.
        entry: the place of the kernel's `def`.
        maps: the tensor maps of its launches.
        again: lowers a kernel that is from the disk; None for others.
    """

    symbol: str
    make_module: Callable[[], Module]
    llvm_ir: str
    target: Target
    max_registers: int | None
    shared_bytes: int
    num_warps: int
    passes: tuple[PassRun, ...]
    checks: CheckPlan | None = None
    is_lasting: bool = False
    places: Mapping[int, OpPlace] = field(default_factory=dict)
    entry: Frames = ()
    maps: LaunchMaps = field(default_factory=LaunchMaps)
    again: Callable[[], LoweredModule] | None = None

    @property
    def module(self) -> Module:
        """The GPU IR."""
        return self.make_module()

    @property
    def is_checked(self) -> bool:
        """Whether the kernel tests something as it runs."""
        return self.checks is not None and bool(self.checks.sites)

    @property
    def code_key(self) -> Hashable:
        """The cache key of the generated code."""
        return self.llvm_ir, self.target.name, self.max_registers, self.is_lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledModule(LoweredModule):
    """A kernel's stages after the Tile IR.

    Attributes:
        code: PTX, cubin, registers, spills.
    """

    code: NativeCode

    @property
    def is_cached(self) -> bool:
        """Whether the code was taken from the disk."""
        return not self.code.times_ns

    def binary(self) -> Binary:
        """The launched code."""
        code, maps = self.code, self.maps
        return Binary(
            llvm_ir=self.llvm_ir,
            ptx=code.ptx,
            cubin=code.cubin,
            entry=self.symbol,
            target=self.target.name,
            threads=self.num_warps * self.target.threads_per_warp,
            shared_bytes=self.shared_bytes,
            registers=code.registers,
            spill_bytes=code.spill_store_bytes,
            tensor_maps=maps.tensor_maps,
            made_maps=maps.made_maps,
            workspace_bytes=maps.workspace_bytes,
            ptx_ops={row.line: row.op_id for row in code.ptx_lines if row.op_id is not None},
            checks=self.checks,
        )

    def texts(self) -> Mapping[str, str]:
        """The texts that sessions keep."""
        return {"llvm-ir": self.llvm_ir, "ptx": self.code.ptx}

    def text_frames(self) -> Mapping[str, dict[int, tuple[Frame, ...]]]:
        """The source frames of the PTX's lines."""
        places = self.places
        lines = {
            line.line: places[line.op_id].chains[0]
            for line in self.code.ptx_lines
            if line.op_id is not None and line.op_id in places
        }
        return {"ptx": lines}

    def line_table(self, tile_ops: Mapping[int, OpPlace]) -> Mapping[str, object]:
        """Data of the line table from source lines to SASS, whose machine code is not read yet."""
        from tkdebug.compiler.targets.nvptx.cubins.line_tables import unread_code
        from tkdebug.linemap.line_table_data import unread_data

        return unread_data(unread_code(self, self.target, tile_ops))


def compile_module(
    module: Module,
    options: NativeOptions,
    target: Target,
    observers: Observers = _NOBODY,
) -> CompiledModule:
    """Compile Tile IR (after its own passes), which becomes the GPU IR.

    Args:
        module: changed in place.
        options: warps, stages, registers.
        target: the architecture.
        observers: the callbacks; stages are "llvm-ir" and "ptx".

    Raises:
        CompileError: an op is not supported, or code generation refuses the kernel.
    """
    return generate_code(lower_to_llvm(module, options, target, observers), observers.on_stage)


def lower_to_llvm(
    module: Module,
    options: NativeOptions,
    target: Target,
    observers: Observers = _NOBODY,
) -> LoweredModule:
    """The part of a compile that is done in this process: GPU passes, lowering.

    Args:
        module: changed in place.
        options: warps, stages, registers.
        target: the architecture.
        observers: the callbacks; the one stage is "llvm-ir".

    Raises:
        CompileError: an op is not supported.
    """
    return lower_prepared(prepare(module, options, target, observers), observers)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Tile IR before the GPU passes, with the notes of its compile and its checks.

    Attributes:
        module: changed by lowering.
        passes: the runs of the passes that added something.
        checks: the plan to read reports by, as far as it is known; None for a bare kernel.
    """

    module: Module
    options: NativeOptions
    target: Target
    passes: tuple[PassRun, ...]
    checks: CheckPlan | None

    @property
    def reads_marks(self) -> bool:
        """Whether loads look for marks of unwritten memory."""
        # Asynchronous copies pass through no register, where marks are looked for.
        return self.options.checks is not None and self.options.checks.reads_marks

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.options.num_warps * self.target.threads_per_warp

    @property
    def symbol(self) -> str:
        """The kernel's name in the cubin."""
        return re.sub(r"\W", "_", self.module.name)


def prepare(
    module: Module,
    options: NativeOptions,
    target: Target,
    observers: Observers = _NOBODY,
) -> Prepared:
    """Note a compile's options in Tile IR, and add its checks.

    Args:
        module: changed in place.
        options: warps, stages, registers.
        target: the architecture.
        observers: the callbacks.
    """
    function = tt.Func(module.function)
    note_options(module, options, target)
    inserted: tuple[PassRun, ...] = ()
    checks: CheckPlan | None = None
    timeline = None if options.checks is None else options.checks.timeline
    if timeline is not None:
        function.timeline = (timeline.marks, *timeline.programs)
    elif options.checks is not None:
        # Not in the first compile of a bare kernel.
        from tkdebug.compiler.passes.insert_checks import add_checks

        inserted, checks = add_checks(module, options.checks, observers.snapshot, observers.on_run)
    if options.print_elements is not None:
        summarise = (SummarisePrints(options.print_elements),)
        inserted = (*inserted, *_run(module, summarise, observers))
    prepared = Prepared(module, options, target, inserted, checks)
    if prepared.reads_marks:
        function.mappable = ()
    return prepared


def lower_prepared(
    prepared: Prepared,
    observers: Observers = _NOBODY,
) -> LoweredModule:
    """Run the GPU passes and lower, as `lower_to_llvm` does.

    Raises:
        CompileError: an op is not supported.
    """
    # Kernels from the disk do without these modules.
    import_apart(*LOWERING)
    from tkdebug.compiler.targets.nvptx.lowering.driver import lower_module
    from tkdebug.compiler.targets.nvptx.pipeline import gpu_pipeline

    module, options, target = prepared.module, prepared.options, prepared.target
    checks = prepared.checks
    function = tt.Func(module.function)
    reports_asserts = options.checks is not None and "assert" in options.checks.kinds
    pipeline = gpu_pipeline(
        target,
        1 if prepared.reads_marks else options.num_stages,
        debug=options.debug or reports_asserts,
        host_tma_descriptors=options.host_tma_descriptors and not prepared.reads_marks,
    )
    passes = _run(module, with_plugins(pipeline, "gpu"), observers)
    timeline = None if options.checks is None else options.checks.timeline
    if timeline is not None:
        checks = _timeline_plan(module, timeline, options.num_warps)
    shared = function.shared_bytes
    if observers.on_resources is not None:
        observers.on_resources(prepared.threads, shared)
    text = lower_module(module, target, prepared.symbol)
    edited = None if observers.on_stage is None else observers.on_stage("llvm-ir", text)
    if checks is not None:
        checks = replace(checks, tests=function.check_tests)
    return LoweredModule(
        prepared.symbol,
        lambda: module,
        text if edited is None else edited,
        target,
        options.max_registers,
        shared,
        options.num_warps,
        (*prepared.passes, *passes),
        checks,
        options.checks is not None and options.checks.is_lasting,
        op_places(module),
        module.function.location.frames,
        LaunchMaps.of(module),
    )


def _run(module: Module, passes: Sequence[Pass], observers: Observers) -> tuple[PassRun, ...]:
    return run_pipeline(module, passes, snapshot=observers.snapshot, on_run=observers.on_run)


def _timeline_plan(module: Module, timeline: TimelineOptions, num_warps: int) -> CheckPlan:
    from tkdebug.compiler.sites.checks import CheckPlan
    from tkdebug.compiler.sites.clocks import TimelinePlan, described_sites

    plan = TimelinePlan(timeline, num_warps, described_sites(module.function))
    return CheckPlan((), (), module, timeline=plan)


def generate_code(lowered: LoweredModule, on_stage: StageCallback | None = None) -> CompiledModule:
    """Generate code, which workers do; several threads may call this at the same time.

    A kernel from the disk is lowered again if code generation refuses it.

    Args:
        lowered: the lowered kernel; only read.
        on_stage: called with "ptx" and the text; an edited text that it returns replaces it.

    Raises:
        CompileError: code generation refuses the kernel.
    """
    try:
        code = _generated(lowered, on_stage)
    except CompileError:
        if lowered.again is None:
            raise
        # A file on the disk may be wrong although its checksum is right.
        lowered = lowered.again()
        code = _generated(lowered, on_stage)
    stages = {each.name: getattr(lowered, each.name) for each in fields(lowered)}
    return CompiledModule(**stages, code=code)


def _generated(lowered: LoweredModule, on_stage: StageCallback | None) -> NativeCode:
    return generate(
        lowered.llvm_ir,
        lowered.symbol,
        lowered.target,
        lowered.max_registers,
        locations={op_id: place.chains[0] for op_id, place in lowered.places.items()},
        entry=lowered.entry,
        on_ptx=None if on_stage is None else functools.partial(on_stage, "ptx"),
        shared_bytes=lowered.shared_bytes,
        is_checked=lowered.is_checked,
        is_lasting=lowered.is_lasting,
    )
