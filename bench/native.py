"""Our generated code against upstream's Triton and torch, on one GPU, on the same kernels.

Two processes (`bench/native_worker.py`) run the kernels of `bench/kernels_native.py`, one with
upstream's Triton and one with tkdebug. They are asked in turn, so that only one uses the GPU at a
time and both see the same clocks; each time is the median of the rounds' medians. Needs a GPU, and
a torch and a triton for it.

    python bench/native.py [--only matmul] [--rounds 3] [--markdown bench/RESULTS.md]
        [--tutorials CHECKOUT/python/tutorials]

Exit status 1 when a row misses its target.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from sections import replace_section

HERE = Path(__file__).resolve().parent
WORKER = HERE / "native_worker.py"
UPSTREAM, OURS = "triton", "tkdebug"
COMPILERS = (UPSTREAM, OURS)
REP_MS = 60


@dataclass(frozen=True)
class Row:
    """One line of the table of speeds.

    Attributes:
        of_upstream: our speed over upstream's must be at least this; None where that is no target.
        of_torch: our speed over torch's must be at least this.
        source: a file that the kernels are taken from, for those that are not our own.
    """

    work: str
    arguments: tuple[Any, ...]
    title: str
    of_upstream: float | None = None
    of_torch: float | None = None
    source: str | None = None

    @property
    def name(self) -> str:
        """Return the name that `--only` matches."""
        return "-".join([self.work, *map(str, self.arguments)])


ROWS = (
    Row("vector-add", (1 << 20,), "vector add, 2^20 fp32", 0.97),
    Row("vector-add", (1 << 24,), "vector add, 2^24 fp32", 0.97),
    Row("vector-add", (1 << 28,), "vector add, 2^28 fp32", 0.97),
    Row("softmax", (1823, 781), "softmax 1823x781 fp32", 0.97),
    Row("softmax", (4096, 4096), "softmax 4096x4096 fp32", 0.97),
    Row("softmax", (16384, 4096), "softmax 16384x4096 fp32", 0.97),
    Row("layer-norm", (8192, 8192), "layer norm forward 8192x8192 fp16", 0.97),
    Row("matmul", (4096, "float16"), "matmul 4096^3 fp16", None, 0.80),
    Row("matmul", (8192, "float16"), "matmul 8192^3 fp16", None, 0.80),
    Row("matmul", (8192, "bfloat16"), "matmul 8192^3 bf16", None, 0.80),
    Row("matmul", (8192, "float8_e4m3fn"), "matmul 8192^3 fp8 (e4m3)"),
    Row("matmul", (8192, "int8"), "matmul 8192^3 int8"),
    Row("descriptor-matmul", (4096,), "matmul 4096^3 fp16 by tensor descriptors", None, 0.80),
    Row("descriptor-matmul", (8192,), "matmul 8192^3 fp16 by tensor descriptors", None, 0.80),
    Row("attention", (64, False), "attention forward 4x32x4096x64 fp16", 0.7),
    Row("attention", (64, True), "attention forward 4x32x4096x64 fp16, causal", 0.7),
    Row("attention", (128, False), "attention forward 4x32x4096x128 fp16", 0.7),
    Row("attention", (128, True), "attention forward 4x32x4096x128 fp16, causal", 0.7),
)
TUTORIAL = "06-fused-attention.py"
COMPILES = (
    ("vector-add", "cold compile of vector add"),
    ("softmax", "cold compile of softmax, 4096 columns"),
    ("matmul", "cold compile of matmul fp16, 128x256x64, 8 warps, 3 stages"),
)
LAUNCH_TARGET = 0.6
# A request is 60 ms of launches, and what else the machine does is felt in each.
LAUNCH_ROUNDS = 15


def tutorial_rows(folder: Path) -> list[Row]:
    """Rows of upstream's attention tutorial, found in `folder`."""
    file = folder / TUTORIAL
    if not file.is_file():
        raise fail(
            f"{file} is not there: --tutorials wants python/tutorials of Triton 3.6's sources"
        )
    rows = []
    for backward in (False, True):
        for head_dim in (64, 128):
            # The tutorial's own tests leave the backward pass that is not causal out: it is wrong.
            for causal in (True,) if backward else (False, True):
                title = f"tutorial 06, {'backward' if backward else 'forward'} 4x32x4096x{head_dim}"
                title += " fp16, causal" if causal else " fp16"
                target = None if backward else 0.7
                arguments = (head_dim, causal, backward)
                source = str(file.resolve())
                rows.append(Row("tutorial-attention", arguments, title, target, source=source))
    return rows


