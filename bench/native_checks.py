"""Costs of native checks: kernels of `bench/native.py` bare and checked, on one GPU.

Both builds of a kernel run in turn in one process, on the same tensors; each time is the median of
rounds of launches between two CUDA events. Needs a GPU, and a torch for it.

    python bench/native_checks.py [--only matmul] [--rounds 3] [--sanitizer] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.argv[1:1] = ["--with", "tkdebug"]

import native_worker  # noqa: E402
import triton  # noqa: E402
from kernels_native import embedding_kernel, gather_kernel  # noqa: E402
from sections import check_gpu, replace_section  # noqa: E402

from tkdebug.compiler.sites.checks import CheckOptions  # noqa: E402
from tkdebug.compiler.sites.table import HEADER_BYTES, reports, table_bytes  # noqa: E402
from tkdebug.knobs import KNOBS  # noqa: E402
from tkdebug.runtime.checked.passed_arguments import PassedArguments  # noqa: E402
from tkdebug.runtime.cuda.platform import CudaPlatform  # noqa: E402

ROUND_MS = 20
# Of each build, as many as fit the seconds; and how much longer the checked one may take.
LEAST_COMPILES, MOST_COMPILES, COMPILING_S = 5, 60, 4.0
COMPILE_LIMIT = 1.5
# For all rows under compute-sanitizer.
SANITIZER_S = 400
# Of a program: launches, elements of each, and the most that checking the first ones may cost.
LAUNCHES, SIZE, LOOP_LIMIT = 1000, 1 << 24, 1.05


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


@dataclass(frozen=True)
class Checked:
    """A checked build.

    Attributes:
        launch: launches it on a stream, by its handle.
        table: what it reports to.
        registers: of a thread.
        compile_ratio: of its compile time to the bare build's.
    """

    launch: Callable[[int], Any]
    table: Any
    registers: int
    compile_ratio: float


def compile_ratio(bare: Callable[[], object], checked: Callable[[], object]) -> float:
    """Return the checked build's compile time over the bare one's: medians, in turn."""
    seconds: tuple[list[float], list[float]] = ([], [])
    # As `tkdebug run` does once torch is there: collections leave out what it has made.
    gc.freeze()
    try:
        while len(seconds[0]) < LEAST_COMPILES or (
            len(seconds[0]) < MOST_COMPILES and sum(map(sum, seconds)) < COMPILING_S
        ):
            for kept, compiled in zip(seconds, (bare, checked), strict=True):
                started = time.perf_counter()
                compiled()
                kept.append(time.perf_counter() - started)
    finally:
        gc.unfreeze()
    bare_s, checked_s = map(statistics.median, seconds)
    return checked_s / bare_s


def passed_tensors(parameters: Sequence[Any], values: Sequence[Any]) -> PassedArguments:
    """The tensors of a launch, by parameter, from their addresses: of several, the largest."""
    tensors = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.is_cuda]
    names = [parameter.name for parameter in parameters if not parameter.is_constexpr]
    found = {
        name: max(there, key=torch.numel)
        for name, address in zip(names, values, strict=True)
        if (there := [tensor for tensor in tensors if tensor.data_ptr() == address])
    }
    return PassedArguments(tuple(found), tuple(found.values()))


def checked_build(kernel: Any, passed: tuple[Any, ...]) -> Checked:
    """The checked build of `kernel` for many launches.

    The compile time is that of the build that the first launches wait for. It is compiled in turn
    with the bare one; medians.
    """
    from tkdebug.compiler.targets.nvptx.compile import generate_code, lower_to_llvm
    from tkdebug.runtime.compile.compilation import compile_tile_ir
    from tkdebug.runtime.compile.native_compilation import native_options, target_for
    from tkdebug.runtime.cuda import device as devices
    from tkdebug.runtime.cuda.device import load_kernel
    from tkdebug.runtime.cuda.launcher import LaunchShape, make_submit
    from tkdebug.runtime.cuda.packing import CHECKS, kernel_slots

    source = kernel.src
    arguments = passed_tensors(source.fn.params, passed[4:])
    first_launches = CheckOptions(aligned_ends=arguments.aligned_ends)

    def compiled(checks: CheckOptions | None) -> Any:
        module = compile_tile_ir(source).module
        options = replace(native_options(source), checks=checks)
        with KNOBS.scope(always_compile=True):
            lowered = lower_to_llvm(module, options, target_for(source.options))
            return generate_code(lowered).binary()

    ratio = compile_ratio(partial(compiled, None), partial(compiled, first_launches))
    binary = compiled(replace(first_launches, is_lasting=True))
    plan = binary.checks
    assert plan is not None
    loaded = load_kernel(
        devices.device(0), binary.cubin, binary.entry, binary.threads, binary.shared_bytes
    )
    names = [f"v{parameter.num}" for parameter in source.fn.params if not parameter.is_constexpr]
    slots = kernel_slots(source.fn.arg_names, source.specs, binary)
    size = HEADER_BYTES + table_bytes(len(plan.sites))
    table = torch.zeros(size, dtype=torch.uint8, device="cuda")[HEADER_BYTES:]
    hidden = (table.data_ptr(), table.data_ptr(), *arguments.bounds(plan.bounds))
    shape = LaunchShape(
        loaded.function, binary.threads, binary.shared_bytes, workspace_bytes=binary.workspace_bytes
    )

    def recover(status: int, is_last: bool) -> None:
        raise RuntimeError(f"launch: status {status}")

    submit = make_submit(kernel.name, slots, [*names, CHECKS], shape, recover)
    grid, values = passed[:3], passed[4:]
    return Checked(
        lambda stream: submit(*grid, stream, *values, hidden),
        table,
        loaded.registers,
        ratio,
    )


def graph_of(launch: Callable[[int], Any], count: int) -> Any:
    """A CUDA graph of so many launches: what the host does between them has no part in it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            launch(torch.cuda.current_stream().cuda_stream)
    return graph


