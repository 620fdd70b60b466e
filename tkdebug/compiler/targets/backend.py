"""The interface of a code generator.

The passes, the interpreter, the runtime and the commands know targets by this module alone;
NVIDIA's code is in `nvptx/`. A backend's kernels are launched by the platform of its name
(`runtime/device/platform.py`). `registered_backends` lists the backends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.targets.target import Target
from tkdebug.errors import Frame

if TYPE_CHECKING:
    from tkdebug.compiler.artifacts import SnapshotRecorder
    from tkdebug.compiler.ir.core import Operation
    from tkdebug.compiler.passes.pass_run import Pass, PassRun, RunCallback
    from tkdebug.compiler.passes.pipeline import SnapshotCallback
    from tkdebug.compiler.sites.checks import CheckOptions, CheckPlan
    from tkdebug.compiler.targets.machine_parts import MachineParts
    from tkdebug.linemap.line_table import LineTable
    from tkdebug.linemap.parts import Occupancy, OpPlace


# (stage, text) -> an edited text to go on with, or None.
StageCallback = Callable[[str, str], str | None]
# An image -> the image to load instead.
ImageCallback = Callable[[bytes], bytes]
# (threads, bytes of shared memory) of a block; raises when there is less.
ResourceCallback = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """The options of a kernel's compile.

    Attributes:
        num_warps: warps of a block.
        num_stages: depth of software pipelines.
        max_registers: most registers of a thread; None leaves it to the assembler.
        debug: whether device asserts are checked.
        fp_fusion: whether products and sums become FMA.
        flush_subnormals: whether approximations of fp32 flush subnormal numbers to zero.
        host_tma_descriptors: whether launches may make tensor maps of the kernel's descriptors.
        checks: the checks of the kernel as it runs; None for a bare one.
        print_elements: elements of a tile that are printed one by one; None for all.
    """

    num_warps: int = 4
    num_stages: int = 3
    max_registers: int | None = None
    debug: bool = True
    fp_fusion: bool = True
    flush_subnormals: bool = True
    host_tma_descriptors: bool = True
    checks: CheckOptions | None = None
    print_elements: int | None = None


@dataclass(frozen=True, slots=True)
class NativeStage:
    """A stage after the GPU IR.

    Attributes:
        name: its name in sessions, such as `llvm-ir`.
        file: its file name in dumps.
        is_image: whether it is the image that is loaded, which is bytes, not text.
    """

    name: str
    file: str
    is_image: bool = False


@dataclass(frozen=True, slots=True)
class Observers:
    """Callbacks while a kernel is compiled.

    Attributes:
        snapshot: called after each pass that changed something.
        on_run: called after each pass, also one that failed.
        on_stage: called with the text of each stage; an edited text that it returns replaces it.
        on_resources: called with threads and bytes of shared memory of a block before code is
            generated, which for tiles that fit nowhere would take minutes.
        recorder: the recorder whose `after_run` is `on_run`. A backend that finds the kernel on
            the disk adds the records of the compile that stored it.
    """

    snapshot: SnapshotCallback | None = None
    on_run: RunCallback | None = None
    on_stage: StageCallback | None = None
    on_resources: ResourceCallback | None = None
    recorder: SnapshotRecorder | None = None


class LoweredKernel(Protocol):
    """A kernel that is ready for code generation."""

    @property
    def code_key(self) -> Hashable:
        """A key that is equal if the same code is generated."""
        ...

    @property
    def module(self) -> Module:
        """The GPU IR."""
        ...


class Binary(Protocol):
    """A generated kernel, as the launch path sees it."""

    @property
    def target(self) -> str:
        """Name of the architecture."""
        ...

    @property
    def entry(self) -> str:
        """Name of the kernel in the image."""
        ...

    @property
    def image(self) -> bytes:
        """The image that is loaded."""
        ...

    @property
    def threads(self) -> int:
        """Threads of a block."""
        ...

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        ...

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        ...

    @property
    def spill_bytes(self) -> int:
        """Bytes of a thread's registers that are spilled to memory."""
        ...

    @property
    def workspace_bytes(self) -> int:
        """Global memory that the launch gives to each program."""
        ...

    @property
    def checks(self) -> CheckPlan | None:
        """The plan to read a checked kernel's reports by; None for a bare one."""
        ...

    def stages(self) -> Mapping[str, Callable[[], str | bytes]]:
        """Functions that make each stage after the GPU IR, by its name in `kernel.asm`."""
        ...


