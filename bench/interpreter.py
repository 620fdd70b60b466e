"""Our interpreter against upstream's and against torch eager, on the same kernels.

Each row of `bench/kernels.py` runs in a process of its own, first under upstream's interpreter,
then under `tkdebug run`, two threads each; times are medians and both results are checked against
torch. Upstream needs a Python of its own, since its interpreter patches the language in place and
wants an older numpy: this makes one under bench/.venv-upstream, or takes `--upstream-python`.

    python bench/interpreter.py [--upstream-python PATH] [--only matmul] [--markdown RESULTS.md]

Exit status 1 when a row misses one of its targets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from sections import machine, replace_section, versions

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "kernels.py"
UPSTREAM_VENV = HERE / ".venv-upstream"
UPSTREAM_PACKAGES = ("torch==2.13.0", "triton==3.6.0", "numpy<2.4")
THREADS = "2"
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        upstream_repeats: few, since a launch takes up to a minute there.
        speedup: upstream's time over ours must be at least this.
        slowdown: our time over torch's may be at most this; None where no torch op does the same
            work in the same order.
    """

    work: str
    title: str
    upstream_repeats: int
    repeats: int
    speedup: float
    slowdown: float | None


ROWS = (
    Row("vector-add", "vector add, 1 M fp32", 3, 201, 500, 5),
    Row("softmax", "softmax 1823x781 fp32, a row a program", 1, 151, 500, 5),
    Row("matmul", "matmul 512^3 fp32, 32-tiles, grouped", 1, 31, 500, 8),
    Row("attention", "attention forward, 4 heads, N=512, D=64, 64-tiles", 3, 21, 100, None),
    Row("embedding", "embedding, 16,384 of 50,000 rows of 256", 1, 21, 50, None),
)


@dataclass(frozen=True)
class Measured:
    """A row with its numbers; `upstream_ms` is None where upstream was left out."""

    row: Row
    ours_ms: float
    first_ms: float
    eager_ms: float
    upstream_ms: float | None
    peak_rss_bytes: int
    grown_rss_bytes: int

    @property
    def speedup(self) -> float | None:
        """Return the speed relative to upstream's interpreter."""
        return None if self.upstream_ms is None else self.upstream_ms / self.ours_ms

    @property
    def slowdown(self) -> float:
        """Return the time relative to torch eager."""
        return self.ours_ms / self.eager_ms

    @property
    def misses(self) -> tuple[str, ...]:
        """The targets this row is short of."""
        found = []
        if self.speedup is not None and self.speedup < self.row.speedup:
            found.append(f"upstream {self.speedup:.0f}x of {self.row.speedup:.0f}x")
        if self.row.slowdown is not None and self.slowdown > self.row.slowdown:
            found.append(f"torch {self.slowdown:.1f}x over {self.row.slowdown:g}x")
        return tuple(found)


def fail(message: str) -> SystemExit:
    return SystemExit(f"interpreter.py: {message}")


def upstream_python(chosen: str | None) -> str:
    """A Python that has upstream's Triton: the one given, or that of a venv made here."""
    if chosen is not None:
        return chosen
    python = UPSTREAM_VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ready = UPSTREAM_VENV / "ready"
    if not ready.exists():
        print(f"making {UPSTREAM_VENV.relative_to(HERE.parent)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(UPSTREAM_VENV)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", *UPSTREAM_PACKAGES]
        if subprocess.run(pip).returncode:
            raise fail("upstream's packages cannot be installed; try --upstream-python")
        ready.touch()
    return str(python)


