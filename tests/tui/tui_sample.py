"""A small run, written through the hook chain and the recorder as a real one is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tkdebug.errors import Frame
from tkdebug.instrument.recorder import Recorder
from tkdebug.records.events import ArgumentInfo, Fault, KernelCompiled, LaunchProgress, LaunchRecord
from tkdebug.records.hook_chain import HOOKS

SOURCE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def load_row(pointer, offsets):
    # reads past the end: there is no mask
    return tl.load(pointer + offsets)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    x = load_row(x_ptr, offsets)
    y = tl.load(y_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + y, mask=offsets < n)
"""

TILE_IR = """\
tt.func public @add_kernel(%x_ptr: !tt.ptr<f32>, %y_ptr: !tt.ptr<f32>, %n: i32) {
  %pid = tt.get_program_id {axis = 0 : i32} : i32
  %0 = arith.constant 1024 : i32
  %1 = arith.muli %pid, %0 : i32
  %2 = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
  %3 = tt.splat %1 : i32 -> tensor<1024xi32>
  %offsets = arith.addi %3, %2 : tensor<1024xi32>
  %4 = tt.splat %x_ptr : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
  %5 = tt.addptr %4, %offsets : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
  %x = tt.load %5 : tensor<1024x!tt.ptr<f32>>
  %y = tt.load %6, %mask : tensor<1024x!tt.ptr<f32>>
  %8 = arith.addf %x, %y : tensor<1024xf32>
  tt.store %9, %8, %mask : tensor<1024x!tt.ptr<f32>>
  tt.return
}
"""


def write_sources(folder: Path) -> Path:
    """The kernel's file."""
    file = folder / "kernels.py"
    file.write_text(SOURCE)
    return file


def frames(file: Path, *lines: int) -> tuple[Frame, ...]:
    functions = {9: "load_row"}
    return tuple(Frame(str(file), line, functions.get(line, "add_kernel")) for line in lines)


def compiled(file: Path, name: str = "add_kernel", hash: str = "h-add") -> KernelCompiled:
    lines = {
        2: frames(file, 14),
        **{line: frames(file, 15) for line in range(3, 8)},
        **{line: frames(file, 16, 9) for line in range(8, 11)},
        11: frames(file, 17),
        12: frames(file, 18),
        13: frames(file, 18),
    }
    return KernelCompiled(
        hash=hash,
        name=name,
        file=str(file),
        line=12,
        source="\n".join(SOURCE.split("\n")[11:]),
        signature="x_ptr: pointer<fp32>, y_ptr: pointer<fp32>, n: i32, BLOCK=1024",
        options={"num_warps": 4},
        artifacts={"tile-ir": TILE_IR, "gpu-ir": "// gpu\n" + TILE_IR},
        op_lines={"tile-ir": lines, "gpu-ir": {n + 1: f for n, f in lines.items()}},
        compile_ns=12_300_000,
    )


def record(id: int, kernel: str = "add_kernel", hash: str = "h-add") -> LaunchRecord:
    def arguments() -> tuple[ArgumentInfo, ...]:
        return (
            ArgumentInfo("x_ptr", "pointer<fp32>", "", (98432,), (1,)),
            ArgumentInfo("y_ptr", "pointer<fp32>", "", (64, 32), (1, 64)),
            ArgumentInfo("n", "i32", "98432"),
        )

    return LaunchRecord(
        id=id,
        kernel=kernel,
        grid=(97, 1, 1),
        mode="interpret",
        options={"num_warps": 4, "num_stages": 3},
        make_arguments=arguments,
        kernel_hash=hash,
        start_ns=time.time_ns(),
    )


def launch(
    id: int, duration_ns: int | None = 1_500_000, kernel: str = "add_kernel", hash: str = "h-add"
) -> None:
    """One launch; a `duration_ns` of None leaves it running."""
    event = record(id, kernel, hash)
    hooks = HOOKS.enter(None, event)
    if duration_ns is not None:
        event.duration_ns = duration_ns
        HOOKS.exit(hooks, None, event)


def fault(file: Path, launch_id: int = 1) -> Fault:
    return Fault(
        kind="oob-load",
        kernel="add_kernel",
        frames=frames(file, 16, 9),
        message="load reads past the end of x_ptr: offset 98432 of 98432 elements",
        launch_id=launch_id,
        column=12,
        op_id=9,
        program_id=(96, 0, 0),
        lane=(128,),
        tensor="x_ptr",
        index=98432,
        legal=(0, 98432),
        count=896,
        hint="add mask=offsets < n to the load",
    )


def write_run(
    path: Path,
    *,
    launches: int = 5,
    exit_status: int | None = 3,
    faults: bool = True,
    kernel: str = "add_kernel",
    during: Callable[[Path], None] | None = None,
) -> Path:
    """A session at `path` of a run that has ended."""
    file = write_sources(path.parent)
    recorder = Recorder(path, script="train.py", argv=("--fast",), output=False).start()
    try:
        HOOKS.compiled(compiled(file, kernel))
        for number in range(1, launches + 1):
            launch(number, number * 1_000_000, kernel)
        if faults:
            HOOKS.fault(fault(file))
        if during is not None:
            during(file)
    finally:
        recorder.stop(exit_status)
    return path


def progress(id: int, done: int, programs: int) -> None:
    HOOKS.progress(LaunchProgress(id, "add_kernel", done, programs, 10**9))