def replay_us(graph: Any, count: int) -> float:
    """Time of one of the launches in a graph."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(1e3 * begin.elapsed_time(end) / count)


def measure(row: Row, rounds: int, sanitized: float | None = None) -> str:
    """A line of the table; `sanitized` is what compute-sanitizer takes, in us, where it was timed.

    Raises:
        AssertionError: the checked build computes something else, or reports a fault.
    """
    run = row.make()
    out = run()
    kernel, submit, passed = LAST
    wanted = out.clone() if isinstance(out, torch.Tensor) else None
    checked = checked_build(kernel, passed)

    def bare(stream: int) -> Any:
        return submit(*passed[:3], stream, *passed[4:])

    if wanted is not None:
        out.zero_()
    checked.launch(torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    if wanted is not None:
        assert torch.equal(out, wanted), f"{row.name}: other bits"
    found = list(reports(bytes(checked.table.cpu().numpy())))
    assert not found, f"{row.name}: {found}"
    one = graph_of(bare, 1)
    count = max(3, min(200, int(1e3 * ROUND_MS / min(replay_us(one, 1) for _ in range(3)))))
    graphs = [graph_of(launch, count) for launch in (bare, checked.launch)]
    times: list[list[float]] = [[], []]
    for _ in range(1 + 3 * rounds):
        for graph, kept in zip(graphs, times, strict=True):
            kept.append(replay_us(graph, count))
    # The first replay warms up.
    bare_us, checked_us = (statistics.median(kept[1:]) for kept in times)
    ratio = checked_us / bare_us
    cells = (
        row.name,
        f"{bare_us:.1f}",
        f"{ratio:.3f}x",
        f"<= {row.limit}x",
        "pass" if ratio <= row.limit and checked.compile_ratio <= COMPILE_LIMIT else "miss",
        f"{kernel.binary.registers} / {checked.registers}",
        f"{checked.compile_ratio:.2f}x",
        "-" if sanitized is None else f"{sanitized / bare_us:.1f}x",
    )
    return f"| {' | '.join(cells)} |"


def loop_ms(launch: Callable[[int], Any], policy: str) -> float:
    """Host time of a program of `LAUNCHES` launches to its end, once its kernels are compiled.

    The first launch waits for the checked build, and the bare one is compiled after it: both are
    there before the time begins.
    """
    from tkdebug.runtime.checked.checked_launches import CHECKED

    native_worker.add_kernel.kernels.clear()
    with KNOBS.scope(check_launches=policy):
        launch(0)
        for kernel in native_worker.add_kernel.kernels.values():
            getattr(kernel, "bare", kernel)._init_handles()  # noqa: SLF001  (loads it)
        CHECKED.conclude()
        torch.cuda.synchronize()
        started = time.perf_counter()
        for number in range(1, LAUNCHES):
            launch(number)
        torch.cuda.synchronize()
        CHECKED.conclude()
        return 1e3 * (time.perf_counter() - started)


def measure_loop(name: str, step: int, rounds: int) -> str:
    """A line of the table of programs; launch `i` adds `SIZE - step * i` elements."""
    x, y, out = (torch.randn(SIZE, device="cuda") for _ in range(3))

    def launch(number: int) -> None:
        n = SIZE - step * number
        a, b, c = (x, y, out) if not step else (x[:n], y[:n], out[:n])
        native_worker.add_kernel[(triton.cdiv(n, 1024),)](a, b, c, n, BLOCK=1024)

    times: dict[str, list[float]] = {"none": [], "first": []}
    for _ in range(1 + 2 * rounds):
        for policy, kept in times.items():
            kept.append(loop_ms(launch, policy))
    # The first round compiles.
    bare_ms, checked_ms = (statistics.median(kept[1:]) for kept in times.values())
    ratio = checked_ms / bare_ms
    verdict = "pass" if ratio <= LOOP_LIMIT else "miss"
    return f"| {name} | {bare_ms:.1f} | {ratio:.3f}x | <= {LOOP_LIMIT}x | {verdict} |"


HEAD = """# Costs of native checks