def run(command: Sequence[str], environment: Mapping[str, str], row: Row, repeats: int) -> dict:
    """The numbers that `command` writes for `row`."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    full_environment = {**os.environ, **dict.fromkeys(names, THREADS), **environment}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "times.json"
        arguments = [*command, str(KERNELS), row.work, str(repeats), str(output)]
        status = subprocess.run(
            arguments, env=full_environment, cwd=folder, stdin=subprocess.DEVNULL
        ).returncode
        if status or not output.exists():
            raise fail(f"{row.work} ended with status {status}: {' '.join(arguments)}")
        return dict(json.loads(output.read_text(encoding="utf-8")))


def measure(row: Row, upstream: str | None) -> Measured:
    theirs: dict = {}
    if upstream is not None:
        environment = {"TRITON_INTERPRET": "1"}
        theirs = run([upstream], environment, row, row.upstream_repeats)
    tkdebug = [sys.executable, "-m", "tkdebug", "run", "--mode", "interpret", "--no-tui"]
    # What checks cost is `checks.py`'s.
    tkdebug += ["--check", "none"]
    ours = run(tkdebug, {"TRITON_INTERPRET": "0"}, row, row.repeats)
    return Measured(
        row=row,
        ours_ms=ours["launch_ms"],
        first_ms=ours["first_ms"],
        # The faster of the two processes: a slow torch must not make us look good.
        eager_ms=min(ours["eager_ms"], theirs.get("eager_ms", ours["eager_ms"])),
        upstream_ms=theirs.get("launch_ms"),
        peak_rss_bytes=int(ours["peak_rss_bytes"]),
        grown_rss_bytes=int(ours["grown_rss_bytes"]),
    )


HEADER = (
    "work",
    "upstream ms",
    "tkdebug ms",
    "torch ms",
    "upstream / tkdebug",
    "target",
    "tkdebug / torch",
    "target",
    "first launch ms",
    "peak RSS MiB (grown)",
    "",
)


def cells(result: Measured) -> tuple[str, ...]:
    """One row of the table, as text."""
    row = result.row
    return (
        row.title,
        "-" if result.upstream_ms is None else f"{result.upstream_ms:.0f}",
        f"{result.ours_ms:.2f}",
        f"{result.eager_ms:.2f}",
        "-" if result.speedup is None else f"{result.speedup:.0f}x",
        f">= {row.speedup:g}x",
        f"{result.slowdown:.1f}x",
        "-" if row.slowdown is None else f"<= {row.slowdown:g}x",
        f"{result.first_ms:.0f}",
        f"{result.peak_rss_bytes / MIB:.0f} ({result.grown_rss_bytes / MIB:.0f})",
        "short" if result.misses else "pass",
    )


def text_table(results: Sequence[Measured]) -> str:
    rows = [HEADER, *map(cells, results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown(results: Sequence[Measured], upstream: str | None, load: str) -> str:
    """The results as a page: what was measured where, and the table."""
    table = [HEADER, ("---",) + ("---:",) * (len(HEADER) - 1), *map(cells, results)]
    lines = [
        "# Interpreter benchmark",
        "",
        "Written by `python bench/interpreter.py --markdown bench/RESULTS.md`. Medians of wall",
        "time per launch, two threads, each row in a process of its own and upstream's interpreter",
        "just before ours; `tkdebug run` as users run it, recorder included. torch and tkdebug",
        "take turns, ten calls together, as the machine has other work. Grown is what the",
        "launches added to the process's peak, inputs not counted; the interpreter's budget is the",
        "default 1 GiB.",
        "",
        f"- date: {datetime.now(timezone.utc):%Y-%m-%d}",
        f"- machine: {machine()}",
        f"- load average before the first row: {load}",
        f"- tkdebug: {versions(sys.executable, ('tkdebug', 'torch', 'numpy'))}",
    ]
    if upstream is not None:
        lines.append(f"- upstream: {versions(upstream, ('triton', 'torch', 'numpy'))}")
    lines += ["", *("| " + " | ".join(row) + " |" for row in table)]
    misses = [f"- {result.row.work}: {', '.join(result.misses)}" for result in results]
    short = [line for line, result in zip(misses, results, strict=True) if result.misses]
    if short:
        lines += ["", "Short of the target:", "", *short]
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--upstream-python", metavar="PATH", help="a Python with triton 3.6.0")
    parser.add_argument("--skip-upstream", action="store_true", help="measure only tkdebug")
    parser.add_argument(
        "--only", action="append", choices=[row.work for row in ROWS], help="one row; repeatable"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the results there")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    upstream = None if arguments.skip_upstream else upstream_python(arguments.upstream_python)
    # Two threads on a machine with other work wait for each other: such a table says little.
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    results = []
    for row in ROWS:
        if arguments.only and row.work not in arguments.only:
            continue
        print(f"{row.work} ...", file=sys.stderr, flush=True)
        results.append(measure(row, upstream))
    print(text_table(results))
    if arguments.markdown:
        replace_section(arguments.markdown, markdown(results, upstream, load))
    for result in results:
        if result.misses:
            print(f"{result.row.work} is short: {', '.join(result.misses)}")
    sys.exit(1 if any(result.misses for result in results) else 0)


if __name__ == "__main__":
    main()
