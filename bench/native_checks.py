"""What native checks cost: kernels of `bench/native.py` bare and checked, on one GPU.

Both builds of a kernel run in turn in one process, on the same tensors; each time is the median of
rounds of launches between two CUDA events. Needs a GPU, and a torch for it.

    python bench/native_checks.py [--only matmul] [--rounds 9]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

sys.argv[1:1] = ["--with", "tkdebug"]

import native_worker  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from tkdebug.compiler.probes.bounds import byte_bounds  # noqa: E402
from tkdebug.compiler.probes.sites import ProbeOptions  # noqa: E402
from tkdebug.compiler.probes.table import reports, table_bytes  # noqa: E402
from tkdebug.knobs import KNOBS  # noqa: E402
from tkdebug.runtime.cuda.platform import CudaPlatform  # noqa: E402

ROUND_MS = 20


@triton.jit
def embedding_kernel(tokens, table, out, n_rows, width, BLOCK: tl.constexpr):
    row = tl.load(tokens + tl.program_id(0))
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(table + row * width + columns, mask=inside)
    tl.store(out + tl.program_id(0) * width + columns, values, mask=inside)


@triton.jit
def gather_kernel(index, table, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(table + tl.load(index + at, mask=inside), mask=inside), mask=inside)


def embedding(rows: int, width: int) -> Callable[[], Any]:
    table = torch.randn(rows, width, device="cuda", dtype=torch.float16)
    tokens = torch.randint(0, rows, (65536,), device="cuda")
    out = torch.empty(65536, width, device="cuda", dtype=torch.float16)
    block = triton.next_power_of_2(width)
    return lambda: embedding_kernel[(65536,)](tokens, table, out, rows, width, BLOCK=block)


def gather(n: int) -> Callable[[], Any]:
    table = torch.randn(n, device="cuda")
    index = torch.randint(0, n, (n,), device="cuda")
    out = torch.empty(n, device="cuda")
    return lambda: gather_kernel[(triton.cdiv(n, 1024),)](index, table, out, n, BLOCK=1024)


@dataclass(frozen=True)
class Row:
    """One line of the table; `limit` is the most that checks may cost."""

    name: str
    make: Callable[[], Callable[[], Any]]
    limit: float


ROWS = (
    Row("vector add 2^20", lambda: native_worker.vector_add(1 << 20).ours, 1.05),
    Row("vector add 2^24", lambda: native_worker.vector_add(1 << 24).ours, 1.05),
    Row("vector add 2^28", lambda: native_worker.vector_add(1 << 28).ours, 1.05),
    Row("softmax 1823x781", lambda: native_worker.softmax(1823, 781).ours, 1.1),
    Row("softmax 16384x4096", lambda: native_worker.softmax(16384, 4096).ours, 1.1),
    Row("layer norm 8192x8192", lambda: native_worker.layer_norm(8192, 8192).ours, 1.15),
    Row("matmul 4096 fp16", lambda: native_worker.matmul(4096, "float16").ours, 1.2),
    Row("matmul 8192 fp16", lambda: native_worker.matmul(8192, "float16").ours, 1.2),
    Row("attention 64", lambda: native_worker.attention(64, False).ours, 1.3),
    Row("attention 64 causal", lambda: native_worker.attention(64, True).ours, 1.3),
    Row("attention 128", lambda: native_worker.attention(128, False).ours, 1.3),
    Row("embedding 50257x768", lambda: embedding(50257, 768), 1.5),
    Row("gather 2^24", lambda: gather(1 << 24), 1.5),
)
LAST: list[Any] = []


def spy() -> None:
    """Keep the last launch: its kernel, and what it was launched with."""
    load = CudaPlatform.load

    def loading(self: Any, kernel: Any) -> Any:
        loaded = load(self, kernel)
        submit = loaded.submit

        def submitting(*passed: Any) -> Any:
            LAST[:] = [kernel, submit, passed]
            return submit(*passed)

        return replace(loaded, submit=submitting)

    CudaPlatform.load = loading  # type: ignore[method-assign]


def checked_build(kernel: Any, passed: tuple[Any, ...]) -> tuple[Any, Any, dict[str, float]]:
    """A function that launches the checked build of `kernel`, its table, and compile times."""
    from tkdebug.compiler.targets.nvptx.compile import generate_code, lower_to_llvm
    from tkdebug.runtime.compile.compilation import compile_tile_ir
    from tkdebug.runtime.compile.native_compilation import native_options, target_for
    from tkdebug.runtime.cuda import device as devices
    from tkdebug.runtime.cuda.launcher import LaunchShape, make_submit
    from tkdebug.runtime.cuda.module import load_kernel
    from tkdebug.runtime.cuda.packing import Slot, kernel_slots

    source, seconds = kernel.src, dict[str, float]()
    for name, probes in (("bare", None), ("checked", ProbeOptions())):
        started = time.perf_counter()
        module = compile_tile_ir(source).module
        options = replace(native_options(source), probes=probes)
        with KNOBS.scope(always_compile=True):
            lowered = lower_to_llvm(module, options, target_for(source.options))
            binary = generate_code(lowered).binary()
        seconds[name] = time.perf_counter() - started
    plan = binary.probes
    assert plan is not None
    loaded = load_kernel(
        devices.device(0), binary.cubin, binary.entry, binary.threads, binary.shared_bytes
    )
    names = [f"v{parameter.num}" for parameter in source.fn.params if not parameter.is_constexpr]
    slots = kernel_slots(source.fn.arg_names, source.specs, binary)
    table = torch.zeros(table_bytes(len(plan.sites)), dtype=torch.uint8, device="cuda")
    hidden = [table.data_ptr()]
    found = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.is_cuda]
    for bound in plan.bounds:
        slot = next(slot for slot in slots if slot.name == bound)
        address = passed[4 + names.index(slot.expression)]
        hidden += byte_bounds(max((t for t in found if t.data_ptr() == address), key=torch.numel))
    extra = [Slot(f"probe {i}", "Q", f"h{i}") for i in range(len(hidden))]
    shape = LaunchShape(
        loaded.function, binary.threads, binary.shared_bytes, workspace_bytes=binary.workspace_bytes
    )

    def recover(status: int, is_last: bool) -> None:
        raise RuntimeError(f"launch: status {status}")

    submit = make_submit(
        kernel.name,
        [*slots, *extra],
        [*names, *(slot.expression for slot in extra)],
        shape,
        recover,
    )
    seconds["registers"] = loaded.registers
    return lambda: submit(*passed, *hidden), table, seconds


def median_us(run: Callable[[], Any], rounds: int) -> float:
    run()
    torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    count = max(3, min(200, int(ROUND_MS / 1e3 / (time.perf_counter() - started))))
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / count)
    return statistics.median(times)


def measure(row: Row, rounds: int) -> str:
    """The row as it is printed."""
    run = row.make()
    run()
    kernel, bare, passed = LAST
    checked, table, seconds = checked_build(kernel, passed)
    pairs = [
        (median_us(lambda: bare(*passed), rounds), median_us(checked, rounds)) for _ in range(3)
    ]
    found = [(report.site, report.count) for report in reports(bytes(table.cpu().numpy()))]
    a, b = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
    return (
        f"{row.name:22} bare {a:9.1f} us, checked {b:9.1f} us: {b / a:5.3f}x (at most {row.limit}x)"
        f"; {kernel.binary.registers} -> {int(seconds['registers'])} registers"
        f"; compile {seconds['checked'] / seconds['bare']:.2f}x"
        + (f"; faults {found}" if found else "")
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--with", dest="compiler")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    spy()
    for row in ROWS:
        if arguments.only in row.name:
            try:
                print(measure(row, arguments.rounds), flush=True)
            except Exception as error:
                print(f"{row.name:22} {type(error).__name__}: {error}", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
