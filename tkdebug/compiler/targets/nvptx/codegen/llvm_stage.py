"""LLVM IR to PTX with llvmlite, in the worker process.

Responsible for the options and passes LLVM runs with. Invariants: every module gets the triple and
data layout of its target machine, whatever its text says; instructions that have no location come
out under `.loc … 0 …`, never under the line of their neighbour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tkdebug.compiler.targets.nvptx.codegen.libdevice import Libdevice, find_libdevice
from tkdebug.compiler.targets.nvptx.codegen.wire import StageError

if TYPE_CHECKING:
    from llvmlite import binding as llvm

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
            StageError: LLVM's parser or verifier refuses the text.
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
