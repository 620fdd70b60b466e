"""Below tkdebug's IR: which of LLVM, ptxas and contraction makes native code differ.

The kernel's last GPU IR, interpreted, is what native code is to give. Where it gives something
else, it is compiled again with one of the optimisations left out, and then with none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from tkdebug.compiler.targets.registered_backends import target_of
from tkdebug.errors import TkError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.compile.debugged_stages import source_for_gpu, usual_target
from tkdebug.runtime.device.driver import driver
from tkdebug.variations.outcomes import Difference, Outcome, Tolerance, difference

if TYPE_CHECKING:
    from tkdebug.variations.launches import KeptLaunch

# Two pipelines that have little in common: with bulk copies and warpgroup dots, and without.
_WITHOUT_GPU = ("sm_90a", "sm_80")


@dataclass(frozen=True, slots=True)
class Level:
    """A way to make machine code of GPU IR.

    Attributes:
        name: its name in reports.
        llvm: LLVM's optimisation level.
        ptxas: the optimisation level of ptxas.
        contracts: whether products and sums become FMA.
    """

    name: str
    llvm: int = 3
    ptxas: int = 3
    contracts: bool = True


USUAL = Level("as usual")
AGREES = "native code gives what its GPU IR does"
# Each leaves out one thing; the last one all.
LEVELS = (
    Level("contraction (FMA)", contracts=False),
    Level("ptxas -O3", ptxas=0),
    Level("LLVM -O3", llvm=0),
    Level("several of contraction, LLVM -O3 and ptxas -O3 together", 0, 0, contracts=False),
)

# Runs a launch natively at a level.
Runner = Callable[[Level], Outcome]


def targets(asked: str | None) -> tuple[str, ...]:
    """Return the architectures whose passes are looked at.

    These are the one that is asked for, else the one of this machine's GPU, else one of each
    pipeline.
    """
    if asked is not None:
        return (asked,)
    if usual_target() is not None:
        return _WITHOUT_GPU
    return (target_of(driver.active.get_current_target().arch).name,)


def below_ir(expected: Outcome, run: Runner, tolerance: Tolerance) -> str:
    """Say what the levels below GPU IR do to a result, in one line.

    Args:
        expected: the outcome of the last GPU IR, interpreted.
        run: runs the launch natively.
        tolerance: the tolerance for floats.
    """
    usual = _difference(run, USUAL, expected, tolerance)
    if usual is None:
        return AGREES
    if usual.what == "failure":
        return f"below the GPU IR: {usual.text}"
    if KNOBS.override_dir is not None:
        # It replaces stages of one specialisation; the one without contraction is another.
        where = "native code differs below the GPU IR, where TKDEBUG_OVERRIDE replaces stages"
        return f"{where}: {usual.text}"
    for level in LEVELS:
        if _difference(run, level, expected, tolerance) is None:
            return (
                f"native code differs below the GPU IR, and does not without {level.name}: "
                f"{usual.text}"
            )
    return (
        "native code differs below the GPU IR at every optimisation level, so in the lowering to "
        f"LLVM IR, in the code that is made of that, or in an instruction of the GPU: {usual.text}"
    )


def _difference(
    run: Runner, level: Level, expected: Outcome, tolerance: Tolerance
) -> Difference | None:
    try:
        return difference(run(level), expected, tolerance)
    except TkError as error:
        return Difference("error", f"it does not compile ({str(error).splitlines()[0]})")


def native_runner(launch: KeptLaunch, target: str) -> Runner | None:
    """Return the function that runs a launch on this machine's GPU.

    None if there is no GPU of that architecture, or a tensor is not on it.

    Args:
        launch: the launch, with inputs on that GPU.
        target: the architecture.
    """
    if usual_target() is not None or targets(None) != (target,):
        return None
    if any(not tensor.is_cuda for tensor in launch.tensors(launch.values).values()):
        return None
    src = source_for_gpu(launch.src, target, launch.values)

    def run(level: Level) -> Outcome:
        from tkdebug.runtime.compile.native_compilation import compile_native_kernel

        fuses = src.options.enable_fp_fusion and level.contracts
        chosen = replace(src, options=replace(src.options, enable_fp_fusion=fuses))
        values: tuple[Any, ...] = launch.fresh()
        with KNOBS.scope(llvm_opt_level=level.llvm, ptxas_opt_level=level.ptxas):
            kernel = compile_native_kernel(chosen, torch.cuda.current_device())
            try:
                kernel.launch(launch.grid, values)
                torch.cuda.synchronize()
            except RuntimeError as error:  # a crash, after which the GPU answers nothing more
                return Outcome({}, launch.grid, failure=str(error).splitlines()[0])
        return Outcome(launch.tensors(values), launch.grid)

    return run