def fail(message: str) -> SystemExit:
    return SystemExit(f"native.py: {message}")


class Worker:
    """A process that has one of the compilers."""

    def __init__(self, compiler: str, python: str, cache: Path) -> None:
        self.compiler = compiler
        read_end, write_end = os.pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TKDEBUG_CACHE_DIR": str(cache / "tkdebug"),
            "TRITON_INTERPRET": "0",
        }
        command = [python, str(WORKER), "--with", compiler, "--answers", str(write_end)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=sys.stderr,
            pass_fds=(write_end,),
            env=environment,
            text=True,
        )
        os.close(write_end)
        self._answers = os.fdopen(read_end, encoding="utf-8")

    def ask(self, what: str, **request: Any) -> dict[str, Any]:
        """The answer to one request; `error` in it says what went wrong."""
        assert self._process.stdin is not None
        try:
            print(json.dumps({"what": what, **request}), file=self._process.stdin, flush=True)
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"error": f"the process ended with status {self._process.wait()}"}
        return dict(json.loads(line))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=20)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        self._answers.close()


class Bench:
    """Starts the workers, and again when one has died or its device is lost."""

    def __init__(self, python: str, cache: Path) -> None:
        self._python = python
        self._cache = cache
        self._workers: dict[str, Worker] = {}

    def worker(self, compiler: str) -> Worker:
        """The running worker of `compiler`."""
        if compiler not in self._workers:
            self._workers[compiler] = Worker(compiler, self._python, self._cache)
        return self._workers[compiler]

    def fresh(self, compiler: str) -> None:
        """Let the next request go to a new process."""
        worker = self._workers.pop(compiler, None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        """End all workers."""
        for compiler in COMPILERS:
            self.fresh(compiler)


@dataclass(frozen=True)
class Measured:
    """A line's numbers, or why there are none, by compiler and "torch"."""

    title: str
    unit: str
    values: dict[str, float]
    errors: dict[str, str]
    targets: tuple[tuple[str, float], ...]
    higher_is_better: bool = True

    def ratio(self, other: str) -> float | None:
        """Ours over `other`'s."""
        if OURS not in self.values or other not in self.values:
            return None
        return self.values[OURS] / self.values[other]

    @property
    def misses(self) -> tuple[str, ...]:
        """The targets this line is short of."""
        found = []
        for other, target in self.targets:
            ratio = self.ratio(other)
            if ratio is None:
                found.append(f"no number ({self.errors.get(OURS) or self.errors.get(other)})")
            elif (ratio < target) if self.higher_is_better else (ratio > target):
                found.append(f"{ratio:.2f} of {other}, target {target:g}")
        return tuple(found)


def measure_row(bench: Bench, row: Row, rounds: int) -> Measured:
    errors: dict[str, str] = {}
    facts: dict[str, Any] = {}
    times: dict[str, list[float]] = {}
    for compiler in COMPILERS:
        source = [row.source] if row.source else []
        request = {"work": row.work, "arguments": [*source, *row.arguments]}
        answer = bench.worker(compiler).ask("prepare", **request)
        if "error" in answer:
            errors[compiler] = str(answer["error"])
            # A failed kernel may have taken the CUDA context with it.
            bench.fresh(compiler)
        else:
            facts = answer
    for turn in range(rounds):
        # The first finds a cooler GPU with higher clocks, so each goes first in half the rounds.
        for compiler in COMPILERS if turn % 2 == 0 else reversed(COMPILERS):
            if compiler not in errors:
                take(bench, compiler, "ours", compiler, times, errors)
        reference = UPSTREAM if UPSTREAM not in errors else OURS
        if reference not in errors:
            take(bench, reference, "eager", "torch", times, errors)
    unit = str(facts.get("unit", ""))
    scale = 1e-6 if unit == "GB/s" else 1e-9
    values = {
        name: facts["amount"] / statistics.median(found) * scale for name, found in times.items()
    }
    targets = []
    if row.of_upstream is not None:
        targets.append((UPSTREAM, row.of_upstream))
    if row.of_torch is not None:
        targets.append(("torch", row.of_torch))
    return Measured(row.title, unit, values, errors, tuple(targets))


def take(
    bench: Bench,
    compiler: str,
    what: str,
    name: str,
    times: dict[str, list[float]],
    errors: dict[str, str],
) -> None:
    answer = bench.worker(compiler).ask(what, rep_ms=REP_MS)
    if "error" in answer:
        errors[name] = str(answer["error"])
        times.pop(name, None)
    else:
        times.setdefault(name, []).append(answer["ms"])


def measure_launch(bench: Bench, hooked: bool) -> Measured:
    times: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    for _ in range(LAUNCH_ROUNDS):
        for compiler in COMPILERS:
            answer = bench.worker(compiler).ask("launch", hooked=hooked)
            if "error" in answer:
                errors[compiler] = str(answer["error"])
                bench.fresh(compiler)
            else:
                times.setdefault(compiler, []).append(answer["us"])
    values = {name: statistics.median(found) for name, found in times.items()}
    title = "launch of an empty kernel (3 tensors, 2 ints, 1 constexpr), host side"
    if hooked:
        return Measured(f"{title}, with two no-op hooks", "us", values, errors, (), False)
    return Measured(title, "us", values, errors, ((UPSTREAM, LAUNCH_TARGET),), False)


def measure_compiles(
    python: str, compiles: Sequence[tuple[str, str]], rounds: int
) -> Iterator[Measured]:
    """A line for each (work, title); every compile is the first of its process."""
    times: dict[tuple[str, str], list[float]] = {}
    errors: dict[str, dict[str, str]] = {}
    asked = [(work, compiler) for work, _ in compiles for compiler in COMPILERS]
    for _ in range(rounds):
        with ExitStack() as stack:
            workers = []
            # Started together, as each takes seconds to find its GPU, and then asked in turn.
            for _, compiler in asked:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                workers.append(Worker(compiler, python, Path(folder)))
                stack.callback(workers[-1].close)
            started = [worker.ask("start") for worker in workers]
            for (work, compiler), worker, answer in zip(asked, workers, started, strict=True):
                if "error" not in answer:
                    answer = worker.ask("compile", work=work)
                if "error" in answer:
                    errors.setdefault(work, {})[compiler] = str(answer["error"])
                else:
                    times.setdefault((work, compiler), []).append(answer["ms"])
    for work, title in compiles:
        values = {
            compiler: statistics.median(times[work, compiler])
            for compiler in COMPILERS
            if (work, compiler) in times
        }
        found = errors.get(work, {})
        yield Measured(title, "ms", values, found, ((UPSTREAM, 1.0),), False)


HEADER = ("work", "unit", "triton", "tkdebug", "torch", "/ triton", "/ torch", "target", "")


def cells(result: Measured) -> tuple[str, ...]:
    """One line of the table, as text."""

    def number(name: str) -> str:
        if name in result.values:
            value = result.values[name]
            return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
        if name not in result.errors:
            return "-"
        return f"{'not supported yet' if name == OURS else 'failed'}: {result.errors[name]}"

    def ratio(name: str) -> str:
        found = result.ratio(name)
        return "-" if found is None else f"{found:.2f}"

    sign = ">=" if result.higher_is_better else "<="
    targets = ", ".join(f"{sign} {target:g} of {other}" for other, target in result.targets)
    verdict = "short" if result.misses else "pass" if result.targets else ""
    return (
        result.title,
        result.unit,
        number(UPSTREAM),
        number(OURS),
        number("torch"),
        ratio(UPSTREAM),
        ratio("torch"),
        targets or "-",
        verdict,
    )


def table(results: Sequence[Measured]) -> list[str]:
    rows = [HEADER, ("---", "---") + ("---:",) * (len(HEADER) - 2), *map(cells, results)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def page(results: Sequence[Measured], rounds: int) -> str:
    """The section of RESULTS.md: what was measured where, the table, what is short by how much."""
    lines = [
        "# Native benchmark",
        "",
        "Written by `python bench/native.py --markdown bench/RESULTS.md`. The same kernels",
        "(`bench/kernels_native.py`) by upstream's Triton and by tkdebug, each in a process of its",
        f"own, asked in turn {rounds} times ({LAUNCH_ROUNDS} for launches); medians, L2 evicted",
        "before each timed call. torch is cuBLAS, SDPA and eager kernels. Cold compiles are in",
        "fresh processes with empty caches. The tuner times configurations that are close to the",
        "fastest again, in turn. Rows of tutorial 06 (`--tutorials`) are upstream's kernels and",
        "sizes, 4 x 32 x 4096, without the backward pass that is not causal: upstream's tests",
        "leave it out as wrong, which it is under either compiler.",
        "",
        f"- date: {datetime.now(timezone.utc):%Y-%m-%d}",
        f"- machine: {gpu()}, {os.cpu_count()} CPU cores, {platform.system()} {platform.machine()}",
        f"- versions: {versions()}",
        "",
        *table(results),
    ]
    short = [f"- {r.title}: {'; '.join(r.misses)}" for r in results if r.misses]
    if short:
        lines += ["", "Short of the target:", "", *short]
    return "\n".join(lines) + "\n"


def gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "an NVIDIA GPU"
    name, _, driver = text.splitlines()[0].partition(", ")
    return f"{name}, driver {driver}"


def versions() -> str:
    found = []
    for name in ("torch", "triton", "llvmlite", "cuda-bindings", "nvidia-nvjitlink"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join([*found, f"python {platform.python_version()}"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="TEXT", help="rows whose name has TEXT")
    parser.add_argument("--rounds", type=int, default=3, help="how often each row is timed")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and triton")
    parser.add_argument(
        "--tutorials", type=Path, metavar="FOLDER", help=f"time the {TUTORIAL} in it too"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the section there")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()

    def wanted(name: str) -> bool:
        return not arguments.only or any(text in name for text in arguments.only)

    rows = [*ROWS, *(tutorial_rows(arguments.tutorials) if arguments.tutorials else ())]
    results: list[Measured] = []

    def add(result: Measured) -> None:
        results.append(result)
        print(table([result])[-1], file=sys.stderr, flush=True)
        if arguments.markdown:
            # After each line: a run that is cut short keeps what it has.
            replace_section(arguments.markdown, page(results, arguments.rounds))

    compiles = [(work, title) for work, title in COMPILES if wanted(f"compile-{work}")]
    for result in measure_compiles(arguments.python, compiles, arguments.rounds):
        add(result)
    with tempfile.TemporaryDirectory() as cache:
        bench = Bench(arguments.python, Path(cache))
        try:
            for name, hooked in (("launch", False), ("launch-hooked", True)):
                if wanted(name):
                    add(measure_launch(bench, hooked))
            for row in rows:
                if wanted(row.name):
                    add(measure_row(bench, row, arguments.rounds))
        finally:
            bench.close()
    if not results:
        raise fail(
            f"no row has {arguments.only}; there are launch, compile and "
            + ", ".join(row.name for row in rows)
        )
    print(page(results, arguments.rounds))
    sys.exit(1 if any(result.misses for result in results) else 0)


if __name__ == "__main__":
    main()
