"""Host time of a launch by Inductor, without a GPU: the driver does nothing.

A kernel of four tensors and two ints: what Inductor's generated code calls, `CachingAutotuner.run`,
and what that calls in turn. Least times of rounds that take turns. Needs no GPU.

    python bench/simulated_inductor.py [--rounds 150] [--launches 1000]
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tkdebug
import tkdebug.language as tl
from tkdebug import compat
from tkdebug.compat.triton_api.compiler import ASTSource, compile
from tkdebug.runtime.cuda.launcher import LaunchShape, make_submit
from tkdebug.runtime.cuda.packing import kernel_slots
from tkdebug.runtime.device.platform import GPUTarget

DRIVER = "define i32 @launch(ptr %config, ptr %function, ptr %values, ptr %extra) { ret i32 0 }"
TENSORS = ("in0", "in1", "in2", "out")
SIGNATURE = {name: "*fp32" for name in TENSORS} | {
    "xnumel": "i32",
    "k": "i32",
    "XBLOCK": "constexpr",
}
BLOCK, N, K = 1024, 4096, 7


@tkdebug.jit
def fused(in0, in1, in2, out, xnumel, k, XBLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Kernel as Inductor writes them."""
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    mask = i < xnumel
    total = tl.load(in0 + i, mask) + tl.load(in1 + i, mask) * tl.load(in2 + i, mask) + k
    tl.store(out + i, total, mask)


def silent_driver() -> tuple[Callable[..., int], object]:
    """A function of C that stands for cuLaunchKernelEx, and what keeps it there."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(DRIVER), machine)
    engine.finalize_object()
    address = engine.get_function_address("launch")
    return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(address), engine


def _never(status: int, is_last: bool) -> None:
    raise AssertionError(status)


def loaded_kernel(driver: Callable[..., int]) -> Any:
    """The kernel, as if it was loaded on a GPU."""
    with tkdebug.mode("native"):
        source = ASTSource(fused, SIGNATURE, {"XBLOCK": BLOCK})
        kernel: Any = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    slots = kernel_slots(kernel.src.fn.arg_names, kernel.src.specs, kernel.binary)
    names = [f"v{p.num}" for p in kernel.src.fn.params if not p.is_constexpr]
    shape = LaunchShape(1, kernel.binary.threads, kernel.binary.shared_bytes)
    kernel.function = 1
    kernel.submit = make_submit(kernel.name, slots, names, shape, _never, driver)
    return kernel


def autotuner_of(kernel: Any) -> Any:
    """Inductor's, with a launcher of the kernel."""
    import triton
    from torch._inductor.runtime import triton_heuristics as heuristics
    from torch._inductor.runtime.hints import DeviceProperties

    config = triton.Config({"XBLOCK": BLOCK}, num_warps=4, num_stages=1)
    device = DeviceProperties(type="cuda", index=0, multi_processor_count=132, cc=90)
    inductor = {"grid_type": "Grid1D", "kernel_name": "fused", "mutated_arg_names": []}
    autotuner = heuristics.CachingAutotuner(
        fused,
        triton_meta={"signature": SIGNATURE, "device": device, "constants": {}, "configs": [{}]},
        configs=[config],
        save_cache_hook=None,
        mutated_arg_names=[],
        optimize_mem=True,
        heuristic_type=heuristics.HeuristicType.POINTWISE,
        inductor_meta=inductor,
    )
    meta = {"signature": SIGNATURE, "constants": {"XBLOCK": BLOCK}, "device": 0}
    result = heuristics.TritonCompileResult(kernel, config, meta, inductor)
    autotuner.launchers = [result.make_launcher()]
    return autotuner


def ways() -> dict[str, Callable[[], object]]:
    """Return the measured functions, by name."""
    import torch

    driver, engine = silent_driver()
    kernel = loaded_kernel(driver)
    autotuner = autotuner_of(kernel)
    (launcher,) = autotuner.launchers
    autotuner.tkdebug_engine = engine
    tensors = [torch.zeros(N) for _ in TENSORS]
    addresses = [tensor.data_ptr() for tensor in tensors]
    a, b, c, d = tensors
    p, q, r, s = addresses
    found: dict[str, Callable[[], object]] = {
        "the driver's function": lambda: driver(p, q, r, None),
        "submit": lambda: kernel.submit(4, 1, 1, 0, p, q, r, s, N, K),
        "Inductor's launcher": lambda: launcher(a, b, c, d, N, K, stream=0),
        "CachingAutotuner.run": lambda: autotuner.run(a, b, c, d, N, K, stream=0),
    }
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--launches", type=int, default=1000)
    arguments = parser.parse_args()
    with compat.install("native"):
        import torch

        found = ways()
        times: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(arguments.rounds):
            for name, launch in found.items():
                start = time.perf_counter()
                for _ in range(arguments.launches):
                    launch()
                times[name].append((time.perf_counter() - start) / arguments.launches)
    print(f"torch {torch.__version__}")
    for name, taken in times.items():
        print(f"{name:>22}: {min(taken) * 1e6:5.2f} us")


if __name__ == "__main__":
    main()
