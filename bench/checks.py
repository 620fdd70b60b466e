"""Costs of the interpreter's checks: each kind alone, the default and all, against none.

Each row runs in a process of its own under `tkdebug run`; there the columns take turns. Figures are
the least processor time on one thread, which other work on the machine disturbs little, as
multiples of the launch without any check.

    python bench/checks.py [--only softmax] [--markdown RESULTS.md]

Exit status 1 when a row misses one of its targets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from sections import machine, replace_section, versions

BARE, DEFAULT, ALL = "none", "default", "all"
THREADS = "1"
# All checks together may take this many times as long as none, on every row.
MOST_OF_ALL = 5
MOST_OF_DEFAULT = 1.5


@dataclass(frozen=True)
class Row:
    """One line of the table: launches of a work, `batch` of them timed together."""

    work: str
    title: str
    repeats: int
    batch: int = 1


ROWS = (
    Row("vector-add", "vector add, 1 M fp32", 31),
    Row("softmax", "softmax 1823x781 fp32, a row a program", 21),
    Row("matmul", "matmul 512^3 fp32, 32-tiles, grouped", 11),
    Row("attention", "attention forward, 4 heads, N=512, D=64, 64-tiles", 11),
    Row("ragged-attention", "the same of N=500, whose last tiles are masked", 11),
    Row("paged-prefill", "prefill over a paged cache, 4 sequences, 8 heads, D=64", 11),
    Row("split-k", "matmul 250x250x500 in 4 parts, the last to arrive adds up", 11),
    Row("locked-sum", "64 programs add 1,024 elements up under a lock", 11),
    Row("tiny-launch", "3,000 launches of one program of 64 elements", 20, 50),
)


def columns() -> tuple[str, ...]:
    from tkdebug.checks import CHECK_NAMES

    return (BARE, DEFAULT, *CHECK_NAMES, ALL)


# The process of a row


def measure(row: Row) -> dict[str, float]:
    """Least milliseconds of a launch by column."""
    import kernels
    import torch

    from tkdebug.checks import CHECK_NAMES, DEFAULT_CHECKS
    from tkdebug.knobs import scope

    torch.manual_seed(0)
    torch.set_num_threads(int(THREADS))
    work = kernels.WORKS[row.work]()
    checks = {
        BARE: (),
        DEFAULT: DEFAULT_CHECKS,
        **{name: (name,) for name in CHECK_NAMES},
        ALL: CHECK_NAMES,
    }

    def timed(column: str) -> float:
        # Some checks look on in every launch, but for kernels that are not asked for.
        only = ("no such kernel",) if column == BARE else ()
        with scope(checks=checks[column], only_kernels=only):
            start = time.process_time()
            for _ in range(row.batch):
                work.launch()
            return (time.process_time() - start) * 1e3 / row.batch

    for column in checks:
        timed(column)
    times: dict[str, list[float]] = {column: [] for column in checks}
    for _ in range(row.repeats):
        for column in checks:
            times[column].append(timed(column))
    return {column: min(found) for column, found in times.items()}


# The table


def run(row: Row) -> Mapping[str, float]:
    """The times of a row, by a process of its own."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, THREADS)}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "times.json"
        command = [sys.executable, "-m", "tkdebug", "run", "--mode", "interpret", "--no-tui"]
        command += [str(Path(__file__).resolve()), "--worker", row.work, str(output)]
        status = subprocess.run(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL
        ).returncode
        if status or not output.exists():
            raise SystemExit(f"checks.py: {row.work} ended with status {status}")
        return dict(json.loads(output.read_text(encoding="utf-8")))


def cells(row: Row, times: Mapping[str, float]) -> tuple[str, ...]:
    bare = times[BARE]
    others = (f"{times[column] / bare:.2f}x" for column in columns() if column != BARE)
    return (row.title, f"{bare:.2f}", *others, "short" if is_short(times) else "pass")


def is_short(times: Mapping[str, float]) -> bool:
    """Whether a row misses a target."""
    bare = times[BARE]
    return times[ALL] > MOST_OF_ALL * bare or times[DEFAULT] > MOST_OF_DEFAULT * bare


def markdown(found: Sequence[tuple[Row, Mapping[str, float]]]) -> str:
    header = ("work", "no check, ms", *(name for name in columns() if name != BARE), "")
    table = [header, ("---",) + ("---:",) * (len(header) - 1)]
    table += [cells(row, times) for row, times in found]
    lines = [
        "# Costs of checks",
        "",
        "Written by `python bench/checks.py --markdown bench/RESULTS.md`. Least processor time per",
        "launch, one thread, as multiples of a launch without any check; the columns took turns.",
        "`default` is what interpreted kernels are checked for without `--check`. Targets: default",
        f"within {MOST_OF_DEFAULT} times, all checks together within {MOST_OF_ALL}.",
        "",
        f"- date: {datetime.now(timezone.utc):%Y-%m-%d}",
        f"- machine: {machine()}",
        f"- tkdebug: {versions(sys.executable, ('tkdebug', 'torch', 'numpy'))}",
        "",
        *("| " + " | ".join(row) + " |" for row in table),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    works = [row.work for row in ROWS]
    parser.add_argument("--only", action="append", choices=works, help="one row; repeatable")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--worker", nargs=2, metavar=("WORK", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work, output = arguments.worker
        (row,) = (row for row in ROWS if row.work == work)
        Path(output).write_text(json.dumps(measure(row)), encoding="utf-8")
        return
    found = []
    for row in ROWS:
        if not arguments.only or row.work in arguments.only:
            found.append((row, run(row)))
            print("  ".join(cells(*found[-1])), flush=True)
    if arguments.markdown:
        replace_section(arguments.markdown, markdown(found))
    sys.exit(1 if any(is_short(times) for _, times in found) else 0)


if __name__ == "__main__":
    main()