Written by `python bench/native_checks.py --markdown bench/RESULTS.md`: kernels of the native
benchmark, and two gathers, bare and with bounds, assertions, assumptions, stored NaNs and
infinities, wrapped offsets, divisions and shifts checked on every
launch. Device times of launches in CUDA graphs,
replayed in turn in one process; medians. Registers are those of the two builds. Compile time, at
most {limit}x, is wall time with an empty disk cache, medians of {compiles} to {most}: that of the
build that first launches wait for. Device times and registers are those of the build that
replaces it some launches later if all launches are checked. Under compute-sanitizer (memcheck,
`--sanitizer`)
bare launches run in one process of their own, each between two events: for kernels of a few
microseconds the ratio is mostly the sanitizer's cost per launch. It tests each access against
allocations. The rows of vector add are of one kernel, and so are those of matmul: their compile
times differ by what else the host did.

- date: {date}
- machine: {machine}

| work | bare us | checked | target |  | registers | compile | compute-sanitizer |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
LOOPS = """
Programs of 1,000 vector adds of up to 2^24 elements, the first launches of each kind checked, as
`tkdebug run` does: host time from the end of the first launch, with both builds there, to the end.

| program | bare ms | checked | target |  |
| --- | ---: | ---: | ---: | ---: |
"""


def sanitizer() -> str | None:
    """Return the path of compute-sanitizer, None without one."""
    toolkit = Path("/usr/local/cuda/bin/compute-sanitizer")
    return shutil.which("compute-sanitizer") or (str(toolkit) if toolkit.exists() else None)


def sanitized_us(rows: Sequence[Row], tool: str) -> dict[str, float]:
    """Times of bare launches under memcheck, in one process of their own, by the rows' names.

    Raises:
        RuntimeError: the process failed, or some row was not reached in time.
    """
    command = [tool, "--tool", "memcheck", "--log-file", os.devnull, sys.executable, __file__]
    for row in rows:
        command += ["--bare", row.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SANITIZER_S)
        said, why = done.stdout, done.stderr[-500:]
    except subprocess.TimeoutExpired as error:
        said, why = (error.stdout or b"").decode(), f"not done after {SANITIZER_S} s"
    times = dict(line.split("\t") for line in said.splitlines() if "\t" in line)
    missing = [row.name for row in rows if row.name not in times]
    if missing:
        raise RuntimeError(f"{', '.join(missing)}: under compute-sanitizer: {why}")
    return {name: float(us) for name, us in times.items()}


def launch_us(row: Row) -> float:
    """Time of a bare launch, by events: graphs are not run under the sanitizer."""
    run = row.make()
    run()
    torch.cuda.synchronize()
    times = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return statistics.median(times)


def main() -> None:
    """Measure all rows, print them, and put them into a file if asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--with", dest="compiler", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="parts of names, by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--sanitizer", action="store_true", help="time compute-sanitizer, too")
    parser.add_argument("--bare", action="append", default=[], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    check_gpu()
    if arguments.bare:
        for row in ROWS:
            if row.name in arguments.bare:
                print(f"{row.name}\t{launch_us(row)}", flush=True)
                torch.cuda.empty_cache()
        return
    tool = sanitizer() if arguments.sanitizer else None
    if arguments.sanitizer and tool is None:
        parser.error("--sanitizer: compute-sanitizer is not on the path; install the CUDA toolkit")
    rows = [row for row in ROWS if any(part in row.name for part in arguments.only.split(","))]
    sanitized = {} if tool is None else sanitized_us(rows, tool)
    spy()
    lines = []
    for row in rows:
        lines.append(measure(row, arguments.rounds, sanitized.get(row.name)))
        print(lines[-1], flush=True)
        torch.cuda.empty_cache()
    loops = []
    for name, step in (("1,000 launches of one shape", 0), ("1,000 shapes", 16)):
        if any(part in name for part in arguments.only.split(",")):
            loops.append(measure_loop(name, step, arguments.rounds))
            print(loops[-1], flush=True)
    if arguments.markdown is not None:
        head = HEAD.format(
            date=datetime.now(timezone.utc).date(),
            machine=torch.cuda.get_device_name(),
            limit=COMPILE_LIMIT,
            compiles=LEAST_COMPILES,
            most=MOST_COMPILES,
        )
        replace_section(
            arguments.markdown, head + "\n".join(lines) + "\n" + LOOPS + "\n".join(loops)
        )


if __name__ == "__main__":
    main()