class GeneratedKernel(Protocol):
    """A kernel with its code."""

    @property
    def module(self) -> Module:
        """The GPU IR."""
        ...

    @property
    def is_cached(self) -> bool:
        """Whether the code was taken from the disk."""
        ...

    @property
    def passes(self) -> Sequence[PassRun]:
        """The runs of the passes between Tile IR and lowering."""
        ...

    def binary(self) -> Binary:
        """The launched code."""
        ...

    def texts(self) -> Mapping[str, str]:
        """The texts that sessions keep, by stage."""
        ...

    def text_frames(self) -> Mapping[str, dict[int, tuple[Frame, ...]]]:
        """The call chains of lines (1-based) of the sessions' texts, where they are known."""
        ...

    def line_table(self, tile_ops: Mapping[int, OpPlace]) -> Mapping[str, object]:
        """The line table as data, or data with the reason why there is none.

        Args:
            tile_ops: the ops of the Tile IR, by id.
        """
        ...


class Backend(Protocol):
    """A code generator for one kind of GPU."""

    @property
    def name(self) -> str:
        """The backend's name, as in `Target.backend`."""
        ...

    @property
    def upstream_name(self) -> str:
        """The name in scripts: the `backend` of a `GPUTarget`."""
        ...

    @property
    def targets(self) -> Mapping[str, Target]:
        """The architectures that it compiles for, by name, the newest last."""
        ...

    @property
    def stages(self) -> tuple[NativeStage, ...]:
        """The stages after the GPU IR, in order."""
        ...

    @property
    def machine_parts(self) -> MachineParts:
        """The parts of this machine that code generation uses, for `tkdebug doctor`."""
        ...

    @property
    def image_name(self) -> str:
        """The kind of image that the backend loads, in a word, such as `cubin`."""
        ...

    def is_image(self, name: str, head: bytes) -> bool:
        """Whether the backend loads a file, judged by its name or its first 64 bytes."""
        ...

    def image_tables(self, image: bytes) -> tuple[LineTable, ...]:
        """The line table of each function of an image, of any compiler.

        Raises:
            TkError: there is no such image, or it is damaged or without lines.
        """
        ...

    def image_line_table(self, image: bytes, kernel: str) -> Mapping[str, object]:
        """Data of the line table of one function of an image, for `line_table_data.from_data`.

        Raises:
            TkError: there is no such image, or it is damaged.
        """
        ...

    def find(self, asked: object) -> Target | None:
        """The target of a name, a number or a capability, or None if it has no such target."""
        ...

    def unsupported(self, asked: object) -> str | None:
        """The error message for a GPU of its kind that the backend does not compile for.

        None if `asked` is no GPU of its kind.
        """
        ...

    def obstacle(self) -> str | None:
        """The reason why this machine cannot generate code, or None if it can."""
        ...

    def fixed_options(self, target: Target) -> Mapping[str, object]:
        """Launch options that code generation ignores, with the only value that each may have."""
        ...

    def linked_libraries(self) -> frozenset[str]:
        """Names of `extern_libs` that are linked without being asked for."""
        ...

    def cluster_problem(self, target: Target, num_ctas: int) -> str | None:
        """Return why programs cannot run in clusters of `num_ctas` blocks; None if they can."""
        ...

    def pipeline(self, target: Target, options: NativeOptions) -> Sequence[Pass]:
        """The passes from Tile IR (after its own passes) to GPU IR that can be lowered."""
        ...

    def scratch_bytes(self, op: Operation) -> int:
        """Bytes of shared memory that the lowering of `op` needs for itself."""
        ...

    def lower(
        self, module: Module, options: NativeOptions, target: Target, observers: Observers
    ) -> LoweredKernel:
        """Run the passes and lower; done in the calling thread.

        Args:
            module: Tile IR, which becomes the GPU IR.
            options: warps, stages, registers.
            target: the architecture.
            observers: the callbacks.

        Raises:
            CompileError: an op is not supported.
        """
        ...

    def generate(
        self,
        lowered: LoweredKernel,
        on_stage: StageCallback | None = None,
        on_image: ImageCallback | None = None,
    ) -> GeneratedKernel:
        """Generate code; several threads may call this side by side.

        Raises:
            CompileError: code generation refuses the kernel.
        """
        ...

    def occupancy(
        self, target: Target, threads: int, registers: int, shared_bytes: int
    ) -> Occupancy:
        """The number of blocks that fit on a multiprocessor, and their limits."""
        ...

    @property
    def parallel_compiles(self) -> int:
        """The number of `generate` calls that are worth making side by side."""
        ...

    def stopped_by(self, stop: threading.Event) -> AbstractContextManager[None]:
        """Context inside which code generation ends early once `stop` is set."""
        ...

    def prestart(self) -> None:
        """Load the modules of the first compile; callers run this in a separate thread."""
        ...


def note_options(module: Module, options: NativeOptions, target: Target) -> None:
    """Note the target and the options of its compile in a module of Tile IR."""
    from tkdebug.compiler.dialects import tt  # commands ask backends without it

    function = tt.Func(module.function)
    function.num_warps = options.num_warps
    function.target = target.name
    if target.threads_per_warp != function.threads_per_warp:
        function.threads_per_warp = target.threads_per_warp
    if not options.fp_fusion:
        function.fp_fusion = False
    if not options.flush_subnormals:
        function.flush_subnormals = False
