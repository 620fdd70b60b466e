"""LLVM IR to PTX with llvmlite, in the worker process, and the libdevice that is linked to it.

Responsible for the options and passes LLVM runs with. Invariants: every module gets the triple and
data layout of its target machine, whatever its text says; instructions that have no location come
out under `.loc … 0 …`, never under the line of their neighbour.

NVIDIA's libdevice (the `__nv_*` math functions as LLVM bitcode) is found on this machine. Only the
functions that a module calls are linked, each from a bitcode of its own that holds what it needs
and no more: parsing and linking the whole of it would cost 50 to 300 ms a kernel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.compiler.targets.nvptx.codegen.wire import StageError
from tkdebug.linemap.nvidia.tools import nvidia_folders, package_folders

if TYPE_CHECKING:
    from llvmlite import binding as llvm

FILE_NAME = "libdevice.10.bc"
TRIPLE = "nvptx64-nvidia-cuda"
_OPTIONS = (
    # It merges instructions of differing lines into line 0 (DESIGN 6); same registers without it.
    "-disable-machine-sink",
    # Without it an instruction that has no location stays under the .loc of the one before.
    "-use-unknown-locations=Enable",
    # An instruction that serves two ops after CSE or hoisting is of one of them, not of neither.
    "-pick-merged-source-locations",
    # Pointers to shared, constant and local memory are 32 bits wide: half the registers.
    "-nvptx-short-ptr",
    # Quadratic in the accesses of a block: three quarters of the time of a big unrolled kernel,
    # for nothing, because the lowering writes vector accesses itself.
    "-disable-nvptx-load-store-vectorizer",
    # It cuts vector loads whose elements are used one by one into scalar loads.
    "-disable-vector-combine",
    # It would carry an address for each access of a loop again, two registers each: see
    # `CarryBasePointers`.
    "-disable-lsr",
)


def find_libdevice() -> Path | None:
    """Path of libdevice's bitcode, or None if there is none.

    Looked for in NVIDIA's packages, CUDA_HOME, CUDA_PATH, Triton's wheel and /usr/local/cuda.
    """
    return next((path for path in _places() if path.is_file()), None)


def _places() -> Iterator[Path]:
    for folder in nvidia_folders():
        yield folder / "nvvm" / "libdevice" / FILE_NAME
        yield folder / "cuda_nvcc" / "nvvm" / "libdevice" / FILE_NAME
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "nvvm" / "libdevice" / FILE_NAME
    for triton in package_folders("triton"):
        yield triton / "backends" / "nvidia" / "lib" / FILE_NAME
    yield Path("/usr/local/cuda/nvvm/libdevice") / FILE_NAME


class Libdevice:
    """Links libdevice functions into modules; keeps each function's pruned bitcode.

    Args:
        path: libdevice's bitcode; None if there is none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._whole: bytes | None = None
        self._pruned: dict[str, bytes] = {}

    def link_into(self, module: llvm.ModuleRef, context: llvm.ContextRef) -> None:
        """Give `module`, a module of `context`, the bodies of the `__nv_*` it declares.

        A name that libdevice does not have stays a declaration.

        Raises:
            StageError: libdevice is needed and not installed.
        """
        from llvmlite import binding as llvm

        names = [f.name for f in module.functions if f.is_declaration and _is_libdevice(f.name)]
        if names and self._path is None:
            raise StageError(
                "libdevice",
                f"{names[0]} needs libdevice, which is not installed; pip install nvidia-nvvm",
            )
        for name in names:
            bitcode = self._bitcode_of(name)
            if bitcode is None:
                continue
            part = llvm.parse_bitcode(bitcode, context)
            part.triple = module.triple
            part.data_layout = module.data_layout
            # Two functions may bring the same inner one: internal names do not clash.
            module.link_in(part)
            module.get_function(name).linkage = llvm.Linkage.internal

    def _bitcode_of(self, name: str) -> bytes | None:
        from llvmlite import binding as llvm

        if name in self._pruned:
            return self._pruned[name]
        if self._whole is None:
            assert self._path is not None
            self._whole = self._path.read_bytes()
        whole = llvm.parse_bitcode(self._whole, llvm.create_context())
        found = False
        for function in whole.functions:
            if not function.is_declaration:
                found |= function.name == name
                wanted = function.name == name
                function.linkage = llvm.Linkage.external if wanted else llvm.Linkage.internal
        if not found:
            return None
        passes = llvm.create_new_module_pass_manager()
        passes.add_global_dead_code_eliminate_pass()
        machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine()
        tuning = llvm.create_pipeline_tuning_options()
        passes.run(whole, llvm.create_pass_builder(machine, tuning))
        self._pruned[name] = whole.as_bitcode()
        return self._pruned[name]


def _is_libdevice(name: str) -> bool:
    return name.startswith("__nv_")


class LlvmStage:
    """LLVM, initialised once; one context per module."""

    def __init__(self) -> None:
        try:
            from llvmlite import binding as llvm  # loads LLVM: 45 ms
        except (ImportError, OSError) as error:
            raise StageError(
                "parse", f"llvmlite is not usable ({error}); pip install llvmlite"
            ) from None
        for option in _OPTIONS:
            llvm.set_option("tkdebug", option)
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        self._target = llvm.Target.from_triple(TRIPLE)
        self._libdevice = Libdevice(find_libdevice())

    def emit_ptx(
        self,
        text: str,
        cpu: str,
        ptx_version: int,
        announce: Callable[[str], None],
        opt_level: int = 3,
    ) -> tuple[str, dict[str, int]]:
        """PTX of the module, and the time each step took.

        Args:
            text: LLVM IR.
            cpu: `sm_90a`.
            ptx_version: 87 for PTX 8.7.
            announce: called with the name of each step before it begins.
            opt_level: 0 to 3.

        Raises:
            StageError: LLVM's parser or verifier refuses the text, or libdevice is missing.
        """
        from llvmlite import binding as llvm

        times: dict[str, int] = {}
        start = time.perf_counter_ns()

        def step(name: str) -> None:
            nonlocal start
            now = time.perf_counter_ns()
            if times:
                times[next(reversed(times))] = now - start
            times[name] = 0
            start = now
            announce(name)

        step("parse")
        features = f"+ptx{ptx_version}"
        machine = self._target.create_target_machine(cpu=cpu, features=features, opt=opt_level)
        context = llvm.create_context()
        module = _parse(text, machine, context)
        step("libdevice")
        self._libdevice.link_into(module, context)
        step("optimise")
        _optimise(module, machine, opt_level)
        step("emit")
        ptx = machine.emit_assembly(module)
        times["emit"] = time.perf_counter_ns() - start
        return ptx, times


def _parse(text: str, machine: llvm.TargetMachine, context: llvm.ContextRef) -> llvm.ModuleRef:
    from llvmlite import binding as llvm

    try:
        module = llvm.parse_assembly(text, context)
        module.triple = TRIPLE
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        message = next((line for line in lines if "error:" in line), lines[0] if lines else "")
        raise StageError("parse", message, str(error)) from None
    return module


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine, opt_level: int) -> None:
    from llvmlite import binding as llvm

    tuning = llvm.create_pipeline_tuning_options(speed_level=opt_level)
    # Vector accesses are written out by the lowering; what these two find beyond them costs
    # registers and packs values that mma and wgmma want apart.
    tuning.loop_vectorization = False
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
