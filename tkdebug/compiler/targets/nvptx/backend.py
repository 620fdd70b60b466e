"""NVIDIA's backend: this package as a `targets.backend.Backend`.

Code generation is imported when a kernel is compiled, since it takes long to load.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tkdebug.compiler.targets.backend import (
    ImageCallback,
    LoweredKernel,
    NativeOptions,
    NativeStage,
    Observers,
    StageCallback,
)
from tkdebug.compiler.targets.machine_parts import (
    MachinePart,
    MachineParts,
    first_sentence,
    package,
)
from tkdebug.compiler.targets.nvptx import architectures
from tkdebug.compiler.targets.target import CLUSTER, Target

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.ir.core import Operation
    from tkdebug.compiler.passes.pass_run import Pass
    from tkdebug.compiler.targets.nvptx.compile import CompiledModule, LoweredModule
    from tkdebug.linemap.line_table import LineTable
    from tkdebug.linemap.parts import Occupancy


def _nvjitlink() -> MachinePart:
    name, later = "nvJitLink", "for native mode: pip install nvidia-nvjitlink"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return MachinePart(name, False, "cuda-bindings is not installed", later, needed=False)
    try:
        from cuda.bindings import nvjitlink

        major, minor = nvjitlink.version()
    except Exception as error:
        reason = first_sentence(error)
        return MachinePart(name, False, f"cannot be loaded ({reason})", later, needed=False)
    return MachinePart(name, True, f"{major}.{minor}")


def _ptxas() -> MachinePart:
    from tkdebug.compiler.targets.nvptx.codegen.ptxas import find_ptxas

    found = find_ptxas()
    if found is not None:
        return MachinePart("ptxas", True, str(found))
    return MachinePart(
        "ptxas",
        False,
        "none of CUDA 12.8 or later; nvJitLink does its work and takes more registers",
        "for faster kernels: pip install nvidia-cuda-nvcc",
        needed=False,
    )


def _nvdisasm() -> MachinePart:
    from tkdebug.linemap.nvidia.tools import find_nvdisasm

    found = find_nvdisasm()
    if found is not None:
        return MachinePart("nvdisasm", True, str(found))
    return MachinePart(
        "nvdisasm",
        False,
        "not found",
        "for SASS text: pip install nvidia-cuda-nvdisasm",
        needed=False,
    )


def _targets() -> MachinePart:
    from tkdebug.compiler.targets.nvptx.architectures import TARGETS

    tried = ", ".join(target.name for target in TARGETS.values() if target.is_tried)
    text = f"{', '.join(TARGETS)}; kernels were run on {tried} (H100, H200), the others' never"
    return MachinePart("targets", True, text)


PARTS: MachineParts = {
    "targets": _targets,
    "nvJitLink": _nvjitlink,
    "ptxas": _ptxas,
    "nvdisasm": _nvdisasm,
    "llvmlite": lambda: package("llvmlite", "native code generation"),
}


_ELF = b"\x7fELF"
_NEEDED = {"llvmlite": "llvmlite", "cuda.bindings.nvjitlink": "cuda-bindings nvidia-nvjitlink"}


class NvptxBackend:
    """NVIDIA's backend: LLVM IR, PTX and cubins."""

    name = architectures.BACKEND
    upstream_name = "cuda"
    targets: Mapping[str, Target] = architectures.TARGETS
    stages = (
        NativeStage("llvm-ir", "llvm-ir.ll"),
        NativeStage("ptx", "kernel.ptx"),
        NativeStage("cubin", "kernel.cubin", is_image=True),
    )

    machine_parts: MachineParts = PARTS
    image_name = "cubin"

    def is_image(self, name: str, head: bytes) -> bool:
        """Whether a file is named `*.cubin`, or is an ELF file."""
        return name.endswith(".cubin") or head.startswith(_ELF)

    def image_tables(self, image: bytes) -> tuple[LineTable, ...]:
        """The line tables of a cubin."""
        from tkdebug.compiler.targets.nvptx.cubins.line_tables import cubin_tables

        return cubin_tables(image)

    def image_line_table(self, image: bytes, kernel: str) -> Mapping[str, object]:
        """Data of the line table of one function of a cubin, whose code is not read yet."""
        from tkdebug.compiler.targets.nvptx.cubins.line_tables import unread_cubin
        from tkdebug.linemap.line_table_data import unread_data

        return unread_data(unread_cubin(image, kernel))

    def find(self, asked: object) -> Target | None:
        """The target of a compute capability, `(9, 0)` or 90, or a name, `sm_90a` or `sm90`."""
        return architectures.find(asked)

    def unsupported(self, asked: object) -> str | None:
        """The error message for a GPU that it does not compile for; None for other names."""
        return architectures.unsupported(asked)

    def obstacle(self) -> str | None:
        """The reason why this machine cannot generate code, or None if it can."""
        for module, packages in _NEEDED.items():
            try:
                found = find_spec(module) is not None
            except ModuleNotFoundError:
                found = False
            if not found:
                return f"code generation needs {module}; pip install {packages}"
        return None

    def fixed_options(self, target: Target) -> Mapping[str, object]:
        """Options that code generation ignores, with the only value that each may have."""
        return {
            "ir_override": None,
            "extern_libs": (),
            "warp_size": target.threads_per_warp,
            "ptx_version": None,
            "ptx_options": None,
            "instrumentation_mode": "",
        }

    def linked_libraries(self) -> frozenset[str]:
        """Libraries that are linked from the places where they are installed."""
        return frozenset(("libdevice",))

    def cluster_problem(self, target: Target, num_ctas: int) -> str | None:
        """Return why programs cannot run in clusters of `num_ctas` blocks; None if they can."""
        if num_ctas <= 1 or target.has(CLUSTER):
            return None
        return (
            f"num_ctas > 1 requires NVIDIA SM90+ (Hopper), got num_ctas={num_ctas} for {target}; "
            "leave it out"
        )

    def pipeline(self, target: Target, options: NativeOptions) -> Sequence[Pass]:
        """The passes between Tile IR and lowering."""
        from tkdebug.compiler.targets.nvptx.pipeline import gpu_pipeline

        return gpu_pipeline(
            target,
            options.num_stages,
            debug=options.debug,
            host_tma_descriptors=options.host_tma_descriptors,
        )

    def scratch_bytes(self, op: Operation) -> int:
        """Bytes of shared memory that the lowering of `op` needs for itself."""
        from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes

        return scratch_bytes(op)

    def lower(
        self, module: Module, options: NativeOptions, target: Target, observers: Observers
    ) -> LoweredModule:
        """Run the GPU passes and lower to LLVM IR, or take the results of both from the disk."""
        from tkdebug.compiler.targets.nvptx.lowered_cache import lower

        return lower(module, options, target, observers)

    def generate(
        self,
        lowered: LoweredKernel,
        on_stage: StageCallback | None = None,
        on_image: ImageCallback | None = None,
    ) -> CompiledModule:
        """Generate PTX and cubin in a worker process, or take them from the disk."""
        from tkdebug.compiler.targets.nvptx.compile import LoweredModule, generate_code

        assert isinstance(lowered, LoweredModule)
        compiled = generate_code(lowered, on_stage)
        if on_image is None:
            return compiled
        cubin = on_image(compiled.code.cubin)
        return replace(compiled, code=replace(compiled.code, cubin=cubin))

    def occupancy(
        self, target: Target, threads: int, registers: int, shared_bytes: int
    ) -> Occupancy:
        """The number of blocks that fit on a multiprocessor, and their limits."""
        from tkdebug.compiler.targets.nvptx.architectures import occupancy

        return occupancy(target, threads, registers, shared_bytes)

    @property
    def parallel_compiles(self) -> int:
        """The most workers that run at once."""
        from tkdebug.compiler.targets.nvptx.codegen import worker_process

        return worker_process.POOL.size

    @contextmanager
    def stopped_by(self, stop: threading.Event) -> Iterator[None]:
        """Context inside which workers that are asked are ended once `stop` is set."""
        from tkdebug.compiler.targets.nvptx.codegen.worker_process import STOP

        token = STOP.set(stop)
        try:
            yield
        finally:
            STOP.reset(token)

    def prestart(self) -> None:
        """Start a worker; load the lowering's modules if no lowered kernels are on the disk."""
        from tkdebug.compiler.targets.nvptx.codegen.worker_process import POOL

        # It loads its libraries while we load our modules.
        POOL.start_one()
        from tkdebug.compiler.targets.nvptx.compile import LOWERING
        from tkdebug.compiler.targets.nvptx.lowered_cache import is_empty

        if is_empty():
            for module in LOWERING:
                import_module(module)
            # For modules that the passes load themselves.
            self.pipeline(self.targets["sm_90a"], NativeOptions())


NVPTX = NvptxBackend()
